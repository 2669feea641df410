package test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/coredns-safebrowsing/safebrowsing/internal/block"
	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol"
	"github.com/coredns-safebrowsing/safebrowsing/internal/say"
	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
)

func TestOwnListsAndExceptionsBelongToTheServerBlock(t *testing.T) {
	w := threatened(t, "evil.example.com/", "evil.example.net/", "evil.example.org/")
	dir := t.TempDir()
	block := writeFile(t, dir, "own.txt", "blocked.example\nnas.local\nallowed.example\n")
	allow := writeFile(t, dir, "allow.txt", "allowed.example\n")
	w.run("block "+block, "allow evil.example.com "+allow, "except example.net lan")
	w.wantBlocked("blocked.example.", dns.TypeA, "blocklist own.txt")
	w.wantBlocked("nas.local.", dns.TypeAAAA, "blocklist own.txt") // own lists hold for every name
	w.wantPassed("www.blocked.example.", dns.TypeA)                // a list of hosts names hosts
	w.wantPassed("notblocked.example.", dns.TypeA)
	w.wantPassed("allowed.example.", dns.TypeA)
	w.wantPassed("evil.example.com.", dns.TypeA)
	w.wantPassed("a.b.evil.example.com.", dns.TypeA)
	w.wantPassed("evil.example.net.", dns.TypeA)
	w.wantBlocked("evil.example.org.", dns.TypeA, phishing)
	testkit.Equal(t, "no search for names that are allowed or excepted", len(w.google.Requests("search")), 1)
}

// Lists are in memory then, as with db off.
func TestAFolderThatCannotBeWrittenIsSaidAndDoneWithout(t *testing.T) {
	t.Setenv("RUNTIME_DIRECTORY", t.TempDir())
	lines := testkit.Capture(t)
	w := threatened(t, "evil.example.com/")
	w.db = filepath.Join(writeFile(t, t.TempDir(), "file", ""), "folder")
	w.run()
	w.wantBlocked("evil.example.com.", dns.TypeA, phishing)
	testkit.WantParts(t, lines.Only(t, "Cannot write to db "+w.db), "Make the directory writable")
}

func TestMetricsCountVerdictsAndTellOfLists(t *testing.T) {
	w := threatened(t, "evil.example.com/", "other.example.com/")
	w.google.RemoveThreat("other.example.com/")
	w.run("lists se-4b")
	counted := []struct {
		name, label, value string
		more               float64
	}{
		{"verdicts_total", "decided_by", "server", 2},
		{"verdicts_total", "decided_by", "cache", 1},
		{"verdicts_total", "decided_by", "list", 1},
		{"verdicts_total", "verdict", "unsafe", 2},
		{"blocked_total", "list", "se-4b", 2},
		{"requests_total", "method", "search", 2},
	}
	for i, c := range counted {
		counted[i].more += testkit.Metric(t, c.name, c.label, c.value)
	}
	w.wantBlocked("evil.example.com.", dns.TypeA, phishing)
	w.wantBlocked("evil.example.com.", dns.TypeA, phishing)
	w.wantPassed("other.example.com.", dns.TypeA)
	w.wantPassed("clean.example.com.", dns.TypeA)
	w.wantPassed("clean.example.com.", dns.TypeTXT)
	for _, c := range counted {
		testkit.Equal(t, c.name+" of "+c.value, testkit.Metric(t, c.name, c.label, c.value), c.more)
	}
	testkit.Equal(t, "entries", testkit.Metric(t, "list_entries", "endpoint", w.endpoint), 2)
	testkit.Equal(t, "build_info of this version", testkit.Metric(t, "build_info", "version", say.Version), 1)
	now := float64(time.Now().Unix())
	testkit.Between(t, "the last success", testkit.Metric(t, "list_last_success_timestamp_seconds", "endpoint", w.endpoint), now-60, now+1)
	testkit.Between(t, "due in an hour", testkit.Metric(t, "list_next_due_timestamp_seconds", "endpoint", w.endpoint), now+3500, now+3700)
	w.stop()
	testkit.Equal(t, "no gauge of a list that is kept no more", testkit.Metric(t, "list_entries", "endpoint", w.endpoint), 0)
}

func TestWhatTheServerNeedsIsNotBlocked(t *testing.T) {
	for _, property := range []string{"unsure servfail", "inspect cname", "mode realtime", "mode nostorage", "monitor"} {
		t.Run(property, func(t *testing.T) {
			lines := testkit.Capture(t)
			w := threatened(t, "google.com/", "example.com/")
			w.google.SetMinimumWait(protocol.GlobalCache, time.Hour)
			w.google.Publish(protocol.GlobalCache, nil)
			other := fmt.Sprintf("other.example:0 {\n bind %s\n forward . dns.example.com {\n  resolver %s\n }\n}\n", w.host, w.upstream)
			w.start(w.corefile("explain", property) + other)
			list := "none"
			if property != "mode nostorage" {
				list = "se-4b"
				w.updated(1)
			}
			for range 2 { // the second answer is decided by the cache
				for _, name := range []string{"time.google.com.", "dns.example.com."} {
					w.wantPassed(name, dns.TypeA)
					passes := func() bool {
						return len(lines.About(name+" passes, although Safe Browsing lists it (social engineering, list "+list+")")) == 1
					}
					testkit.Until(w.t, "the line about "+name, passes)
				}
			}
			if property != "monitor" {
				w.wantBlocked("www.google.com.", dns.TypeA, phishing)
				w.wantBlocked("www.example.com.", dns.TypeA, phishing)
			}
			testkit.WantParts(t, w.why("time.google.com"), "decided_by=allow",
				"never blocked by Safe Browsing or a list by URL: it is a time server")
			testkit.Equal(t, "no line that it would be blocked", lines.About("Monitor: time.google.com"), nil)
		})
	}
}

