package block

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/config"
	"github.com/coredns-safebrowsing/safebrowsing/internal/engine"
	"github.com/coredns-safebrowsing/safebrowsing/internal/ownlist"
	"github.com/coredns-safebrowsing/safebrowsing/internal/prefixset"
	"github.com/coredns-safebrowsing/safebrowsing/internal/say"
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
			testkit.Equal(t, "status says that clients are led away", b.standing().Led, tc.block.Keep == config.KeepNothing)
			says := func(part string) bool { return strings.Contains(b.Keeps(), part) }
			told := []bool{says("monitor lets pass"), says("resolver.arpa is not forwarded")}
			testkit.Equal(t, "monitor and resolver.arpa are in "+b.Keeps(), told, []bool{tc.block.Monitor, tc.ddr})
			if !tc.block.Monitor && tc.block.Keep == config.KeepCanaries {
				testkit.Equal(t, "the canary is in "+b.Keeps(), says("use-application-dns.net"), tc.canary)
			}
			verdict := map[bool]string{true: status.VerdictBlocked, false: status.VerdictPasses}[tc.canary]
			if a := b.Why(lookup.FromQname(canary)); a.Verdict != verdict && a.Verdict != status.VerdictUnknown || (a.List == "keep_clients") != tc.canary {
				t.Errorf("Expected %s of a canary, got %+v", verdict, a)
			}
			a := b.Why(lookup.FromQname(ddr))
			got := []bool{a.Verdict == status.VerdictBlocked, strings.Contains(a.Note, "not forwarded")}
			testkit.Equal(t, "resolver.arpa is blocked, answered here", got, []bool{false, tc.ddr})
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
			if x := SignOf(qname); x != nil && x.kept != nil {
				got = x.name + " " + x.kept.Reason
			} else if x != nil {
				got = x.name
			}
			testkit.Equal(t, qname, got, want)
			testkit.Equal(t, "allocations for "+qname, testing.AllocsPerRun(10, func() { SignOf(qname) }), 0)
		}
	}
	testkit.Between(t, "names", len(telling.all), 80, 255)
	for _, x := range telling.all {
		got := SignOf(x.name + ".")
		testkit.Equal(t, x.name+" is overlooked", got == nil || got.name != x.name, false)
	}
}

// The table is a list that block takes, and each name in it has its source.
func TestTheListOfResolversIsAListLikeAnyOther(t *testing.T) {
	b := opened(t, "", config.Block{Own: []config.OwnFile{{Path: "resolvers.txt"}}})
	for _, s := range b.OwnLists() {
		testkit.Equal(t, fmt.Sprintf("bad lines, as %+v", s.Bad), s.Bad.Count+s.NotSupported(), 0)
		testkit.Between(t, "entries", s.InForce(), 55, 255)
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
			testkit.Equal(t, "x."+name+" is blocked", blocks(b, "x."+name+"."), true)
		}
	}
	for _, name := range tellsNothing {
		testkit.Between(t, "bytes of "+name, len(name), shortest, 255)
	}
}

// neededNames are what a server needs in these tests.
var neededNames = Needed{
	"lists.example.net": "the host of a list by URL", "sb.example.net": "the host of the endpoint", "time.example.net": "a time server",
}

// fetching returns a server block with a list by URL and other lists, open, with the list in force.
func fetching(t *testing.T, list string, wide bool, hosts []ownlist.HostEntry, others ...config.OwnFile) *Block {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, list) }))
	t.Cleanup(server.Close)
	own := append([]config.OwnFile{{Fetch: ownlist.URLConfig{URL: server.URL + "/l.txt", DB: t.TempDir(), Wide: wide}}}, others...)
	p := New(config.Config{Block: config.Block{Zones: []string{"."}, Hosts: hosts, Own: own}})
	p.Need(neededNames)
	testkit.Must(t, p.open(true))
	t.Cleanup(p.End)
	testkit.Until(t, "the list in force", func() bool {
		return slices.ContainsFunc(p.OwnLists(), func(s ownlist.State) bool { return s.Fetched && s.InForce() > 0 })
	})
	return p
}

func untilLogged(t *testing.T, lines *testkit.Lines, want string) {
	t.Helper()
	testkit.Until(t, "a line with "+want, func() bool { return len(lines.About(want)) > 0 })
}

func blocks(p *Block, name string) bool {
	return p.Check(lookup.FromQname(name)).Verdict == lookup.Unsafe
}

