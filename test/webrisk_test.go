package test

import (
	"crypto/sha256"
	"fmt"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol"
	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol/pb/sbv5"
	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
)

func newRiskWorld(t *testing.T) *world {
	w := newWorld(t)
	w.protocol = protocol.DialectWebRisk
	return w
}

// mixed publishes a list with entries of all lengths that come into question. It returns
// the hosts and how many bytes their entries have.
func (w *world) mixed() map[string]int {
	widths := map[string]int{"four": 4, "five": 5, "seven": 7, "sixteen": 16, "full": 32}
	var entries [][]byte
	for name, width := range widths {
		hash := sha256.Sum256([]byte(name + ".example.com/"))
		entries = append(entries, hash[:width])
		w.google.AddThreat(name+".example.com/", sbv5.ThreatType_MALWARE)
	}
	w.google.Publish("mw-4b", entries)
	return widths
}

// A partial update, and a restart, keep a list of mixed lengths whole. Four bytes are sent however long an entry is.
func TestAListOfMixedLengthsIsUpdatedAndKept(t *testing.T) {
	for _, raw := range []bool{false, true} {
		t.Run(fmt.Sprintf("raw %t", raw), func(t *testing.T) {
			t.Parallel()
			keepsMixedLengths(t, raw)
		})
	}
}

func keepsMixedLengths(t *testing.T, raw bool) {
	w := newRiskWorld(t)
	w.google.SetRawAdditions(raw)
	w.google.SetMinimumWait("mw-4b", time.Second)
	widths := w.mixed()
	w.run("lists mw-4b")
	var entries [][]byte
	for name, width := range widths {
		if hash := sha256.Sum256([]byte(name + ".example.com/")); name != "seven" {
			entries = append(entries, hash[:width])
		}
	}
	hash := sha256.Sum256([]byte("new.example.com/"))
	w.google.Publish("mw-4b", append(entries, hash[:9]))
	w.google.AddThreat("new.example.com/", sbv5.ThreatType_MALWARE)
	w.google.SetMinimumWait("mw-4b", time.Hour)
	check := func() {
		t.Helper()
		w.wantPassed("seven.example.com.", dns.TypeA)
		for name := range widths {
			if name != "seven" {
				w.wantBlocked(name+".example.com.", dns.TypeA, "suspected malware (Web Risk)")
			}
		}
	}
	testkit.Until(w.t, "the partial update", func() bool { return isBlocked(w.ask("new.example.com.", dns.TypeA)) })
	if all := w.fetches(); len(all[1].Versions) != 1 {
		t.Errorf("Expected the version that is held, got %+v", all[1])
	}
	check()
	w.restart(w.corefile("lists mw-4b"))
	check()
	for _, r := range w.searches() {
		if len(r.Prefixes) != 1 || len(r.Prefixes[0]) != 4 {
			t.Errorf("Expected four bytes, got %x", r.Prefixes)
		}
	}
}

// What extended coverage finds can be watched before it blocks: the list is in the log line, though the threat is the same as
// for se-4b.
func TestMonitorTellsExtendedCoverageApart(t *testing.T) {
	lines := testkit.Capture(t)
	w := newRiskWorld(t)
	w.threaten("sure.example.com/")
	w.publish("se-ext-4b", "maybe.example.com/")
	w.google.SetMinimumWait("se-ext-4b", time.Hour)
	w.google.AddExtendedThreat("maybe.example.com/")
	w.start(w.corefile("lists se-4b se-ext-4b", "monitor"))
	w.updated(w.perUpdate(2))
	for name, list := range map[string]string{"www.maybe.example.com.": "se-ext-4b", "www.sure.example.com.": "se-4b"} {
		w.wantPassed(name, dns.TypeA)
		line := "Monitor: " + name + " A for 127.0.0.1 would be blocked: suspected social engineering (Web Risk)"
		testkit.Until(w.t, "the line", func() bool { return len(lines.About(line)) == 1 })
		testkit.WantParts(t, lines.Only(t, line), ", list "+list+", decided by server")
	}
}

// Whoever pays sees which names cost most today, if pages may show names.
func TestTheNamesThatCostMostAreShown(t *testing.T) {
	if !apart(t) {
		return
	}
	testkit.SameDay(t)
	lines := testkit.Capture(t)
	w := newRiskWorld(t)
	w.mixed()
	w.start(w.corefile("status 127.0.0.1:0 names", "budget 100"))
	w.updated(w.perUpdate(3))
	w.wantBlocked("four.example.com.", dns.TypeA, "suspected malware (Web Risk)")
	url := w.pageURL(lines)
	w.made(url, "cost most today")
	wantPage(t, get(t, url+"status.json"), []string{`"costly":[{"name":"four.example.com","searches":1}]`}, nil)
}
