package test

import (
	"encoding/json"
	"errors"
	"fmt"
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
	w := threatened(t, "evil.example.com/", "evil.example.net/")
	own := writeFile(t, t.TempDir(), "own.txt", "blocked.example.com\n")
	enforcing := strings.Replace(w.corefile(), ".:0 {", "example.net:0 {", 1)
	w.serve(w.corefile("monitor", "unsure servfail", "block "+own) + enforcing)
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
	testkit.WantParts(t, would()[0], "evil.example.com/")
	wantEngines(t, 1, 2)
}

// aliases starts a name server that answers every query with records whose owner @ is the name asked.
func aliases(t *testing.T, records ...string) string {
	return startUpstreamWith(t, func(q dns.Question) (all []dns.RR) {
		for _, text := range records {
			rr, err := dns.NewRR(strings.Replace(text, "@", q.Name, 1))
			testkit.Is(t, text, err, nil)
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
			testkit.Equal(t, "blocked", isBlocked(w.ask("www.innocent.example.", dns.TypeA)), tc.blocked)
		})
	}
}

func TestWhyIsAnsweredFromWhatIsKnown(t *testing.T) {
	w := threatened(t, "evil.example.com/")
	w.publish("mw-4b", "collides.example.com/") // its hash has a listed prefix, and that is all
	own := writeFile(t, t.TempDir(), "own.txt", "# mine\nblocked.example\nbücher.example\n")
	w.run("explain", blockList(t, "sb-test.example"), "block "+own, "allow good.example", "except lan")
	for _, tc := range []struct{ name, want string }{
		{"clean.example.org", "verdict=safe note=no threat list has it"},
		{"192.0.2.1", "verdict=safe note=no threat list has it; an IP address: a browser that opens it asks no name server, so no DNS blocks it"},
		{"www.evil.example.com", "verdict=unsure decided_by=list warning=suspected, not confirmed (Safe Browsing) list=se-4b expression=evil.example.com/ note=suspected: the server is asked about it on a query"},
		{"www.good.example", "verdict=safe decided_by=allow list=Corefile"},
		{"blocked.example", "verdict=unsafe decided_by=block list=own.txt line=2 expression=blocked.example/ unblock=remove blocked.example from the list, or add: allow blocked.example"},
		{`b\195\188cher.example`, "verdict=unsafe decided_by=block list=own.txt line=3 expression=xn--bcher-kva.example/ unblock=remove xn--bcher-kva.example from the list, or add: allow xn--bcher-kva.example"},
		{"sb-test.example", "verdict=unsafe decided_by=block list=own.txt line=1 expression=sb-test.example/ unblock=remove sb-test.example from the list, or add: allow sb-test.example"},
		{"nas.local", "verdict=safe decided_by=nobody note=never looked up in Safe Browsing's lists: the name is not public"},
		{"nas.lan", "verdict=safe decided_by=nobody note=not checked: it is in no zone of this server block, or in one of its exceptions"},
	} {
		testkit.Equal(t, tc.name, w.why(tc.name), tc.want)
	}
	testkit.Equal(t, "no search", len(w.google.Requests("search")), 0)
	w.wantPassed("collides.example.com.", dns.TypeA)
	testkit.Equal(t, "of a collision", w.why("collides.example.com"),
		"verdict=safe decided_by=cache note=the server was asked about the first bytes of its hash, and does not call it a threat")
	w.wantBlocked("evil.example.com.", dns.TypeA, phishing)
	got := w.why("www.evil.example.com") + "."
	testkit.WantStart(t, got, "verdict=unsafe decided_by=cache warning=suspected social engineering (Safe Browsing) threat=social engineering list=se-4b expression=evil.example.com/ confirmed=20")
	testkit.WantParts(t, got, " remaining=", " unblock=allow evil.example.com in the Corefile.")
}

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
	w := threatened(t, "evil.example.com/")
	w.serve(strings.Replace(w.corefile(), "errors", "errors\n\tmetadata\n\t"+metadataOfLog, 1))
	for _, tc := range []struct {
		name  string
		qtype uint16
		want  string
	}{
		{"www.evil.example.com.", dns.TypeA, "verdict=unsafe threat=social engineering list=se-4b expression=evil.example.com/ by=server"},
		{"x.evil.example.com.", dns.TypeA, "verdict=unsafe threat=social engineering list=se-4b expression=evil.example.com/ by=cache"},
		{"clean.example.com.", dns.TypeA, "verdict=safe threat= list= expression= by=list"},
		{"text.example.com.", dns.TypeTXT, "verdict=- "},
	} {
		w.ask(tc.name, tc.qtype)
		testkit.Until(w.t, "the line of the log", func() bool { return len(lines.About(tc.name)) > 0 })
		testkit.WantParts(t, lines.About(tc.name)[0], tc.want)
	}
}