// The answer for a needed name is not held back, and its targets pass too.
func TestATargetThatTheServerNeedsIsNotBlocked(t *testing.T) {
	w := threatened(t, "google.com/", "evil.example.net/")
	w.upstream = aliases(t, "@ 60 IN CNAME time.google.com.", "time.google.com. 60 IN A 192.0.2.7")
	w.run("inspect cname")
	w.wantPassed("clock.example.com.", dns.TypeA)
	w.stop()
	w.upstream = aliases(t, "@ 60 IN CNAME evil.example.net.", "evil.example.net. 60 IN A 192.0.2.7")
	w.run("inspect cname")
	w.wantPassed("time.cloudflare.com.", dns.TypeA)
	w.wantBlocked("clock.example.com.", dns.TypeA, phishing)
}

// paused writes a pause of the world's server blocks, as the command line does.
func (w *world) paused(zone string, length time.Duration) {
	w.t.Helper()
	_, err := block.ChangePauses(w.t.Context(), w.db, zone, length, false, time.Now())
	testkit.Must(w.t, err)
}

func TestAPauseLetsEveryNamePass(t *testing.T) {
	testkit.Long(t)
	if !apart(t) {
		return
	}
	lines := testkit.Capture(t)
	w := threatened(t, "evil.example.com/", "evil.example.net/")
	own := writeFile(t, t.TempDir(), "own.txt", "blocked.example.com\nblocked.example.net\n")
	other := strings.Replace(w.corefile("block "+own), ".:0 {", "example.net:0 {", 1)
	w.serve(w.corefile("block "+own, "explain") + other)
	w.wantBlocked("evil.example.com.", dns.TypeA, phishing)
	w.paused(".", time.Hour)
	testkit.Until(w.t, "a name to pass", func() bool { return !isBlocked(w.ask("evil.example.com.", dns.TypeA)) })
	w.wantPassed("blocked.example.com.", dns.TypeA)
	w.wantBlocked("blocked.example.net.", dns.TypeA, "blocklist own.txt") // another server block
	searches := len(w.searches())
	w.wantPassed("evil.example.com.", dns.TypeA)
	testkit.Equal(t, "no search in a pause", len(w.searches()), searches)
	testkit.Must(t, w.reload(w.corefile("block "+own, "explain", "ttl 30s")))
	w.wantPassed("blocked.example.com.", dns.TypeA)
	w.paused(".", 0)
	testkit.Until(w.t, "a name to be blocked", func() bool { return isBlocked(w.ask("blocked.example.com.", dns.TypeA)) })
	testkit.Until(w.t, "the line of the end", func() bool { return len(lines.About("for the server blocks for .: the pause has ended")) == 1 })
	testkit.WantParts(t, lines.Only(t, "Blocking is PAUSED until"), "[WARNING]")
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

// The Corefile of the page for sandboxes, with addresses of this machine: names that are not in it are not forwarded.
func TestOnlyTheseNamesMinusThreats(t *testing.T) {
	corefile := onlyBlock(t, sectionOf(t, "docs/network.md", "Only these names, minus threats"), "corefile")
	w := threatened(t, "raw.github.com/", "cdn.example/")
	_, stanza, _ := strings.Cut(w.corefile(), "safebrowsing {\n")
	stanza, _, _ = strings.Cut(stanza, "}")
	w.start(strings.NewReplacer(
		"        api_key_file /etc/coredns/safebrowsing.key\n", stanza, "192.168.1.2", w.host, "9.9.9.9", w.upstream,
		"github.com registry.npmjs.org deb.debian.org {", "github.com:0 registry.npmjs.org:0 deb.debian.org:0 {", ". {", ".:0 {",
	).Replace(corefile))
	w.updated(1)
	w.wantPassed("api.github.com.", dns.TypeA)
	w.wantBlocked("raw.github.com.", dns.TypeA, phishing)
	for _, name := range []string{"example.org.", "cdn.example.", "data.of.mine.notgithub.com.", "com."} {
		m := w.ask(name, dns.TypeA)
		testkit.Equal(t, name+": rcode and answers", [2]int{m.Rcode, len(m.Answer)}, [2]int{dns.RcodeRefused, 0})
	}
}
