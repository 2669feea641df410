package test

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/coredns-safebrowsing/safebrowsing/internal/block"
	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
)

// paused writes a pause of the world's server blocks, as the command line does.
func (w *world) paused(zone string, length time.Duration) {
	w.t.Helper()
	now := time.Now()
	text := block.FormatPauses([]block.Pause{{Zone: zone, From: now, Until: now.Add(length)}})
	if length == 0 {
		text = block.FormatPauses(nil)
	}
	file := block.PauseFile(w.db)
	if err := os.WriteFile(file+".tmp", text, 0o600); err != nil {
		w.t.Fatal(err)
	}
	if err := os.Rename(file+".tmp", file); err != nil {
		w.t.Fatal(err)
	}
}

func TestAPauseLetsEveryNamePass(t *testing.T) {
	testkit.Long(t)
	if !apart(t) {
		return
	}
	lines := testkit.Capture(t)
	w := newWorld(t)
	w.threaten("evil.example.com/", "evil.example.net/")
	own := writeFile(t, t.TempDir(), "own.txt", "blocked.example.com\nblocked.example.net\n")
	other := strings.Replace(w.corefile("block "+own), ".:0 {", "example.net:0 {", 1)
	w.start(w.corefile("block "+own, "explain") + other)
	w.updated(1)
	w.wantBlocked("evil.example.com.", dns.TypeA, phishing)
	wantGauge := func(zone string, want float64) {
		t.Helper()
		testkit.Until(w.t, "the gauge of "+zone, func() bool { return testkit.Metric(t, "paused", "zones", zone) == want })
	}
	wantGauge(".", 0)
	w.paused(".", time.Hour)
	testkit.Until(w.t, "a name to pass", func() bool { return !isBlocked(w.ask("evil.example.com.", dns.TypeA)) })
	w.wantPassed("blocked.example.com.", dns.TypeA)
	w.wantBlocked("blocked.example.net.", dns.TypeA, "blocklist own.txt") // another server block
	wantGauge(".", 1)
	wantGauge("example.net.", 0)
	if got := w.why("evil.example.com"); !strings.Contains(got, "blocking is paused until ") {
		t.Errorf("Expected explain to say that blocking is paused, got %q", got)
	}
	searches := len(w.searches())
	w.wantPassed("evil.example.com.", dns.TypeA)
	if got := len(w.searches()); got != searches {
		t.Errorf("Expected no search in a pause, got %d", got-searches)
	}
	if err := w.reload(w.corefile("block "+own, "explain", "ttl 30s")); err != nil {
		t.Fatal(err)
	}
	w.wantPassed("blocked.example.com.", dns.TypeA)
	w.paused(".", 0)
	testkit.Until(w.t, "a name to be blocked", func() bool { return isBlocked(w.ask("blocked.example.com.", dns.TypeA)) })
	wantGauge(".", 0)
	testkit.Until(w.t, "the line of the end", func() bool { return len(lines.About("in force again for the zone .: the pause has ended")) == 1 })
	if got := lines.About("Blocking is PAUSED until"); len(got) != 1 || !strings.Contains(got[0], "[WARNING]") {
		t.Errorf("Expected one WARNING, got %q", got)
	}
}

// Without Safe Browsing there is no folder of lists, and the default one counts.
func TestOwnListsWithoutSafeBrowsingArePausedToo(t *testing.T) {
	testkit.Long(t)
	w := newWorld(t)
	t.Setenv("SAFEBROWSING_API_KEY", "")
	t.Setenv("STATE_DIRECTORY", w.db)
	own := writeFile(t, t.TempDir(), "own.txt", "blocked.example.com\n")
	w.start(".:0 {\n bind " + w.host + "\n safebrowsing {\n  block " + own + "\n }\n forward . " + w.upstream + "\n}\n")
	w.wantBlocked("blocked.example.com.", dns.TypeA, "blocklist own.txt")
	w.paused(block.AllBlocks, time.Hour)
	testkit.Until(w.t, "a name to pass", func() bool { return !isBlocked(w.ask("blocked.example.com.", dns.TypeA)) })
}
