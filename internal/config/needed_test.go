package config

import (
	"slices"
	"strings"
	"testing"

	"github.com/coredns/caddy/caddyfile"

	"github.com/coredns-safebrowsing/safebrowsing/internal/ownlist"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

func TestForwardTargetsAreThoseGivenByName(t *testing.T) {
	blocks, err := caddyfile.Parse("Corefile", strings.NewReader(`. {
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
`), nil)
	if err != nil {
		t.Fatal(err)
	}
	got := ForwardTargets(blocks)
	if want := []string{"dns.example.org", "doh.example.org", "second.example.org", "grpc.example.org"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestNeededNames(t *testing.T) {
	var c Config
	c.Online, c.Endpoint = true, "https://relay.example.org:8099 http://[2001:db8::1]:8099"
	c.Own = []OwnFile{{Path: "own.txt"}, {Fetch: ownlist.URLConfig{URL: "https://Lists.example.org/new.txt"}}}
	var other Config
	other.Online, other.Endpoint = true, "https://other.example.org"
	n := NeededBy([]*Config{&c, &other}, []string{"DNS.example.org"})
	for name, want := range map[string]string{
		"time.google.com.": "a time server", "TIME.windows.com.": "a time server",
		"pool.ntp.org.": "a time server", "2.debian.pool.ntp.org.": "a time server",
		"xpool.ntp.org.": "", "ntp.org.": "", "www.google.com.": "", "a.time.google.com.": "",
		"relay.example.org.": "the host of the endpoint", "a.relay.example.org.": "",
		"lists.example.org.": "the host of a list by URL", "other.example.org.": "the host of the endpoint",
		"dns.example.org.": "a server that this server forwards queries to", "example.org.": "",
	} {
		if got := n.What(lookup.FromQname(name)); want == "" && got != "" || !strings.HasPrefix(got, want) {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	c.Online = false
	if got := NeededBy([]*Config{&c}, nil).What(lookup.FromQname("relay.example.org.")); got != "" {
		t.Errorf("without Safe Browsing: %q", got)
	}
}
