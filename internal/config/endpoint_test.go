package config

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coredns/caddy/caddyfile"
	plugintls "github.com/coredns/coredns/plugin/pkg/tls"

	"github.com/coredns-safebrowsing/safebrowsing/internal/engine"
	"github.com/coredns-safebrowsing/safebrowsing/internal/ownlist"
	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

// certificate returns a certificate in PEM.
func certificate(t *testing.T) string {
	t.Helper()
	cert, _ := testkit.Certificate(t, t.TempDir())
	return testkit.Read(t, cert)
}

func TestEndpointsAreReadInTheirOrder(t *testing.T) {
	ca := writeFile(t, t.TempDir(), "ca.pem", certificate(t))
	c, err := stanza(t, "safebrowsing {\napi_key K\ndb off\nendpoint https://b.example/ https://a.example:8443/x http://10.0.0.1\ntls "+ca+"\n}")
	testkit.Must(t, err)
	testkit.Equal(t, "endpoints", settings(c).Endpoints(), []string{"https://b.example", "https://a.example:8443/x", "http://10.0.0.1"})
	testkit.WantStart(t, c.CA, "-----BEGIN CERTIFICATE")
	testkit.Equal(t, "Google", settings(c).Google(), false)
	for s, want := range map[engine.Settings]string{settings(c): "*protocol.Failover", settings(c).At("https://b.example"): "*protocol.V5"} {
		client, err := s.Client("K", new(lookup.Database), nil)
		testkit.Must(t, err)
		testkit.Equal(t, "client", fmt.Sprintf("%T", client), want)
	}
}

// As the words tls of forward and grpc: plugin/pkg/tls, NewTLSConfigFromArgs.
func TestTLSTakesTheFilesOfForwardInItsOrder(t *testing.T) {
	dir := t.TempDir()
	ca := writeFile(t, dir, "ca.pem", certificate(t))
	cert, key := testkit.Certificate(t, dir)
	for args, want := range map[string]struct{ ours, theirs bool }{
		"": {}, ca: {theirs: true}, cert + " " + key: {ours: true}, cert + " " + key + " " + ca: {true, true},
	} {
		c, err := stanza(t, "safebrowsing {\ndb off\nendpoint https://a.example\ntls "+args+"\n}")
		if err != nil || (c.Cert == cert && c.CertKey == key) != want.ours || (c.Cert == "") == want.ours || (c.CA != "") != want.theirs {
			t.Errorf("tls %s: Expected %+v, got %+v and %d bytes of authorities, %v", args, want, c.Cert, len(c.CA), err)
		}
		theirs, err := plugintls.NewTLSConfigFromArgs(strings.Fields(args)...)
		if err != nil || (len(theirs.Certificates) > 0) != want.ours || (theirs.RootCAs != nil) != want.theirs {
			t.Errorf("tls %s: Expected %+v of CoreDNS, got %d certificates and authorities %v, %v", args, want, len(theirs.Certificates), theirs.RootCAs, err)
		}
	}
}

func TestFlagsBecomeTheLineOfTLS(t *testing.T) {
	for flags, want := range map[[2]string]string{
		{"", ""}: "", {"", "ca"}: "tls ca", {"cert,key", ""}: "tls cert key", {"cert,key", "ca"}: "tls cert key ca",
	} {
		line, err := TLSLine(flags[0], flags[1])
		testkit.Must(t, err)
		testkit.Equal(t, flags, strings.Join(line, " "), want)
	}
	for _, flag := range []string{"cert", "cert,key,ca"} {
		_, err := TLSLine(flag, "")
		testkit.WantError(t, err, "two files with a comma")
	}
}