// A mistake in a list that others write must not lock out its own repair. A file of the operator blocks what it says.
func TestAListByURLBlocksNoNameThatTheServerNeeds(t *testing.T) {
	lines := testkit.Capture(t)
	path := testkit.Write(t, t.TempDir(), "own.txt", "# mine\ntime.example.net\n")
	p := fetching(t, "bad.example.org\n||example.net^\n", false, nil, config.OwnFile{Path: path})
	for name, want := range map[string]bool{
		"www.example.net.": true, "example.net.": true, "a.lists.example.net.": true, "lists.example.net.": false, "SB.example.net.": false,
		"time.example.net.": true,
	} {
		testkit.Equal(t, name+" is blocked", blocks(p, name), want)
	}
	e := p.Explain(lookup.FromQname("sb.example.net."), "sb.example.net.")
	note := "never blocked by Safe Browsing or a list by URL: it is the host of the endpoint"
	testkit.Equal(t, "explained", []string{e.List, e.Note}, []string{neededList, note})
	untilLogged(t, lines, "/l.txt: 3 names that it has pass, because this server needs them: "+
		"lists.example.net (line 2), the host of a list by URL; sb.example.net (line 2), the host of the endpoint; "+
		"time.example.net (line 2), a time server; a file of block blocks them all the same")
	testkit.WantParts(t, lines.Only(t, "List "+path+": it blocks"), "[WARNING]",
		"it blocks 1 name that this server needs: time.example.net (line 2), a time server", "name them after allow")
}

// What "safebrowsing block" has written into the folder of the server is the operator's, too.
func TestAListOfTheServerBlocksWhatItSaysWithAWarning(t *testing.T) {
	lines := testkit.Capture(t)
	db := t.TempDir()
	b := opened(t, db, config.Block{})
	b.Need(neededNames)
	for i, name := range []string{"sb.example.net.", "lists.example.net."} { // into a new list, then into one that is read again
		_, err := (&Process{blocks: []*Block{b}}).Change(t.Context(), Change{Host: lookup.FromQname(name)})
		testkit.Must(t, err)
		untilLogged(t, lines, "block.txt: it blocks "+say.Count(i+1, "name", "names")+" that this server needs: ")
	}
	again := New(config.Config{Block: b.Config.Block, Engine: config.Engine{DB: db}}) // as in a reload
	again.Need(neededNames)
	testkit.Must(t, again.open(true))
	defer again.End()
	lines.Only(t, "block.txt: it blocks 2 names")
}

func TestWhatTheOperatorAllowsIsNotCalledBlocked(t *testing.T) {
	p := fetching(t, "||example.net^\n", false, hosts("lists.example.net", "sb.example.net", "time.example.net"))
	testkit.Equal(t, "needed names", p.BlocksNeeded(p.Config.Own[0].Name()).String(), "")
}

// One line of a list must not end DNS.
func TestAListByURLCoversNoWholeSuffixUnlessTheCorefileSaysSo(t *testing.T) {
	const list = "bad.example.org\n* CNAME .\n||com^\n*.co.uk\n0.0.0.0 net\n"
	for _, wide := range []bool{false, true} {
		lines := testkit.Capture(t)
		p := fetching(t, list, wide, nil)
		for name, want := range map[string]bool{"bad.example.org.": true, "net.": true, "www.example.com.": wide, "a.example.co.uk.": wide, "any.example.": wide} {
			testkit.Equal(t, fmt.Sprintf("wide %v, %s is blocked", wide, name), blocks(p, name), want)
		}
		want := "3 lines are left out, which a list by URL may not have unless the word wide follows it in the Corefile: line 2 blocks every name; line 3 blocks the whole top-level domain com; line 4 blocks the whole public suffix co.uk"
		if wide {
			want = "line 2 blocks every name; line 3 blocks the whole top-level domain com"
		}
		untilLogged(t, lines, want)
	}
}

// threats is a server to which every name that it is asked about is a threat.
type threats struct{ names []string }

func (s threats) Search(context.Context, []lookup.Prefix) (lookup.Answer, error) {
	answer := lookup.Answer{TTL: time.Hour}
	for _, name := range s.names {
		answer.Threats = append(answer.Threats, lookup.ThreatHash{
			Hash: lookup.HashExpression(name + "/"), Threats: lookup.Threats(0).With(lookup.Malware), TTL: time.Hour,
		})
	}
	return answer, nil
}

// checkerOf returns a checker whose list holds names, and which asks a server.
func checkerOf(t *testing.T, server lookup.Searcher, names ...string) *lookup.Checker {
	t.Helper()
	var entries []string
	for _, name := range names {
		entries = append(entries, string(lookup.HashExpression(name+"/").Prefix(4)))
	}
	slices.Sort(entries)
	builder := prefixset.NewBuilder(len(names))
	for _, entry := range entries {
		testkit.Must(t, builder.Add([]byte(entry), len(entry)))
	}
	database := new(lookup.Database)
	database.Publish([]lookup.List{{Name: "mw-4b", Set: builder.Set()}})
	checker, err := lookup.NewChecker(lookup.Config{Database: database, Searcher: server})
	testkit.Must(t, err)
	t.Cleanup(checker.Close)
	return checker
}

