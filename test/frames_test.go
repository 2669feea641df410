package test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/miekg/dns"

	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol/pb/sbv5"
	"github.com/coredns-safebrowsing/safebrowsing/internal/protocoltest"
	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
)

// A threat that is marked for frames only is blocked and counted, by its own name and as a target; in monitor mode it is
// counted as passed. Another mark beside it makes it pass, and the same threat without a mark is no such threat.
func TestFrameOnlyThreatsAreBlockedAndCounted(t *testing.T) {
	for name, tc := range map[string]struct {
		property        string
		records         []string // of the upstream
		blocked, others []string
		counted         map[string]float64
	}{
		"names":   {"explain", nil, []string{"www.frame.example.com.", "www.frame.example.com.", "both.example.com."}, []string{"canary.example.com."}, map[string]float64{"blocked": 2, "passed": 0}},
		"monitor": {"monitor", nil, nil, []string{"frame.example.com."}, map[string]float64{"blocked": 0, "passed": 1}},
		"targets": {"inspect cname", []string{"@ 60 IN CNAME frame.example.com."}, []string{"one.innocent.example.", "two.innocent.example."}, nil, map[string]float64{"blocked": 2, "passed": 0}},
	} {
		t.Run(name, func(t *testing.T) {
			w := frameWorld(t)
			if tc.records != nil {
				w.upstream = aliases(t, tc.records...)
			}
			w.run(tc.property)
			before := make(map[string]float64)
			for action := range tc.counted {
				before[action] = testkit.Metric(t, "frame_only_total", "action", action)
			}
			for _, name := range tc.blocked { // the second time from the cache of answers
				w.wantBlocked(name, dns.TypeA, phishing)
			}
			for _, name := range tc.others {
				w.wantPassed(name, dns.TypeA)
			}
			for action, want := range tc.counted {
				testkit.Until(t, "the count of "+action, func() bool { return testkit.Metric(t, "frame_only_total", "action", action)-before[action] == want })
			}
			if got := w.why("frame.example.com"); tc.property == "explain" && (!strings.Contains(got, "verdict=unsafe") || !strings.Contains(got, "FRAME_ONLY")) {
				t.Errorf("Expected to be told of the mark, got %s", got)
			}
		})
	}
}

// frameWorld is a server with one threat for frames, one that has another mark for
// all, and one that is marked and is not.
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

func TestUnsureServfailSaysWhy(t *testing.T) {
	w := newWorld(t)
	w.threaten("evil.example.com/")
	w.google.Break("search", 1, protocoltest.Fault{Status: 429})
	w.run("unsure servfail")
	for i, want := range []uint16{dns.ExtendedErrorCodeNetworkError, dns.ExtendedErrorCodeOther} {
		m := w.ask("evil.example.com.", dns.TypeA)
		opt := m.IsEdns0()
		if m.Rcode != dns.RcodeServerFailure || opt == nil || len(opt.Option) != 1 || opt.Option[0].(*dns.EDNS0_EDE).InfoCode != want {
			t.Errorf("Query %d: Expected SERVFAIL with EDE %d, got\n%v", i, want, m)
		}
	}
	testkit.Equal(t, "one search, then back-off", len(w.google.Requests("search")), 1)
}

func TestAFamiliarNameThatIsListedIsLoud(t *testing.T) {
	testkit.Long(t)
	lines := testkit.Capture(t)
	w := newWorld(t)
	w.threaten("evil.example.com/")
	w.run()
	conn, err := dns.Dial("udp", w.address("udp"))
	testkit.Must(t, err)
	defer conn.Close()
	client := &dns.Client{Timeout: patience}
	for range 4000 {
		if _, _, err := client.ExchangeWithConn(new(dns.Msg).SetQuestion("www.familiar.example.net.", dns.TypeA), conn); err != nil {
			t.Fatal(err)
		}
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
	if got := lines.About("is blocked now (suspected social engineering, list se-4b), and was asked for about "); len(got) != 1 || len(lines.About("[WARNING] plugin/safebrowsing: www.familiar.example.net is blocked now")) != 1 {
		t.Errorf("Expected one WARNING about the familiar name, got %q", got)
	}
}

// In the real server, over each transport and for each size that clients take. Who asks by another option gets
// plain text.
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
					if text, blocked := ede(answer); !blocked || answer.Truncated || text != want {
						t.Errorf("%d: got %q in\n%v", code, text, answer)
					}
				}
			})
		}
	}
}