func TestEndpointsThatAreNotOneServiceOfOnesOwnAreRefused(t *testing.T) {
	t.Setenv(KeyVariable, "")
	dir := t.TempDir()
	ca := writeFile(t, dir, "ca.pem", certificate(t))
	text := writeFile(t, dir, "text", "no certificate\n")
	empty := writeFile(t, dir, "empty", "")
	cert, key := testkit.Certificate(t, dir)
	large := writeFile(t, dir, "large", certificate(t)+strings.Repeat("#", maxCA))
	for _, tc := range []struct{ text, want string }{
		{"endpoint http://10.0.0.1 https://safebrowsing.googleapis.com", "https://safebrowsing.googleapis.com cannot be one of several"},
		{"endpoint https://webrisk.googleapis.com http://10.0.0.1", "cannot be one of several"},
		{"endpoint http://10.0.0.1 http://10.0.0.1/", "http://10.0.0.1 is given more than once"},
		{"endpoint http://10.0.0.1, http://10.0.0.2", "without commas"},
		{"endpoint https://a.example,https://b.example", "without commas"},
		{"block https://a.example/hosts.txt,http://b.example/hosts.txt", "without commas"},
		{"endpoint http://10.0.0.1 ftp://10.0.0.2", `"ftp://10.0.0.2": the endpoint must be a URL such as`},
		{"endpoint http://10.0.0.1 http://10.0.0.2:99999", `"http://10.0.0.2:99999": the port`},
		{"api_key K\nendpoint https://a.example http://b.example", "would send the API key in clear text"},
		{"endpoint https://a.example http://b.example", "http://b.example: http to several servers is for your own network"},
		{"endpoint https://a.example http://u:s3cret@b.example/x?key=s3cret", "http://b.example: http to several servers is for your own network"},
		{"endpoint https://a.example https://u:s3cret@b.example/x?key=s3cret", `"https://b.example/x": the endpoint must be a URL such as`},
		{"endpoint https://a.example https://b.example/%zz?key=s3cret", `"https://b.example/%zz": the endpoint must be a URL such as`},
		{"endpoint https://a.example u:s3cret@b.example", `"b.example": the endpoint must be a URL such as`},
		{"endpoint https://a.example https://u:s3cret?@b.example", `"https://b.example": the endpoint must be a URL such as`},
		{"api_key K\nendpoint https://10.0.0.1 https://10.0.0.2\nprotocol webrisk\nbudget 5", "protocol webrisk asks one server"},
		{"endpoint https://a.example\ntls /no/such/file", "no such file"},
		{"endpoint https://a.example\ntls /dev/null", "/dev/null is not a regular file"},
		{"endpoint https://a.example\ntls " + cert + " /dev/null", "/dev/null is not a regular file"},
		{"endpoint https://a.example\ntls " + text, "text: there is no certificate in PEM"},
		{"endpoint https://a.example\ntls " + empty, "empty is empty"},
		{"endpoint https://a.example\ntls " + large, "has more than 1048576 bytes"},
		{"endpoint http://10.0.0.1\ntls " + ca, "tls has no effect: no endpoint begins with https://"},
		{"endpoint https://a.example\ntls " + ca + " " + text, "failed to find any PEM data in key input"},
		{"endpoint https://a.example\ntls " + ca + " /no/such/file", "no such file"},
		{"endpoint http://10.0.0.1\ntls " + cert + " " + key, "tls has no effect: no endpoint begins with https://"},
		{"api_key K\ntls " + cert + " " + key, "tls is for a server of your own"},
		{"api_key K\ntls " + ca, "tls is for a server of your own"},
		{"api_key K\nendpoint https://safebrowsing.googleapis.com\ntls " + cert + " " + key, "tls is for a server of your own"},
	} {
		refused(t, "safebrowsing {\ndb off\n"+tc.text+"\n}", tc.want)
	}
	t.Setenv(KeyVariable, "SECRET")
	refused(t, "safebrowsing {\nendpoint http://sb.example.org\n}", "Testfile:2 - ", "in clear text")
}

// serverBlocks reads a Corefile. $TLS is the plugin tls with a certificate for 192.168.1.2, *.home.example and dns.home.example.
func serverBlocks(t *testing.T, corefile string) []caddyfile.ServerBlock {
	t.Helper()
	cert, key := testkit.CertificateAt(t, t.TempDir(), net.IPv4(192, 168, 1, 2), "*.home.example", "dns.home.example")
	none, _ := testkit.Certificate(t, t.TempDir())
	text := strings.NewReplacer("$TLS", "tls "+cert+" "+key, "$NAMELESS", "tls "+none+" "+key, "$KEY", "tls "+key+" "+key, "$US", "safebrowsing {\nendpoint http://127.0.0.1:1\n}").Replace(corefile)
	return corefileOf(t, text)
}