// listing returns a block for which the server confirms that names are threats.
func listing(t *testing.T, cfg config.Block, names ...string) *Block {
	t.Helper()
	cfg.Zones = []string{"."}
	b := New(config.Config{Block: cfg})
	b.Use(engine.ServiceForTests(checkerOf(t, threats{names}, names...)))
	return b
}

// Whoever asks a block gets a decision that a needed name may have: no caller can forget it.
func TestNoWayThroughABlockEndsWithANeededNameUnsafe(t *testing.T) {
	const needed, other = "sb.example.net", "other.example.net"
	for _, inspect := range []bool{false, true} {
		lines := testkit.Capture(t)
		checked := func(b *Block, h lookup.Host) lookup.Decision { return b.Check(h).Decision }
		explained := func(b *Block, h lookup.Host) lookup.Decision { return b.Explain(h, h.String()+".").Decision }
		asked := func(b *Block, h lookup.Host) lookup.Decision { return b.Ask(t.Context(), h, h.String()+".").Decision }
		b := listing(t, config.Block{Inspect: inspect}, needed, other)
		b.Need(neededNames)
		for _, way := range []struct {
			name string
			do   func(b *Block, h lookup.Host) lookup.Decision
		}{
			{"Limited", func(b *Block, h lookup.Host) lookup.Decision { return b.Check(h).Suspect.Limited() }},
			{"Explain of a suspect", explained},
			{"Ask", asked},
			{"Confirm", func(b *Block, h lookup.Host) lookup.Decision {
				b = listing(t, b.Config.Block, needed, other)
				b.Need(neededNames)
				return b.Check(h).Suspect.Confirm(netip.Addr{}, func() error { return nil }).Wait(t.Context())
			}},
			{"Check of a cached answer", checked},
			{"Explain of a cached answer", explained},
			{"Ask of a cached answer", asked},
		} {
			d, others := way.do(b, lookup.FromQname(needed+".")), way.do(b, lookup.FromQname(other+"."))
			testkit.Equal(t, way.name, []any{d.Verdict, d.List}, []any{lookup.Safe, neededList})
			if way.name != "Limited" && way.name != "Explain of a suspect" {
				testkit.Equal(t, way.name+" of a name that is not needed", others.Verdict, lookup.Unsafe)
			}
		}
		const line = "sb.example.net. passes, although Safe Browsing lists it (malware, list mw-4b): it is the host of the endpoint"
		testkit.Equal(t, "lines, one of each block", len(lines.About(line)), 2)
	}
}

func TestNeededNames(t *testing.T) {
	c, other := config.Config{Online: true}, config.Config{Online: true, Engine: config.Engine{Endpoint: "https://other.example.org"}}
	c.Endpoint = "https://relay.example.org:8099 http://[2001:db8::1]:8099"
	c.Own = []config.OwnFile{{Path: "own.txt"}, {Fetch: ownlist.URLConfig{URL: "https://Lists.example.org/new.txt"}}}
	n := NeededBy([]*Block{New(c), New(other)}, []string{"DNS.example.org"})
	for name, want := range map[string]string{
		"time.google.com.": "a time server", "TIME.windows.com.": "a time server",
		"pool.ntp.org.": "a time server", "2.debian.pool.ntp.org.": "a time server",
		"xpool.ntp.org.": "", "ntp.org.": "", "www.google.com.": "", "a.time.google.com.": "",
		"relay.example.org.": "the host of the endpoint", "a.relay.example.org.": "",
		"lists.example.org.": "the host of a list by URL", "other.example.org.": "the host of the endpoint",
		"dns.example.org.": "a server that this server forwards queries to", "example.org.": "",
	} {
		got := n.What(lookup.FromQname(name))
		testkit.WantStart(t, got, want)
		testkit.Equal(t, name+" is needed", got != "", want != "")
	}
	c.Online = false
	testkit.Equal(t, "without Safe Browsing", NeededBy([]*Block{New(c)}, nil).What(lookup.FromQname("relay.example.org.")), "")
}

// The targets in the answer for a needed name are not checked, with or without Safe Browsing.
func TestANeededNameIsKnownAsOneWithoutSafeBrowsing(t *testing.T) {
	p := fetching(t, "||cdn.example.com^\n", false, nil)
	p.Config.Inspect = true
	c := p.Check(lookup.FromQname("lists.example.net."))
	testkit.Equal(t, "needed, and the verdict", []any{c.Needed != "", c.Verdict}, []any{true, lookup.Safe})
}
