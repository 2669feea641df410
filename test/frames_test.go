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

// frameWorld is a server with one threat for frames, one that has another mark for
// all, and one that is marked and is not.
func frameWorld(t *testing.T) *world {
	w := newWorld(t)
	w.publish("se-4b", "frame.example.com/", "canary.example.com/", "both.example.com/", "page.frame.example.com/")
	const phish = sbv5.ThreatType_SOCIAL_ENGINEERING
	w.google.AddThreat("frame.example.com/", phish, sbv5.ThreatAttribute_FRAME_ONLY)
	w.google.AddThreat("page.frame.example.com/", phish)
	w.google.AddThreat("canary.example.com/", phish, sbv5.ThreatAttribute_FRAME_ONLY, sbv5.ThreatAttribute_CANARY)
	w.google.AddThreat("both.example.com/", phish, sbv5.ThreatAttribute_FRAME_ONLY)
	w.google.AddThreat("both.example.com/", phish)
	return w
}

// counted returns a function that tells how often an action has been counted since.
func counted(t *testing.T, action string) func() float64 {
	before := testkit.Metric(t, "frame_only_total", "action", action)
	return func() float64 { return testkit.Metric(t, "frame_only_total", "action", action) - before }
}

func TestFrameOnlyThreatsAreBlocked(t *testing.T) {
	w := frameWorld(t)
	w.start(w.corefile("explain"))
	w.updated(1)
	blocked, passed := counted(t, "blocked"), counted(t, "passed")
	w.wantBlocked("www.frame.example.com.", dns.TypeA, phishing)
	w.wantBlocked("www.frame.example.com.", dns.TypeA, phishing) // from the cache of answers this time
	w.wantBlocked("both.example.com.", dns.TypeA, phishing)
	w.wantPassed("canary.example.com.", dns.TypeA)
	if m := w.why("frame.example.com"); !strings.Contains(m, "verdict=unsafe") || !strings.Contains(m, "FRAME_ONLY") {
		t.Errorf("Expected to be told of the mark, got %s", m)
	}
	if blocked() != 2 || passed() != 0 {
		t.Errorf("Expected 2 names to be counted as blocked and none as passed, got %v and %v", blocked(), passed())
	}
}

func TestFrameOnlyThreatsPassInMonitorMode(t *testing.T) {
	w := frameWorld(t)
	w.start(w.corefile("monitor"))
	w.updated(1)
	blocked, passed := counted(t, "blocked"), counted(t, "passed")
	w.wantPassed("frame.example.com.", dns.TypeA)
	testkit.Until(w.t, "the counter", func() bool { return passed() == 1 })
	if blocked() != 0 {
		t.Errorf("Expected nothing to be counted as blocked, got %v", blocked())
	}
}

func TestFrameOnlyTargetsAreBlocked(t *testing.T) {
	w := frameWorld(t)
	w.upstream = aliases(t, "@ 60 IN CNAME frame.example.com.", "frame.example.com. 60 IN A 192.0.2.7")
	w.start(w.corefile("inspect cname"))
	w.updated(1)
	blocked, passed := counted(t, "blocked"), counted(t, "passed")
	for _, name := range []string{"www.innocent.example.", "two.innocent.example."} { // confirmed, and from the cache of answers
		if m := w.ask(name, dns.TypeA); !isBlocked(m) {
			t.Errorf("Expected %s to be blocked, got\n%v", name, m)
		}
	}
	if blocked() != 2 || passed() != 0 {
		t.Errorf("Expected 2 names to be counted as blocked and none as passed, got %v and %v", blocked(), passed())
	}
}

func TestUnsureServfailSaysWhy(t *testing.T) {
	w := newWorld(t)
	w.threaten("evil.example.com/")
	w.google.Break("search", 1, protocoltest.Fault{Status: 429})
	w.start(w.corefile("unsure servfail"))
	w.updated(1)
	for i, want := range []uint16{dns.ExtendedErrorCodeNetworkError, dns.ExtendedErrorCodeOther} {
		m := w.ask("evil.example.com.", dns.TypeA)
		opt := m.IsEdns0()
		if m.Rcode != dns.RcodeServerFailure || opt == nil || len(opt.Option) != 1 || opt.Option[0].(*dns.EDNS0_EDE).InfoCode != want {
			t.Errorf("Query %d: Expected SERVFAIL with EDE %d, got\n%v", i, want, m)
		}
	}
	if n := len(w.google.Requests("search")); n != 1 {
		t.Errorf("Expected one search, then back-off, got %d", n)
	}
}

func TestAFamiliarNameThatIsListedIsLoud(t *testing.T) {
	testkit.Long(t)
	lines := testkit.Capture(t)
	w := newWorld(t)
	w.threaten("evil.example.com/")
	w.start(w.corefile())
	w.updated(1)
	conn, err := dns.Dial("udp", w.address("udp"))
	testkit.Must(t, err)
	defer conn.Close()
	for range 4000 {
		if _, _, err := new(dns.Client).ExchangeWithConn(new(dns.Msg).SetQuestion("www.familiar.example.net.", dns.TypeA), conn); err != nil {
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
