package block

import (
	"strings"
	"testing"

	"github.com/coredns-safebrowsing/safebrowsing/internal/config"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

func TestNamesOfResolversAreTold(t *testing.T) {
	for qname, want := range map[string]string{
		"dns.google.":                    "dns.google",
		"DNS.gOOGLE.":                    "dns.google", // 0x20
		"_dns.dns.google.":               "dns.google",
		"abc123.dns.nextdns.io.":         "dns.nextdns.io",
		"mozilla.cloudflare-dns.com.":    "cloudflare-dns.com",
		"one.one.one.one.":               "one.one.one.one",
		"doh.pub.":                       "doh.pub", // as short as can be
		"x.doh.pub.":                     "doh.pub",
		"_dns.resolver.arpa.":            "resolver.arpa",
		"www.google.com.":                "www.google.com",
		"connectivitycheck.gstatic.com.": "connectivitycheck.gstatic.com",
		"mail.google.com.":               "",
		"x.www.google.com.":              "",
		"notdns.google.":                 "",
		"google.":                        "",
		"nextdns.io.":                    "",
		"dns.google.example.com.":        "",
		"oh.pub.":                        "",
		"one.one.":                       "",
		".":                              "",
		`dns\.google.`:                   "", // one label
		`x\.dns.google.`:                 "",
		"":                               "",
		"www.example.com.":               "",
	} {
		got := ""
		if x := SignOf(qname); x != nil {
			got = x.name
		}
		if got != want {
			t.Errorf("%s: got %q, want %q", qname, got, want)
		}
		if n := testing.AllocsPerRun(10, func() { SignOf(qname) }); n != 0 {
			t.Errorf("%s: %v allocations", qname, n)
		}
	}
	if n := len(telling.all); n < 80 || n > 255 {
		t.Errorf("There are %d names", n)
	}
	for _, x := range telling.all {
		if got := SignOf(x.name + "."); got == nil || got.name != x.name {
			t.Errorf("%s is overlooked", x.name)
		}
	}
}

// The table is a list that block takes, and each name in it has its source.
func TestTheListOfResolversIsAListLikeAnyOther(t *testing.T) {
	b, err := opened(&config.Block{Zones: []string{"."}, Own: []config.OwnFile{{Path: "resolvers.txt"}}})
	if err != nil {
		t.Fatal(err)
	}
	defer b.End()
	for _, s := range b.OwnLists() {
		if s.Bad.Count+s.NotSupported() > 0 || s.InForce() < 55 {
			t.Errorf("%d entries, bad %+v", s.InForce(), s.Bad)
		}
	}
	sourced, seen := false, make(map[string]bool)
	for line := range strings.Lines(resolversList) {
		switch line = strings.TrimSpace(line); {
		case line == "":
			sourced = false
		case strings.HasPrefix(line, "#"):
			sourced = sourced || strings.Contains(line, "https://")
		default:
			name := strings.TrimSuffix(strings.TrimPrefix(line, "||"), "^")
			if line != "||"+name+"^" || !sourced || seen[name] || len(name) < shortest || name != strings.ToLower(name) {
				t.Errorf("%s: expected ||NAME^ once, below a comment with its source, in lower case, of %d bytes at least", line, shortest)
			}
			seen[name] = true
			if e := b.Explain(lookup.FromQname("x."+name+"."), "x."+name+"."); e.Verdict != lookup.Unsafe {
				t.Errorf("x.%s is not blocked: %+v", name, e)
			}
		}
	}
	for _, name := range tellsNothing {
		if len(name) < shortest {
			t.Errorf("%s is too short", name)
		}
	}
}

func TestNamesThatAreKeptAreSigns(t *testing.T) {
	for _, tc := range []struct{ qname, reason string }{
		{"resolver.arpa.", "resolver_arpa"},
		{"_dns.resolver.arpa.", "resolver_arpa"},
		{"_DNS.Resolver.ARPA.", "resolver_arpa"},
		{"a.b._dns.resolver.arpa.", "resolver_arpa"},
		{"myresolver.arpa.", ""},
		{`my\.resolver.arpa.`, ""}, // a dot within a label
		{`my\\.resolver.arpa.`, "resolver_arpa"},
		{"arpa.", ""},
		{"home.arpa.", ""},
		{"use-application-dns.net.", "firefox"},
		{"USE-application-dns.NET.", "firefox"},
		{"www.use-application-dns.net.", ""},
		{"use-application-dnt.net.", ""},
		{"mask.icloud.com.", "private_relay"},
		{"mask-h2.icloud.com.", "private_relay"},
		{"icloud.com.", ""},
		{"dns-tunnel-check.googlezip.net.", "chrome_prefetch"},
		{"googlezip.net.", ""},
		{".", ""},
		{"", ""},
	} {
		reason := ""
		if x := SignOf(tc.qname); x != nil && x.kept != nil {
			reason = x.kept.Reason
		}
		if reason != tc.reason {
			t.Errorf("%s: Expected %q, got %q", tc.qname, tc.reason, reason)
		}
	}
}
