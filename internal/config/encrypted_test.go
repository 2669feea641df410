package config

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/coredns/caddy/caddyfile"

	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
)

// serverBlocks reads a Corefile. $TLS is the plugin tls with a certificate for 192.168.1.2, *.home.example and
// dns.home.example.
func serverBlocks(t *testing.T, corefile string) []caddyfile.ServerBlock {
	t.Helper()
	cert, key := testkit.CertificateAt(t, t.TempDir(), net.IPv4(192, 168, 1, 2), "*.home.example", "dns.home.example")
	none, _ := testkit.Certificate(t, t.TempDir())
	text := strings.NewReplacer("$TLS", "tls "+cert+" "+key, "$NAMELESS", "tls "+none+" "+key, "$KEY", "tls "+key+" "+key, "$US", "safebrowsing {\nendpoint http://127.0.0.1:1\n}").Replace(corefile)
	blocks, err := caddyfile.Parse("Corefile", strings.NewReader(text), nil)
	if err != nil {
		t.Fatal(err)
	}
	return blocks
}

func TestEncryptedServerBlocksWithThePluginAreDesignated(t *testing.T) {
	for _, tc := range []struct {
		name, corefile string
		want           []string // alpn name:port path addresses
		trouble        string   // of the first
	}{
		{"no encryption", ".:53 {\n$US\n}", nil, ""},
		{"all transports, in the order of designation", "https://. {\n$TLS\n$US\n}\nhttps3://. {\n$TLS\n$US\n}\ntls://. {\n$TLS\n$US\n}\nquic://. {\n$TLS\n$US\n}", []string{
			"doq dns.home.example:853  []", "dot dns.home.example:853  []", "h3 dns.home.example:443 /dns-query{?dns} []", "h2 dns.home.example:443 /dns-query{?dns} []",
		}, ""},
		{"another port, bound", "tls://.:8853 {\nbind 192.168.1.2 fd00::2\n$TLS\n$US\n}", []string{"dot dns.home.example:8853  [192.168.1.2 fd00::2]"}, ""},
		{"bound to all", "tls://. {\nbind 0.0.0.0 eth0\n$TLS\n$US\n}", []string{"dot dns.home.example:853  []"}, ""},
		{"plain and encrypted in one block", ". tls://. {\n$TLS\n$US\n}", []string{"dot dns.home.example:853  []"}, ""},
		{"without the plugin", "tls://. {\n$TLS\n}", nil, ""},
		{"for some names", "tls://example.org {\n$TLS\n$US\n}", nil, ""},
		{"for some clients", "tls://. {\nview a {\nexpr true\n}\n$TLS\n$US\n}", nil, ""},
		{"gRPC, which clients do not look for", "grpc://. {\n$TLS\n$US\n}", nil, ""},
		{"ACME", "tls://. {\ntls {\nemail a@example.org\nacme *.acme.example dns.acme.example\n}\n$US\n}", []string{"dot dns.acme.example:853  []"}, ""},
		{"no name in the certificate", "tls://. {\n$NAMELESS\n$US\n}", nil, "tls://.:853: its certificate has no DNS name"},
		{"no certificate in the file", "tls://. {\n$KEY\n$US\n}", nil, "there is no certificate in it"},
		{"no tls", "tls://. {\n$US\n}", nil, "tls://.:853: the server block has no tls"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			all := EncryptedOf(serverBlocks(t, tc.corefile))
			var got []string
			for _, d := range Designated(all) {
				got = append(got, fmt.Sprintf("%s %s:%d %s %s", d.ALPN, d.Name, d.Port, d.Path, d.Addresses))
			}
			if !slices.Equal(got, tc.want) {
				t.Errorf("Expected %q, got %q", tc.want, got)
			}
			warnings := strings.Join(new(Config).Undesignated(all), "\n")
			if !strings.Contains(warnings, tc.trouble) || (warnings == "") != (tc.trouble == "") {
				t.Errorf("Expected a warning %q, got %q", tc.trouble, warnings)
			}
			if off := (&Config{Block: Block{Keep: KeepNothing}}).Undesignated(all); off != nil {
				t.Errorf("Expected no warning with keep_clients off, got %q", off)
			}
		})
	}
}

// RFC 9462 section 4.2: the certificate has the address of the resolver that was asked without encryption.
func TestACertificateWithoutTheAddressThatClientsAskIsFound(t *testing.T) {
	lan, other := netip.MustParseAddr("192.168.1.2"), netip.MustParseAddr("192.168.2.2")
	machine := []netip.Addr{netip.MustParseAddr("127.0.0.1"), lan, other, lan, netip.MustParseAddr("fe80::1")}
	for _, tc := range []struct {
		plain string
		want  []netip.Addr // where clients ask
		lacks []netip.Addr
	}{
		{".:53 {\nbind 192.168.1.2\n$US\n}", []netip.Addr{lan}, nil},
		{".:53 {\n$US\n}", []netip.Addr{lan, other}, []netip.Addr{other}},
		{".:53 {\nbind 192.168.2.2\n}", nil, nil}, // without the plugin
		{".:1053 {\n$US\n}", nil, nil},            // clients of the network ask port 53
	} {
		blocks := serverBlocks(t, tc.plain+"\ntls://. {\n$TLS\n$US\n}")
		asked, e := PlainAddresses(blocks, machine), EncryptedOf(blocks)[0]
		if got := e.Lacks(asked); !slices.Equal(asked, tc.want) || !slices.Equal(got, tc.lacks) {
			t.Errorf("%s: Expected %v, of which %v are lacking, got %v and %v", tc.plain, tc.want, tc.lacks, asked, got)
		}
	}
}