func TestTheGravestDecisionAboutAQueryCounts(t *testing.T) {
	lines := testkit.Capture(t)
	w := newWorld(t)
	w.publish("se-4b", "shared.example.com/") // collides, but is no threat
	w.google.Break("search", 1, protocoltest.Fault{Delay: 100 * time.Millisecond})
	w.upstream = aliases(t, "@ 60 IN CNAME sb-test.example.")
	corefile := w.corefile("inspect cname", blockList(t, "sb-test.example"))
	w.serve(strings.Replace(corefile, "errors", "errors\n\tmetadata\n\t"+metadataOfLog, 1))
	w.wantBlocked("shared.example.com.", dns.TypeA, byOwn)
	testkit.Until(w.t, "the line of the log", func() bool { return len(lines.About("shared.example.com.")) > 0 })
	testkit.WantParts(t, lines.About("shared.example.com.")[0], "verdict=unsafe", "by=block")
}

// A threat that is marked for frames only is blocked and counted, by its own name and as a target; in monitor mode it is
// counted as passed. Another mark beside it makes it pass, and the same threat without a mark is no such threat.
func TestFrameOnlyThreatsAreBlockedAndCounted(t *testing.T) {
	for name, tc := range map[string]struct {
		property        string
		records         []string // of the upstream
		blocked, others []string
		blocks, passes  float64 // that are counted
	}{
		"names":   {"explain", nil, []string{"www.frame.example.com.", "www.frame.example.com.", "both.example.com."}, []string{"canary.example.com."}, 2, 0},
		"monitor": {"monitor", nil, nil, []string{"frame.example.com."}, 0, 1},
		"targets": {"inspect cname", []string{"@ 60 IN CNAME frame.example.com."}, []string{"one.innocent.example.", "two.innocent.example."}, nil, 2, 0},
	} {
		t.Run(name, func(t *testing.T) {
			w := frameWorld(t)
			if tc.records != nil {
				w.upstream = aliases(t, tc.records...)
			}
			w.run(tc.property)
			count := func(action string) float64 { return testkit.Metric(t, "frame_only_total", "action", action) }
			blocked, passed := count("blocked")+tc.blocks, count("passed")+tc.passes
			for _, name := range tc.blocked { // the second time from the cache of answers
				w.wantBlocked(name, dns.TypeA, phishing)
			}
			for _, name := range tc.others {
				w.wantPassed(name, dns.TypeA)
			}
			testkit.Until(t, "the counts", func() bool { return count("blocked") == blocked && count("passed") == passed })
			if tc.property == "explain" {
				testkit.WantParts(t, w.why("frame.example.com"), "verdict=unsafe", "FRAME_ONLY")
			}
		})
	}
}

// frameWorld is a server with a threat for frames, one with another mark for all, and one that is marked and is not.
func frameWorld(t *testing.T) *world {
	w := newWorld(t)
	w.publish("se-4b", "frame.example.com/", "canary.example.com/", "both.example.com/")
	const phish, frame = sbv5.ThreatType_SOCIAL_ENGINEERING, sbv5.ThreatAttribute_FRAME_ONLY
	w.google.AddThreat("frame.example.com/", phish, frame)
	w.google.AddThreat("canary.example.com/", phish, frame, sbv5.ThreatAttribute_CANARY)
	w.google.AddThreat("both.example.com/", phish, frame)
	w.google.AddThreat("both.example.com/", phish)
	return w
}

