package test

import (
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
)

func TestDamagedFileIsReportedSetAsideAndFetchedAgain(t *testing.T) {
	testkit.Long(t)
	if !apart(t) {
		return
	}
	lines := testkit.Capture(t)
	w := newWorld(t)
	w.google.SetMinimumWait("se-4b", time.Second)
	w.threaten("evil.example.com/")
	w.start(w.corefile("lists se-4b"))
	w.updated(1)
	w.wantBlocked("evil.example.com.", dns.TypeA, phishing)
	w.stop()
	list := []byte(testkit.Read(t, w.db+"/se-4b.list"))
	list[len(list)/2] ^= 1
	writeFile(t, w.db, "se-4b.list", string(list))
	w.google.ClientStarted()
	w.start(w.corefile("lists se-4b"))
	w.wantPassed("other.example.com.", dns.TypeA)
	if got := lines.About("damaged"); len(got) != 1 || !strings.Contains(got[0], "se-4b") {
		t.Errorf("Expected one line about the damaged list, got %q", got)
	}
	testkit.Until(w.t, "the list", func() bool { return isBlocked(w.ask("evil.example.com.", dns.TypeA)) })
	requests := w.fetches()
	if last := requests[len(requests)-1]; len(requests) < 2 || len(requests[1].Versions) != 0 {
		t.Errorf("Expected to ask for the whole list, got %+v", last)
	}
}
