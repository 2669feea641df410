package test

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/coredns-safebrowsing/safebrowsing/internal/say"
	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
)

func TestOwnListsAndExceptionsBelongToTheServerBlock(t *testing.T) {
	w := newWorld(t)
	w.threaten("evil.example.com/", "evil.example.net/", "evil.example.org/")
	dir := t.TempDir()
	block := writeFile(t, dir, "own.txt", "blocked.example\nnas.local\nallowed.example\n")
	allow := writeFile(t, dir, "allow.txt", "allowed.example\n")
	w.start(w.corefile("block "+block, "allow evil.example.com "+allow, "except example.net lan"))
	w.updated(1)
	w.wantBlocked("blocked.example.", dns.TypeA, "blocklist own.txt")
	w.wantBlocked("nas.local.", dns.TypeAAAA, "blocklist own.txt") // own lists hold for every name
	w.wantPassed("www.blocked.example.", dns.TypeA)                // a list of hosts names hosts
	w.wantPassed("notblocked.example.", dns.TypeA)
	w.wantPassed("allowed.example.", dns.TypeA)
	w.wantPassed("evil.example.com.", dns.TypeA)
	w.wantPassed("a.b.evil.example.com.", dns.TypeA)
	w.wantPassed("evil.example.net.", dns.TypeA)
	w.wantBlocked("evil.example.org.", dns.TypeA, phishing)
	if n := len(w.google.Requests("search")); n != 1 {
		t.Errorf("Expected no search for names that are allowed or excepted, got %d", n-1)
	}
}

func TestOnlyNamesOfTheZonesAreChecked(t *testing.T) {
	w := newWorld(t)
	w.threaten("evil.example.com/", "evil.example.net/")
	w.start(strings.Replace(w.corefile(), "safebrowsing {", "safebrowsing example.com {", 1))
	w.updated(1)
	w.wantBlocked("evil.example.com.", dns.TypeA, phishing)
	w.wantPassed("evil.example.net.", dns.TypeA)
}

// Lists are in memory then, as with db off; that the server is not asked too often
// by a loop of crashes is for the updater to see to.
func TestAFolderThatCannotBeWrittenIsSaidAndDoneWithout(t *testing.T) {
	t.Setenv("RUNTIME_DIRECTORY", t.TempDir())
	lines := testkit.Capture(t)
	w := newWorld(t)
	w.threaten("evil.example.com/")
	w.db = filepath.Join(writeFile(t, t.TempDir(), "file", ""), "folder")
	w.start(w.corefile())
	w.updated(1)
	testkit.Until(w.t, "readiness", w.ready)
	w.wantBlocked("evil.example.com.", dns.TypeA, phishing)
	got := lines.About("Cannot write to db " + w.db)
	if len(got) != 1 || !strings.Contains(got[0], "Make the directory writable") {
		t.Errorf("Expected one line about the folder, got %q", got)
	}
}

func TestMetricsCountVerdictsAndTellOfLists(t *testing.T) {
	w := newWorld(t)
	w.threaten("evil.example.com/", "other.example.com/")
	w.google.RemoveThreat("other.example.com/")
	w.start(w.corefile("lists se-4b"))
	w.updated(1)
	counted := []struct{ name, label, value string }{
		{"verdicts_total", "decided_by", "server"},
		{"verdicts_total", "decided_by", "cache"},
		{"verdicts_total", "decided_by", "list"},
		{"verdicts_total", "verdict", "unsafe"},
		{"blocked_total", "list", "se-4b"},
		{"requests_total", "method", "search"},
	}
	var before []float64
	for _, c := range counted {
		before = append(before, testkit.Metric(t, c.name, c.label, c.value))
	}
	w.wantBlocked("evil.example.com.", dns.TypeA, phishing)
	w.wantBlocked("evil.example.com.", dns.TypeA, phishing)
	w.wantPassed("other.example.com.", dns.TypeA)
	w.wantPassed("clean.example.com.", dns.TypeA)
	w.wantPassed("clean.example.com.", dns.TypeTXT)
	for i, want := range []float64{2, 1, 1, 2, 2, 2} {
		c := counted[i]
		if got := testkit.Metric(t, c.name, c.label, c.value) - before[i]; got != want {
			t.Errorf("%s{%s=%q}: Expected %v more, got %v", c.name, c.label, c.value, want, got)
		}
	}
	if got := testkit.Metric(t, "list_entries", "endpoint", w.endpoint); got != 2 {
		t.Errorf("Expected 2 entries, got %v", got)
	}
	if got := testkit.Metric(t, "build_info", "version", say.Version); got != 1 {
		t.Errorf("Expected the version %s, got %v", say.Version, got)
	}
	now := float64(time.Now().Unix())
	if got := testkit.Metric(t, "list_last_success_timestamp_seconds", "endpoint", w.endpoint); got < now-60 || got > now+1 {
		t.Errorf("Expected a success just now, %v, got %v", now, got)
	}
	if got := testkit.Metric(t, "list_next_due_timestamp_seconds", "endpoint", w.endpoint); got < now+3500 || got > now+3700 {
		t.Errorf("Expected to be due in an hour, %v, got %v", now+3600, got)
	}
	w.stop()
	if got := testkit.Metric(t, "list_entries", "endpoint", w.endpoint); got != 0 {
		t.Errorf("Expected no gauge of a list that is kept no more, got %v", got)
	}
}