func TestEncryptedServerBlocksWithThePluginAreDesignated(t *testing.T) {
	for _, tc := range []struct {
		name, corefile string
		want           []string // alpn name:port path addresses
		trouble        string   // of the first
	}{
		{"no encryption", ".:53 {\n$US\n}", nil, ""},
		{"all transports, in the order of designation", "https://. {\n$TLS\n$US\n}\nhttps3://. {\n$TLS\n$US\n}\ntls://. {\n$TLS\n$US\n}\nquic://. {\n$TLS\n$US\n}", []string{
			"dot dns.home.example:853  []", "h2 dns.home.example:443 /dns-query{?dns} []", "doq dns.home.example:853  []", "h3 dns.home.example:443 /dns-query{?dns} []",
		}, ""},
		{"another port, bound", "tls://.:8853 {\nbind 192.168.1.2 fd00::2\n$TLS\n$US\n}", []string{"dot dns.home.example:8853  [192.168.1.2 fd00::2]"}, ""},
		{"bound to all", "tls://. {\nbind 0.0.0.0 eth0\n$TLS\n$US\n}", []string{"dot dns.home.example:853  []"}, ""},
		{"bound twice, but not to all", "tls://. {\nbind eth0 192.168.1.3 {\nexcept 192.168.1.9 192.168.1.3\n}\nbind 192.168.1.2\n$TLS\n$US\n}", []string{"dot dns.home.example:853  [192.168.1.2]"}, ""},
		{"bound to an interface and to loopback", "tls://. {\nbind eth0 127.0.0.1 ::1\n$TLS\n$US\n}", []string{"dot dns.home.example:853  []"}, ""},
		{"plain and encrypted in one block", ". tls://. {\n$TLS\n$US\n}", []string{"dot dns.home.example:853  []"}, ""},
		{"without the plugin", "tls://. {\n$TLS\n}", nil, ""},
		{"for some names", "tls://example.org {\n$TLS\n$US\n}", nil, ""},
		{"for some names of the stanza", "tls://. {\n$TLS\nsafebrowsing example.org {\nendpoint http://127.0.0.1:1\n}\n}", nil, ""},
		{"for all names of the stanza", "tls://. {\n$TLS\nsafebrowsing . {\nendpoint http://127.0.0.1:1\n}\n}", []string{"dot dns.home.example:853  []"}, ""},
		{"that block nothing", "tls://. {\n$TLS\nsafebrowsing {\nendpoint http://127.0.0.1:1\nmonitor\n}\n}", nil, ""},
		{"with a file of that name", "tls://. {\n$TLS\nsafebrowsing {\nblock monitor\nendpoint http://127.0.0.1:1\n}\n}", []string{"dot dns.home.example:853  []"}, ""},
		{"for some clients", "tls://. {\nview a {\nexpr true\n}\n$TLS\n$US\n}", nil, ""},
		{"for clients with a certificate", "tls://. {\n$TLS {\nclient_auth require_and_verify\n}\n$US\n}", nil, ""},
		{"for clients with and without a certificate", "tls://. {\n$TLS {\nclient_auth verify_if_given\n}\n$US\n}", []string{"dot dns.home.example:853  []"}, ""},
		{"gRPC, which clients do not look for", "grpc://. {\n$TLS\n$US\n}", nil, ""},
		{"ACME", "tls://. {\ntls {\nemail a@example.org\nacme *.acme.example dns.acme.example\n}\n$US\n}", []string{"dot dns.acme.example:853  []"}, ""},
		{"no name in the certificate", "tls://. {\n$NAMELESS\n$US\n}", nil, "tls://.:853: its certificate has no DNS name"},
		{"no certificate in the file", "tls://. {\n$KEY\n$US\n}", nil, "there is no certificate in it"},
		{"no tls", "tls://. {\n$US\n}", nil, "tls://.:853: the server block has no tls"},
	} {
		all := EncryptedOf(serverBlocks(t, tc.corefile))
		var got []string
		for _, d := range Designated(all) {
			got = append(got, fmt.Sprintf("%s %s:%d %s %s", d.ALPN, d.Name, d.Port, d.Path, d.Addresses))
		}
		testkit.Equal(t, tc.name, got, tc.want)
		warnings := strings.Join(new(Config).Undesignated(all), "\n")
		testkit.WantParts(t, warnings, tc.trouble)
		testkit.Equal(t, tc.name+": a warning", warnings != "", tc.trouble != "")
		testkit.Equal(t, tc.name+", with keep_clients off", (&Config{Block: Block{Keep: KeepNothing}}).Undesignated(all), nil)
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
		{".:53 {\nbind 127.0.0.1\nbind 192.168.1.2\n$US\n}", []netip.Addr{lan}, nil},
		{".:53 {\n$US\n}", []netip.Addr{lan, other}, []netip.Addr{other}},
		{".:53 {\nbind 192.168.2.2\n}", nil, nil}, // without the plugin
		{".:1053 {\n$US\n}", nil, nil},            // clients of the network ask port 53
	} {
		blocks := serverBlocks(t, tc.plain+"\ntls://. {\n$TLS\n$US\n}")
		asked, e := PlainAddresses(blocks, machine), EncryptedOf(blocks)[0]
		testkit.Equal(t, tc.plain, asked, tc.want)
		testkit.Equal(t, tc.plain, e.Lacks(asked), tc.lacks)
	}
}

