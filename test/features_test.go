package test

import (
	"strings"
	"testing"
	"time"

	_ "github.com/coredns/coredns/plugin/dnstap"

	"github.com/miekg/dns"

	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol/pb/sbv5"
	"github.com/coredns-safebrowsing/safebrowsing/internal/protocoltest"
	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
)

func TestMonitorDecidesCountsAndLogsButBlocksNothing(t *testing.T) {
	lines := testkit.Capture(t)
	w := newWorld(t)
	w.threaten("evil.example.com/", "evil.example.net/")
	own := writeFile(t, t.TempDir(), "own.txt", "blocked.example.com\n")
	enforcing := strings.Replace(w.corefile(), ".:0 {", "example.net:0 {", 1)
	w.start(w.corefile("monitor", "unsure servfail", "block "+own) + enforcing)
	w.updated(1)
	counted := testkit.Metric(t, "verdicts_total", "verdict", "unsafe")
	blocked := testkit.Metric(t, "blocked_total", "list", "se-4b")
	w.wantPassed("www.evil.example.com.", dns.TypeA)
	w.wantPassed("www.evil.example.com.", dns.TypeA) // from the cache of verdicts this time
	w.wantPassed("blocked.example.com.", dns.TypeA)
	w.wantBlocked("evil.example.net.", dns.TypeA, phishing) // another block enforces, with the same engine
	testkit.Until(w.t, "the counters", func() bool { return testkit.Metric(t, "verdicts_total", "verdict", "unsafe")-counted == 4 })
	testkit.Equal(t, "names counted as blocked", testkit.Metric(t, "blocked_total", "list", "se-4b")-blocked, 1)
	would := func() []string {
		return lines.About("Monitor: www.evil.example.com. A for 127.0.0.1 would be blocked: " + phishing)
	}
	testkit.Until(t, "two lines that say what would be blocked", func() bool { return len(would()) == 2 }) // they follow the counters
	if got := would(); !strings.Contains(got[0], "evil.example.com/") {
		t.Errorf("Expected lines that say why, got %q", got)
	}
	wantEngines(t, 1, 2)
}

// aliases starts a name server that answers every query with records whose owner
// @ is the name asked.
func aliases(t *testing.T, records ...string) string {
	return startUpstreamWith(t, func(q dns.Question) (all []dns.RR) {
		for _, text := range records {
			rr, err := dns.NewRR(strings.Replace(text, "@", q.Name, 1))
			if err != nil {
				t.Error(err)
			}
			all = append(all, rr)
		}
		return all
	})
}

func TestTargetsOfAnAnswerAreInspected(t *testing.T) {
	for name, tc := range map[string]struct {
		records []string
		blocked bool
	}{
		"CNAME to an excepted threat": {[]string{"@ 60 IN CNAME evil.Excepted.example."}, false},
		"CNAME to a threat":           {[]string{"@ 60 IN CNAME Evil.Example.com.", "evil.example.com. 60 IN A 192.0.2.7"}, true},
		"chain that ends at a threat": {[]string{"@ 60 IN CNAME a.example.org.", "a.example.org. 60 IN CNAME x.evil.example.com."}, true},
		"HTTPS alias to a threat":     {[]string{"@ 60 IN HTTPS 0 evil.example.com."}, true},
		"SVCB service at a threat":    {[]string{"@ 60 IN SVCB 1 evil.example.com. alpn=h2"}, true},
		"HTTPS service at itself":     {[]string{"@ 60 IN HTTPS 1 . alpn=h2"}, false},
		"CNAME to a collision":        {[]string{"@ 60 IN CNAME shared.example.com."}, false},
		"MX at a threat":              {[]string{"@ 60 IN MX 10 evil.example.com."}, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.publish("se-4b", "evil.example.com/", "shared.example.com/", "evil.excepted.example/")
			w.google.AddThreat("evil.excepted.example/", sbv5.ThreatType_SOCIAL_ENGINEERING)
			w.google.AddThreat("evil.example.com/", sbv5.ThreatType_SOCIAL_ENGINEERING)
			w.upstream = aliases(t, tc.records...)
			w.run("inspect cname", "except excepted.example")
			if m := w.ask("www.innocent.example.", dns.TypeA); isBlocked(m) != tc.blocked {
				t.Errorf("Expected blocked %v, got\n%v", tc.blocked, m)
			}
		})
	}
}

