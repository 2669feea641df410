package block

import (
	"strings"
	"testing"

	"github.com/coredns-safebrowsing/safebrowsing/internal/config"
	"github.com/coredns-safebrowsing/safebrowsing/internal/ownlist"
	"github.com/coredns-safebrowsing/safebrowsing/internal/status"
	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

// The operator's words win.
func TestWhatIsKeptByTheStanza(t *testing.T) {
	const ddr, canary = "_dns.resolver.arpa.", "use-application-dns.net."
	list := func(text string, allow bool) []config.OwnFile {
		return []config.OwnFile{{Path: testkit.Write(t, t.TempDir(), "list.txt", text), Allow: allow}}
	}
	excepts := list("@@||use-application-dns.net^\nx.example\n", false)
	for name, tc := range map[string]struct {
		block       config.Block
		ddr, canary bool
	}{
		"no word":                         {config.Block{}, true, false},
		"keep_clients":                    {config.Block{Keep: config.KeepCanaries}, true, true},
		"keep_clients off":                {config.Block{Keep: config.KeepNothing}, false, false},
		"monitor":                         {config.Block{Keep: config.KeepCanaries, Monitor: true}, true, false},
		"except":                          {config.Block{Keep: config.KeepCanaries, Except: []string{"arpa.", "net."}}, false, false},
		"another zone":                    {config.Block{Keep: config.KeepCanaries, Zones: []string{"example.org."}}, false, false},
		"allow the zone":                  {config.Block{Keep: config.KeepCanaries, Hosts: hosts("resolver.arpa")}, false, true},
		"allow the canary":                {config.Block{Keep: config.KeepCanaries, Hosts: hosts("use-application-dns.net")}, true, false},
		"allow something else":            {config.Block{Keep: config.KeepCanaries, Hosts: hosts("example.net")}, true, true},
		"a file of allow":                 {config.Block{Keep: config.KeepCanaries, Own: list("use-application-dns.net\n", true)}, true, false},
		"an exception in a list of block": {config.Block{Keep: config.KeepCanaries, Own: excepts}, true, true},
		"the same below a zone of allow":  {config.Block{Keep: config.KeepCanaries, Own: excepts, Hosts: hosts("net")}, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			b := opened(t, "", tc.block)
			for qname, want := range map[string]bool{ddr: tc.ddr, canary: tc.canary, strings.ToUpper(canary): tc.canary, "www.example.net.": false} {
				testkit.Equal(t, qname+" is kept", b.Kept(SignOf(qname), qname) != nil, want)
			}
			if led, lets := b.standing().Led, strings.Contains(b.Keeps(), "monitor lets pass"); led != (tc.block.Keep == config.KeepNothing) || lets != tc.block.Monitor {
				t.Errorf("Expected the log to say what is kept, got %q; status says that clients are led away: %t", b.Keeps(), led)
			}
			if says := b.Keeps(); strings.Contains(says, "resolver.arpa is not forwarded") != tc.ddr || !tc.block.Monitor && tc.block.Keep == config.KeepCanaries && strings.Contains(says, "use-application-dns.net") != tc.canary {
				t.Errorf("Expected the log to name what is answered here only, got %q", says)
			}
			verdict := map[bool]string{true: status.VerdictBlocked, false: status.VerdictPasses}[tc.canary]
			if a := b.Why(lookup.FromQname(canary)); a.Verdict != verdict && a.Verdict != status.VerdictUnknown || (a.List == "keep_clients") != tc.canary {
				t.Errorf("Expected %s of a canary, got %+v", verdict, a)
			}
			if a := b.Why(lookup.FromQname(ddr)); a.Verdict == status.VerdictBlocked || strings.Contains(a.Note, "not forwarded") != tc.ddr {
				t.Errorf("Expected that resolver.arpa is answered here: %v, got %+v", tc.ddr, a)
			}
		})
	}
}

func hosts(names ...string) (all []ownlist.HostEntry) {
	for _, name := range names {
		all = append(all, ownlist.HostEntry{Host: lookup.FromQname(name + ".")})
	}
	return all
}

func TestNamesOfResolversAndKeptNamesAreSigns(t *testing.T) {
	for want, names := range map[string][]string{ // the name of the sign, and by what it is kept
		"dns.google":                                     {"dns.google.", "DNS.gOOGLE.", "_dns.dns.google."},
		"dns.nextdns.io":                                 {"abc123.dns.nextdns.io."},
		"cloudflare-dns.com":                             {"mozilla.cloudflare-dns.com."},
		"one.one.one.one":                                {"one.one.one.one."},
		"doh.pub":                                        {"doh.pub.", "x.doh.pub."}, // as short as can be
		"www.google.com":                                 {"www.google.com."},
		"connectivitycheck.gstatic.com":                  {"connectivitycheck.gstatic.com."},
		"resolver.arpa resolver_arpa":                    {"resolver.arpa.", "_DNS.Resolver.ARPA.", "a.b._dns.resolver.arpa.", `my\\.resolver.arpa.`},
		"use-application-dns.net firefox":                {"use-application-dns.net.", "USE-application-dns.NET."},
		"mask.icloud.com private_relay":                  {"mask.icloud.com."},
		"mask-h2.icloud.com private_relay":               {"mask-h2.icloud.com."},
		"dns-tunnel-check.googlezip.net chrome_prefetch": {"dns-tunnel-check.googlezip.net."},
		"": {
			"", ".", "mail.google.com.", "x.www.google.com.", "notdns.google.", "google.", "nextdns.io.", "dns.google.example.com.", "oh.pub.", "one.one.",
			`dns\.google.`, `x\.dns.google.`, `my\.resolver.arpa.`, // a dot within a label
			"myresolver.arpa.", "home.arpa.", "www.use-application-dns.net.", "use-application-dnt.net.", "icloud.com.", "googlezip.net.",
		},
	} {
		for _, qname := range names {
			got := ""
			if x := SignOf(qname); x != nil {
				if got = x.name; x.kept != nil {
					got += " " + x.kept.Reason
				}
			}
			testkit.Equal(t, qname, got, want)
			testkit.Equal(t, "allocations for "+qname, testing.AllocsPerRun(10, func() { SignOf(qname) }), 0)
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
	b := opened(t, "", config.Block{Own: []config.OwnFile{{Path: "resolvers.txt"}}})
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