func TestAFamiliarNameThatIsListedIsLoud(t *testing.T) {
	testkit.Long(t)
	lines := testkit.Capture(t)
	w := threatened(t, "evil.example.com/")
	w.run()
	conn, err := dns.Dial("udp", w.address("udp"))
	testkit.Must(t, err)
	defer conn.Close()
	client := &dns.Client{Timeout: patience}
	for range 4000 {
		_, _, err := client.ExchangeWithConn(new(dns.Msg).SetQuestion("www.familiar.example.net.", dns.TypeA), conn)
		testkit.Must(t, err)
	}
	w.wantPassed("www.familiar.example.net.", dns.TypeA)
	w.stop()
	w.threaten("evil.example.com/", "example.net/")
	w.google.ClientLostState()
	w.db = t.TempDir()
	w.start(w.corefile())
	w.updated(2)
	w.wantBlocked("www.familiar.example.net.", dns.TypeA, phishing)
	w.wantBlocked("www.rare.example.net.", dns.TypeA, phishing)
	testkit.WantParts(t, lines.Only(t, "is blocked now (suspected social engineering, list se-4b), and was asked for about "),
		"[WARNING] plugin/safebrowsing: www.familiar.example.net is blocked now")
}

// Over each transport and for each size that clients take. Who asks by another option gets plain text.
func TestStructuredErrorsOverEveryTransport(t *testing.T) {
	asks := transports(t, blockList(t, "blocked.example")+"\nstructured 65010 mailto:help@example.org")
	for transport, ask := range asks {
		for _, size := range []uint16{512, 1232} {
			t.Run(fmt.Sprint(transport, size), func(t *testing.T) {
				m := new(dns.Msg).SetQuestion(strings.Repeat(strings.Repeat("a", 49)+".", 3)+"blocked.example.", dns.TypeA)
				m.SetEdns0(size, false)
				for code, want := range map[uint16]string{65010: `{"c":["mailto:help@example.org"],"j":"blocklist own.txt","s":6,"l":"en"}`, 65011: byOwn} {
					m.IsEdns0().Option = []dns.EDNS0{&dns.EDNS0_LOCAL{Code: code}}
					answer, err := ask(m)
					testkit.Must(t, err)
					text, blocked := ede(answer)
					testkit.Equal(t, fmt.Sprintf("%d: text, blocked, truncated", code), [3]any{text, blocked, answer.Truncated}, [3]any{want, true, false})
				}
			})
		}
	}
}

func TestLogSaysWhoAskedForWhatAndWhyItIsBlocked(t *testing.T) {
	lines := testkit.Capture(t)
	w := threatened(t, "evil.example.com/")
	own := writeFile(t, t.TempDir(), "own.txt", "# Issues: https://lists.example/issues\nblocked.example.org\n")
	// The target of another name would be decided on while that is confirmed, perhaps first.
	w.upstream = startUpstreamWith(t, func(q dns.Question) []dns.RR {
		if q.Name != "alias.example.net." {
			return nil
		}
		return []dns.RR{&dns.CNAME{Hdr: dns.RR_Header{Name: q.Name, Rrtype: dns.TypeCNAME, Class: dns.ClassINET, Ttl: 60}, Target: "evil.example.com."}}
	})
	silent := strings.Replace(w.corefile(blockList(t, "sb-test.example")), ".:0 {", "example:0 {", 1)
	w.serve(w.corefile("log", "inspect cname", "block "+own) + silent)
	const threat = ": suspected social engineering (Safe Browsing), expression evil.example.com/, list se-4b, decided by "
	for _, tc := range []struct {
		name  string
		qtype uint16
		want  string
	}{
		{"www.evil.example.com.", dns.TypeA, "Blocked www.evil.example.com. A for 127.0.0.1" + threat + "server"},
		{"again.evil.example.com.", dns.TypeHTTPS, "Blocked again.evil.example.com. HTTPS for 127.0.0.1" + threat + "cache"},
		{"alias.example.net.", dns.TypeAAAA, "Blocked alias.example.net. AAAA for 127.0.0.1" + threat + "cache"},
		{"blocked.example.org.", dns.TypeA, "Blocked blocked.example.org. A for 127.0.0.1: blocklist own.txt, expression blocked.example.org/, list " + own + ", decided by block"},
	} {
		testkit.Equal(t, tc.name+" is blocked", isBlocked(w.ask(tc.name, tc.qtype)), true)
		testkit.Until(w.t, "the line", func() bool { return len(lines.About(tc.name)) > 0 })
		want := tc.want + ". A mistake? safebrowsing allow -for 1h " + strings.TrimSuffix(tc.name, ".")
		if strings.Contains(want, own) {
			want += ", report it at https://lists.example/issues"
		}
		if got := lines.About(tc.name); len(got) != 1 || !strings.HasSuffix(strings.TrimSpace(got[0]), want) {
			t.Errorf("Expected one line that ends with %q, got %q", want, got)
		}
	}
	w.wantBlocked("sb-test.example.", dns.TypeA, byOwn)
	w.ask("evil.example.com.", dns.TypeMX)
	testkit.Equal(t, "lines: none of a block without log, and of a name that passes", len(lines.About("safebrowsing: Blocked ")), 4)
}