func TestWhyIsAnsweredFromWhatIsKnown(t *testing.T) {
	w := newWorld(t)
	w.threaten("evil.example.com/")
	w.publish("mw-4b", "collides.example.com/") // its hash has a listed prefix, and that is all
	own := writeFile(t, t.TempDir(), "own.txt", "# mine\nblocked.example\nbücher.example\n")
	w.run("explain", blockList(t, "sb-test.example"), "block "+own, "allow good.example", "except lan")
	tests := []struct{ name, want string }{
		{"clean.example.org", "verdict=safe note=no threat list has it"},
		{"192.0.2.1", "verdict=safe note=no threat list has it; an IP address: a browser that opens it asks no name server, so no DNS blocks it"},
		{"www.evil.example.com", "verdict=unsure decided_by=list warning=suspected, not confirmed (Safe Browsing) list=se-4b expression=evil.example.com/ note=suspected: the server is asked about it on a query"},
		{"www.good.example", "verdict=safe decided_by=allow list=Corefile"},
		{"blocked.example", "verdict=unsafe decided_by=block list=own.txt line=2 expression=blocked.example/ unblock=remove blocked.example from the list, or add: allow blocked.example"},
		{`b\195\188cher.example`, "verdict=unsafe decided_by=block list=own.txt line=3 expression=xn--bcher-kva.example/ unblock=remove xn--bcher-kva.example from the list, or add: allow xn--bcher-kva.example"},
		{"sb-test.example", "verdict=unsafe decided_by=block list=own.txt line=1 expression=sb-test.example/ unblock=remove sb-test.example from the list, or add: allow sb-test.example"},
		{"nas.local", "verdict=safe decided_by=nobody note=never looked up in Safe Browsing's lists: the name is not public"},
		{"nas.lan", "verdict=safe decided_by=nobody note=not checked: it is in no zone of this server block, or in one of its exceptions"},
	}
	for _, tc := range tests {
		testkit.Equal(t, tc.name, w.why(tc.name), tc.want)
	}
	testkit.Equal(t, "no search", len(w.google.Requests("search")), 0)
	w.wantPassed("collides.example.com.", dns.TypeA)
	testkit.Equal(t, "of a collision", w.why("collides.example.com"), "verdict=safe decided_by=cache note=the server was asked about the first bytes of its hash, and does not call it a threat")
	w.wantBlocked("evil.example.com.", dns.TypeA, phishing)
	got := w.why("www.evil.example.com")
	if !strings.HasPrefix(got, "verdict=unsafe decided_by=cache warning=suspected social engineering (Safe Browsing) threat=social engineering list=se-4b expression=evil.example.com/ confirmed=20") ||
		!strings.HasSuffix(got, " unblock=allow evil.example.com in the Corefile") || !strings.Contains(got, " remaining=") {
		t.Errorf("Expected the confirmed threat, got %q", got)
	}
}

// While the server is not asked explain says so, until when, and why.
func TestWhyTellsOfWaits(t *testing.T) {
	w := newWorld(t)
	w.google.Break("update", 1, protocoltest.Fault{Status: 503})
	w.start(w.corefile("explain"))
	testkit.Until(w.t, "the back-off", func() bool {
		return strings.Contains(w.why("clean.example.org"), "status 503 Service Unavailable")
	})
	testkit.WantParts(t, w.why("clean.example.org"), "no lists are in force: not asked before", "back-off after a failure at ")
	w.stop()
	w.google.ClientLostState()
	w.db = t.TempDir()
	w.threaten("evil.example.com/")
	w.google.Break("search", 1, protocoltest.Fault{Status: 429})
	w.run("explain")
	testkit.Until(w.t, "the list", func() bool { return strings.Contains(w.why("evil.example.com"), "note=suspected") })
	testkit.WantParts(t, w.why("evil.example.com"), "the server is asked about it on a query")
	w.wantPassed("evil.example.com.", dns.TypeA)
	testkit.Until(w.t, "the pause", func() bool { return strings.Contains(w.why("evil.example.com"), "passes for now") })
	testkit.WantParts(t, w.why("evil.example.com"), "confirmations are paused until 20", "status 429")
}

// why asks why over DNS.
func (w *world) why(name string) string {
	w.t.Helper()
	m := new(dns.Msg).SetQuestion(name+".why.safebrowsing.", dns.TypeTXT)
	m.Question[0].Qclass = dns.ClassCHAOS
	answer := w.exchange("udp", m)
	if len(answer.Answer) != 1 {
		return dns.RcodeToString[answer.Rcode]
	}
	return strings.Join(answer.Answer[0].(*dns.TXT).Txt, " ")
}

const metadataOfLog = `log . "{name} verdict={/safebrowsing/verdict} threat={/safebrowsing/threat} list={/safebrowsing/list} expression={/safebrowsing/expression} by={/safebrowsing/decided_by}"`

func TestMetadataReachesTheLog(t *testing.T) {
	lines := testkit.Capture(t)
	w := newWorld(t)
	w.threaten("evil.example.com/")
	w.start(strings.Replace(w.corefile(), "errors", "errors\n\tmetadata\n\t"+metadataOfLog, 1))
	w.updated(1)
	for _, tc := range []struct{ name, want string }{
		{"www.evil.example.com.", "verdict=unsafe threat=social engineering list=se-4b expression=evil.example.com/ by=server"},
		{"x.evil.example.com.", "verdict=unsafe threat=social engineering list=se-4b expression=evil.example.com/ by=cache"},
		{"clean.example.com.", "verdict=safe threat= list= expression= by=list"},
	} {
		w.ask(tc.name, dns.TypeA)
		testkit.Until(w.t, "the line of the log", func() bool { return len(lines.About(tc.name)) > 0 })
		testkit.WantParts(t, lines.About(tc.name)[0], tc.want)
	}
	w.ask("clean.example.com.", dns.TypeTXT)
	testkit.Until(w.t, "the line of the log", func() bool { return len(lines.About("clean.example.com.")) > 1 })
	testkit.WantParts(t, lines.About("clean.example.com.")[1], "verdict=- ")
}

func TestTheGravestDecisionAboutAQueryCounts(t *testing.T) {
	lines := testkit.Capture(t)
	w := newWorld(t)
	w.publish("se-4b", "shared.example.com/") // collides, but is no threat
	w.google.Break("search", 1, protocoltest.Fault{Delay: 100 * time.Millisecond})
	w.upstream = aliases(t, "@ 60 IN CNAME sb-test.example.")
	w.start(strings.Replace(w.corefile("inspect cname", blockList(t, "sb-test.example")), "errors", "errors\n\tmetadata\n\t"+metadataOfLog, 1))
	w.updated(1)
	w.wantBlocked("shared.example.com.", dns.TypeA, byOwn)
	testkit.Until(w.t, "the line of the log", func() bool { return len(lines.About("shared.example.com.")) > 0 })
	testkit.WantParts(t, lines.About("shared.example.com.")[0], "verdict=unsafe", "by=block")
}
