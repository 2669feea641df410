package config

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/coredns/caddy/caddyfile"
)

func corefileOf(t *testing.T, text string) []caddyfile.ServerBlock {
	t.Helper()
	blocks, err := caddyfile.Parse("Corefile", strings.NewReader(text), nil)
	if err != nil {
		t.Fatal(err)
	}
	return blocks
}

// CoreDNS cannot resolve the names of servers through itself before it answers.
func TestAResolverThatIsThisCorefileIsSaid(t *testing.T) {
	machine := []netip.Addr{netip.MustParseAddr("192.0.2.1")}
	for _, tc := range []struct {
		name, stanza, listens, system string
		warns                         bool
	}{
		{"resolver is this server", "api_key K\nresolver 127.0.0.1", ".", "192.0.2.53:53", true},
		{"by an address of the machine", "api_key K\nresolver 192.0.2.1:1053", ".:1053", "192.0.2.53:53", true},
		{"another port", "api_key K\nresolver 127.0.0.1:5353", ".", "192.0.2.53:53", false},
		{"another machine", "api_key K\nresolver 192.0.2.53", ".", "127.0.0.1:53", false},
		{"the system's", "api_key K", ".", "127.0.0.1:53", true},
		{"the system's, of this machine, that is another program", "api_key K", ".:1053", "127.0.0.1:53", false},
		{"a list by URL", "block https://lists.example.org/hosts", ".", "127.0.0.1:53", true},
		{"an endpoint without a name", "endpoint http://192.0.2.7:8099", ".", "127.0.0.1:53", false},
		{"own lists only", listing(t), ".", "127.0.0.1:53", false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			cfg, err := stanza(t, "safebrowsing {\ndb off\n"+tc.stanza+"\n}")
			if err != nil {
				t.Fatal(err)
			}
			got := cfg.LoopWarning(corefileOf(t, tc.listens+" {\nwhoami\n}\n"), []string{tc.system}, machine)
			if warns := strings.Contains(got, "where this Corefile listens"); warns != tc.warns || !warns && got != "" {
				t.Errorf("Expected a warning: %v, got %q", tc.warns, got)
			}
		})
	}
}

// Of the server blocks for one zone CoreDNS asks the first one without a view.
func TestAViewThatNoClientGetsToIsSaid(t *testing.T) {
	const (
		all  = "example.org . {\nsafebrowsing {\nblock a.txt\n}\n}\n"
		kids = ". {\nview kids {\nexpr true\n}\nsafebrowsing {\nblock b.txt\n}\n}\n"
	)
	const want = "Corefile:7: view kids never matches for the zone .: a server block without a view is before it and answers all clients; move that block to the end"
	for _, tc := range []struct{ name, text, want string }{
		{"after the block for all", all + kids, want},
		{"before it", kids + all, ""},
		{"another zone", "example.net {\nwhoami\n}\n" + kids, ""},
		{"another port", ".:1053 {\nwhoami\n}\n" + kids, ""},
		{"another address", ". {\nbind 127.0.0.1\nwhoami\n}\n" + kids, ""},
		{"after another view", strings.ReplaceAll(kids, "kids", "staff") + kids, ""},
		{"without the plugin", all + ". {\nview kids {\nexpr true\n}\nwhoami\n}\n", ""},
	} {
		if got := strings.Join(HiddenViews("Corefile", corefileOf(t, tc.text)), "\n"); got != tc.want {
			t.Errorf("%s: expected %q, got %q", tc.name, tc.want, got)
		}
	}
}

func TestForwardTargetsAreThoseGivenByName(t *testing.T) {
	got := ForwardTargets(corefileOf(t, `. {
    forward . tls://dns.example.org:853 9.9.9.9%dns.quad9.net https://doh.example.org [2001:db8::1]:53 {
        tls_servername name.example.org
        except lan.example.org
        resolver 192.0.2.1
    }
    forward zone.example.org second.example.org:53 /etc/resolv.conf
}
example.net {
    grpc . grpc.example.org:443
    hosts not.example.org
}
`))
	if want := []string{"dns.example.org", "doh.example.org", "second.example.org", "grpc.example.org"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