// Programs read the JSON form, so a line of it has just the fields that the example in the documents has.
func TestLogAsJSONIsAsDocumented(t *testing.T) {
	lines := testkit.Capture(t)
	w := newWorld(t)
	own := writeFile(t, t.TempDir(), "blocklist.txt", "malware.example\n")
	w.run("log json", "block "+own)
	w.wantBlocked("malware.example.", dns.TypeA, "blocklist blocklist.txt")
	testkit.Until(w.t, "the line", func() bool { return len(lines.About(`{"time"`)) > 0 })
	logged := lines.Only(t, `{"time"`)
	testkit.WantNone(t, logged, "[INFO]")
	examples := documents(t)["docs/corefile.md"]
	documented, _, _ := strings.Cut(examples[strings.Index(examples, `{"time"`):], "\n")
	var got, want map[string]any
	testkit.Must(t, errors.Join(json.Unmarshal([]byte(logged), &got), json.Unmarshal([]byte(documented), &want)))
	if at, err := time.Parse(time.RFC3339, got["time"].(string)); err != nil || time.Since(at).Abs() > time.Minute {
		t.Errorf("time %v: %v", got["time"], err)
	}
	got["time"], want["client"], want["list"] = want["time"], "127.0.0.1", own
	testkit.Equal(t, "what the document says", got, want)
}

func TestShutdownSaysHowManyNamesWereLeftOutOfTheLog(t *testing.T) {
	lines := testkit.Capture(t)
	w := newWorld(t)
	w.run("log", blockList(t, "sb-test.example"))
	for range 60 {
		w.wantBlocked("sb-test.example.", dns.TypeA, byOwn)
	}
	logged := len(lines.About("Blocked sb-test.example."))
	w.stop()
	if left := lines.About("more name"); logged < 60 && len(left) == 0 {
		t.Errorf("Expected the shutdown to tell of %d names, got %q", 60-logged, left)
	}
}

// recipe starts the Corefile of a section of a document, with the servers of the test.
func (w *world) recipe(document, heading string, replace ...string) {
	w.t.Helper()
	corefile := onlyBlock(w.t, sectionOf(w.t, document, heading), "corefile")
	w.start(strings.NewReplacer(append(replace,
		"bind 192.168.1.2\n", "bind "+w.host+"\n", "bind 127.0.0.1\n", "bind "+w.host+"\n", ". {", ".:0 {",
		"api_key_file /etc/coredns/safebrowsing.key", "endpoint "+w.endpoint+"\n\tconfirm_timeout 10s\n\tdb "+w.db,
		"testdata/", "../testdata/",
		"forward . 9.9.9.9", "forward . "+w.upstream,
	)...).Replace(corefile))
}
