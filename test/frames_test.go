package test

import (
	"strings"
	"testing"

	"github.com/miekg/dns"

	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol/pb/sbv5"
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