// net/http would go without a proxy and say nothing.
func TestAProxyThatCannotBeOneIsSaid(t *testing.T) {
	for value, says := range map[string]bool{
		"":                                false,
		"http://proxy.example:3128":       false,
		"proxy.example:3128":              false,
		"socks5://user:pw@127.0.0.1":      false,
		"http://user:secret@proxy:%zz":    true,
		"http://":                         true,
		"ftp://user:secret@proxy.example": true,
	} {
		for _, name := range proxyVariables {
			t.Setenv(name, "")
		}
		t.Setenv("HTTPS_PROXY", value)
		for _, text := range []string{"api_key K", "block https://lists.example.org/hosts"} {
			c, err := stanza(t, "safebrowsing {\ndb /nonexistent/db\n"+text+"\n}")
			testkit.Must(t, err)
			got := strings.Join(c.Warnings, "\n")
			if strings.Contains(got, "$HTTPS_PROXY is not the URL of a proxy") != says || strings.Contains(got, "secret") {
				t.Errorf("%q with %s: got %q", value, text, got)
			}
		}
		c, err := stanza(t, "safebrowsing {\n"+listing(t)+"\n}") // asks nobody
		testkit.Must(t, err)
		testkit.WantNone(t, strings.Join(c.Warnings, ""), "PROXY")
	}
}

func TestListsByURL(t *testing.T) {
	t.Setenv(KeyVariable, "")
	const list = "https://lists.example.org/a.txt"
	db := t.TempDir()
	want := func(allow bool, refresh time.Duration, maxBytes int64, urls ...string) (all []OwnFile) {
		for _, url := range urls {
			all = append(all, OwnFile{Allow: allow, Fetch: ownlist.URLConfig{URL: url, DB: db, Resolvers: "192.0.2.1:53", Refresh: refresh, MaxBytes: maxBytes}})
		}
		return all
	}
	for line, lists := range map[string][]OwnFile{
		"block " + list: want(false, 24*time.Hour, 256<<20, list),
		"block refresh 1h " + list + " max_bytes 10MB":              want(false, time.Hour, 10_000_000, list),
		"block " + list + " " + list + "?b max_bytes 1GiB":          want(false, 24*time.Hour, 1<<30, list, list+"?b"),
		"block " + list + "?of=https://a.example,https://b.example": want(false, 24*time.Hour, 256<<20, list+"?of=https://a.example,https://b.example"),
		"allow " + list + " refresh 5m host.example":                want(true, 5*time.Minute, 256<<20, list),
	} {
		c, err := stanza(t, fmt.Sprintf("safebrowsing {\n%s\n%s\ndb %s\nresolver 192.0.2.1\n}", line, listing(t), db))
		if err != nil || len(c.Own) == 0 || !slices.Equal(c.Own[:len(c.Own)-1], lists) || len(c.Warnings) > 0 || c.Online {
			t.Errorf("%s: Expected %+v, got %+v, %q, %v", line, lists, c.Own, c.Warnings, err)
		}
	}
}

// Which service confirms threats follows from the protocol. Google's words, which name Google, are for Google's servers only.
func TestServiceAndGooglesWordsFollowFromProtocolAndServer(t *testing.T) {
	const (
		onSafeBrowsing = "https://developers.google.com/safe-browsing/v4/advisory"
		onWebRisk      = "https://cloud.google.com/web-risk/docs/advisory"
		webRisk        = "protocol webrisk\nbudget unlimited\n"
	)
	cert, key := testkit.Certificate(t, t.TempDir())
	ours := "\ntls " + cert + " " + key // that they take only here
	for _, tc := range []struct{ text, address, service, advisory string }{
		{"", "https://safebrowsing.googleapis.com", "Safe Browsing", onSafeBrowsing},
		{"endpoint http://127.0.0.1:1", "http://127.0.0.1:1", "Safe Browsing", ""},
		{webRisk, "https://webrisk.googleapis.com", "Web Risk", onWebRisk},
		{webRisk + "endpoint https://webrisk.googleapis.com/", "https://webrisk.googleapis.com", "Web Risk", onWebRisk},
		{"endpoint https://safebrowsing.mtls.googleapis.com" + ours, "https://safebrowsing.mtls.googleapis.com", "Safe Browsing", onSafeBrowsing},
		{webRisk + "endpoint https://WebRisk.mtls.googleapis.com" + ours, "https://WebRisk.mtls.googleapis.com", "Web Risk", onWebRisk},
		{webRisk + "endpoint http://127.0.0.1:1", "http://127.0.0.1:1", "Web Risk", ""},
	} {
		c, err := stanza(t, "safebrowsing {\napi_key K\ndb off\n"+tc.text+"\n}")
		testkit.Must(t, err)
		testkit.Equal(t, tc.text, []string{settings(c).Address(), c.Reply.Service, settings(c).Dialect().ProviderAt(c.Endpoint).Advisory}, []string{tc.address, tc.service, tc.advisory})
		testkit.Equal(t, tc.text, settings(c).Google(), tc.advisory != "")
	}
}
