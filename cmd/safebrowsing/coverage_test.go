package main

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/block"
	"github.com/coredns-safebrowsing/safebrowsing/internal/control"
	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol/pb/sbv5"
	"github.com/coredns-safebrowsing/safebrowsing/internal/protocoltest"
	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

// counted runs coverage with JSON, and returns what it found.
func counted(t *testing.T, wantStatus int, in string, args ...string) (f findings, errOut string) {
	t.Helper()
	s := fed(t, in, append([]string{"coverage", "-json"}, args...)...).want(wantStatus)
	f = decode[findings](t, s.out)[0]
	if f.URLs != f.Listed+f.NotListed+f.Unconfirmed || f.Listed != f.ByHost+f.ByPath {
		t.Errorf("the parts are not the whole: %+v", f.tally)
	}
	return f, s.errOut
}

// wantFound compares what coverage found with what is known.
func (m *made) wantFound(t *testing.T, f findings) {
	t.Helper()
	if f.tally != m.want || f.Addresses != m.addresses || f.Private != m.private || f.Duplicates != m.duplicates || f.Bad != m.bad {
		t.Errorf("found %+v, addresses %d, private %d, duplicates %d, bad %d, want %+v, %d, %d, %d, %d",
			f.tally, f.Addresses, f.Private, f.Duplicates, f.Bad, m.want, m.addresses, m.private, m.duplicates, m.bad)
	}
	if f.Prefixes != len(m.prefixes) {
		t.Errorf("%d prefixes are listed, want %d", f.Prefixes, len(m.prefixes))
	}
	sum := tally{}
	for _, rows := range [][]row{f.BySuffix, f.Hosting} {
		for _, r := range rows {
			sum.URLs, sum.ByHost, sum.ByPath = sum.URLs+r.URLs, sum.ByHost+r.ByHost, sum.ByPath+r.ByPath
		}
	}
	if sum.URLs != f.URLs || sum.ByHost != f.ByHost || sum.ByPath != f.ByPath {
		t.Errorf("the suffixes have %+v in all, want %+v", sum, f.tally)
	}
}

// leastSearches returns the fewest searches for the prefixes that were asked about, and how many these
// were.
func leastSearches(s *protocoltest.Server) (least, sent, prefixes int) {
	requests := s.Requests("search")
	for _, r := range requests {
		prefixes += len(r.Prefixes)
	}
	return (prefixes + lookup.MaxPrefixes - 1) / lookup.MaxPrefixes, len(requests), prefixes
}

// The first line of what shows that coverage is right: 10,000 URLs with known truth, in as few searches
// as their prefixes take.
func TestAFeedOf10000URLsIsCountedRightInTheFewestSearches(t *testing.T) {
	testkit.Long(t)
	w := newWorld(t)
	m := makeFeed(w.Server, 10_000, 1)
	path := filepath.Join(t.TempDir(), "feed.txt")
	write(t, path, m.text)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	begun := time.Now()
	f, _ := counted(t, 0, "", "-endpoint", w.endpoint, "-db", w.dir, "-now", path)
	took := time.Since(begun)
	runtime.ReadMemStats(&after)
	m.wantFound(t, f)
	least, sent, prefixes := leastSearches(w.Server)
	if sent != least || f.Searches != sent || f.PerSearch != lookup.MaxPrefixes {
		t.Errorf("%d searches, and %d are told, for %d prefixes: %d would do", sent, f.Searches, prefixes, least)
	}
	if all := (len(m.prefixes) + lookup.MaxPrefixes - 1) / lookup.MaxPrefixes; sent > all || prefixes > len(m.prefixes) {
		t.Errorf("%d searches for %d prefixes, want at most %d for %d", sent, prefixes, all, len(m.prefixes))
	}
	for _, r := range f.ByList {
		if r.Listed != m.byList[string(r.Name)] {
			t.Errorf("%s lists %d, want %d", r.Name, r.Listed, m.byList[string(r.Name)])
		}
	}
	t.Logf("%d URLs: %d prefixes in %d searches, the least possible; %s, %.1f MB allocated", f.URLs, prefixes, sent, took.Round(time.Millisecond), float64(after.TotalAlloc-before.TotalAlloc)/1e6)
}

// nobody knows no prefix.
type nobody struct{}

func (nobody) Listings(context.Context, block.Question) (block.Listings, error) {
	return block.Listings{}, nil
}
func (nobody) Confirm(context.Context, block.Question) (block.Confirmed, error) {
	return block.Confirmed{}, errors.New("nobody confirms")
}

// Where a CoreDNS runs, it does the work: by its lists, its cache and its clocks.
func TestCoverageGoesThroughTheDoorOfTheServerThatRuns(t *testing.T) {
	w := newWorld(t)
	m := makeFeed(w.Server, 700, 2)
	w.update(t).want(0)
	w.ClientStarted()
	runServer(t, w, "allow OWN(allowed.example)")
	f, errOut := counted(t, 0, m.text, "-db", w.dir, "-")
	m.wantFound(t, f)
	least, sent, _ := leastSearches(w.Server)
	if sent != least || f.Searches != sent {
		t.Errorf("%d searches, and %d are told: %d would do: %s", sent, f.Searches, least, errOut)
	}
	again, _ := counted(t, 0, m.text, "-db", w.dir, "-") // the server has all answers in its cache
	m.wantFound(t, again)
	if again.Searches != 0 || len(w.Requests("search")) != sent {
		t.Errorf("the second time: %d searches", again.Searches)
	}
}

// runServer runs the server blocks of a Corefile behind a door, without the DNS.
func runServer(t *testing.T, w *world, properties string) {
	t.Helper()
	blocks, err := parseCorefile(w.corefile(t, ". {\n safebrowsing {\n  endpoint ENDPOINT\n  db DB\n  "+properties+"\n }\n}\n"))
	testkit.Must(t, err)
	b := blocks[0].Block
	testkit.Must(t, b.Start())
	t.Cleanup(b.End)
	testkit.Until(t, "the lists", b.Ready)
	_, release, err := new(control.Doors).Open(w.dir, block.ThisProcess())
	testkit.Must(t, err)
	t.Cleanup(release)
}

func TestCoverageCountsWhatOwnListsDo(t *testing.T) {
	w := filled(t)
	corefile := w.corefile(t, ". {\n safebrowsing {\n  endpoint ENDPOINT\n  db DB\n  block OWN(own.example mal.example)\n  allow evil.example\n }\n}\n")
	f, _ := counted(t, 0, "http://evil.example/\nhttp://mal.example/\nhttp://own.example/x\nhttp://sub.own.example/\nhttp://clean.example/\n", "-corefile", corefile, "-now", "-")
	if want := (tally{URLs: 5, Listed: 2, ByHost: 2, NotListed: 3}); f.tally != want || f.OwnAdds != 2 || f.OwnAllows != 1 {
		t.Errorf("%+v, own lists add %d and let %d pass", f.tally, f.OwnAdds, f.OwnAllows)
	}
}

func TestCoverageByAgeSuffixAndList(t *testing.T) {
	w := filled(t)
	now := time.Now().UTC()
	text := "url,dateadded\n"
	for i, age := range []time.Duration{time.Minute, 2 * time.Hour, 48 * time.Hour, 10 * 24 * time.Hour, 99 * 24 * time.Hour} {
		text += fmt.Sprintf("http://evil.example/%d,%s\n", i, now.Add(-age).Format(time.DateTime))
	}
	text += "http://mal.example/,\nhttp://a.github.io/,\n"
	f, _ := counted(t, 0, text, "-endpoint", w.endpoint, "-db", w.dir, "-now", "-")
	for i, r := range f.ByAge {
		if string(r.Name) != ages[i] || r.ByHost != 1 || r.URLs != 1 {
			t.Errorf("%+v", r)
		}
	}
	if len(f.ByAge) != len(ages) || len(f.ByList) != 2 || f.ByList[0] != (row{"se-4b", tally{URLs: 5, Listed: 5, ByHost: 5}}) {
		t.Errorf("%+v, %+v", f.ByAge, f.ByList)
	}
	if want := []row{{"example", tally{URLs: 6, Listed: 6, ByHost: 6}}}; !slices.Equal(f.BySuffix, want) {
		t.Errorf("%+v", f.BySuffix)
	}
	if want := []row{{"github.io", tally{URLs: 1, NotListed: 1}}}; !slices.Equal(f.Hosting, want) {
		t.Errorf("%+v", f.Hosting)
	}
	if len(f.ByDomain) != 2 || f.ByDomain[0].Name != "evil.example" || f.ByDomain[0].URLs != 5 {
		t.Errorf("%+v", f.ByDomain)
	}
}

func TestADryRunSendsNoSearch(t *testing.T) {
	w := newWorld(t)
	m := makeFeed(w.Server, 700, 3)
	f, errOut := counted(t, 0, m.text, "-endpoint", w.endpoint, "-db", w.dir, "-now", "-dry-run", "-resume", filepath.Join(t.TempDir(), "x"), "-")
	if n := len(w.Requests("search")); n != 0 || !f.DryRun {
		t.Errorf("%d searches were sent", n)
	}
	w.ClientStarted()
	done, _ := counted(t, 0, m.text, "-endpoint", w.endpoint, "-db", w.dir, "-now", "-")
	if f.Searches < done.Searches || f.Searches > done.Searches+1 || f.Prefixes != done.Prefixes {
		t.Errorf("%d searches are said before, and it took %d: %s", f.Searches, done.Searches, errOut)
	}
	m.wantFound(t, done)
}

// A run that was stopped continues without asking again what it knows, and the server would complain.
func TestAStoppedRunGoesOn(t *testing.T) {
	w := newWorld(t)
	w.SetCacheDuration(time.Hour) // longer than the test takes on any machine
	m := makeFeed(w.Server, 1_500, 4)
	file := filepath.Join(t.TempDir(), "answers.json")
	args := []string{"-endpoint", w.endpoint, "-db", w.dir, "-now", "-resume", file, "-"}
	f, _ := counted(t, 1, m.text, append([]string{"-searches", "2"}, args...)...)
	if f.Searches != 2 || f.Unconfirmed == 0 || !strings.Contains(string(f.Stopped), "as many as -searches allows") {
		t.Errorf("%d searches, %d unconfirmed, %s", f.Searches, f.Unconfirmed, f.Stopped)
	}
	dry, _ := counted(t, 0, m.text, append([]string{"-dry-run"}, args...)...)
	// The second run is stopped while it waits for an answer.
	w.Break("search", 1, protocoltest.Fault{Delay: time.Minute})
	ctx, cancel := context.WithCancel(t.Context())
	var out, errOut testkit.Output
	ended := make(chan int, 1)
	go func() {
		ended <- execute(ctx, append([]string{"safebrowsing", "coverage"}, args...), strings.NewReader(m.text), &out, &errOut)
	}()
	testkit.Until(t, "the third search", func() bool { return len(w.Requests("search")) == 3 })
	w.ClientCancelled()
	cancel()
	if status := <-ended; status != 2 || !strings.Contains(errOut.String(), "run the same command again: it continues with what is in "+file) || out.String() != "" {
		t.Errorf("stopped: status %d, %s%s", status, &out, &errOut)
	}
	testkit.Until(t, "the server to see that", func() bool { return w.Requests("search")[2].Done })
	f, _ = counted(t, 0, m.text, args...)
	m.wantFound(t, f)
	least, sent, prefixes := leastSearches(w.Server)
	if dry.Searches > f.Searches-2 {
		t.Errorf("after 2 of %d searches it would take %d", f.Searches, dry.Searches)
	}
	if f.Searches < sent-1 || sent > least+1 || prefixes > len(m.prefixes)+lookup.MaxPrefixes {
		t.Errorf("%d searches are told, %d were sent for %d prefixes, want at most one more than %d", f.Searches, sent, prefixes, least)
	}
	if _, err := os.Stat(file); err == nil {
		t.Errorf("%s is left, and all is known", file)
	}
}

// An answer may be used for its life, and not longer.
func TestAnAnswerThatHasExpiredIsAskedForAgain(t *testing.T) {
	w := newWorld(t)
	m := makeFeed(w.Server, 700, 5)
	file := filepath.Join(t.TempDir(), "answers.json")
	args := []string{"-endpoint", w.endpoint, "-db", w.dir, "-now", "-resume", file, "-"}
	counted(t, 1, m.text, append([]string{"-searches", "1"}, args...)...)
	var s state
	if err := json.Unmarshal([]byte(read(t, file)), &s); err != nil || len(s.Answers) != lookup.MaxPrefixes {
		t.Fatalf("%d answers, %v", len(s.Answers), err)
	}
	for i, a := range s.Answers {
		if left := time.Until(a.Until); left <= 0 || left > 5*time.Minute {
			t.Errorf("an answer lives for %s", left)
		}
		s.Answers[i].Until = time.Now().Add(-time.Second)
		if i%2 == 0 { // the clock was ahead
			s.Answers[i].At, s.Answers[i].Until = time.Now().Add(time.Hour), time.Now().Add(2*time.Hour)
		}
	}
	raw, _ := json.Marshal(s)
	write(t, file, string(raw))
	w.ClientStarted() // that forgets
	f, _ := counted(t, 0, m.text, args...)
	m.wantFound(t, f)
	again := make(map[string]bool)
	for _, r := range w.Requests("search")[1:] {
		for _, p := range r.Prefixes {
			again[hex.EncodeToString(p)] = true
		}
	}
	for _, a := range s.Answers {
		if !again[a.Prefix] {
			t.Errorf("%s is not asked about again", a.Prefix)
		}
	}
	if _, sent, _ := leastSearches(w.Server); f.Searches != sent {
		t.Errorf("%d searches, %d are told", sent, f.Searches)
	}
	write(t, file, `{"service":"another","answers":[]}`)
	fed(t, m.text, append([]string{"coverage"}, args...)...).want(2, "has answers of another, and now Safe Browsing v5 at "+w.endpoint)
	write(t, file, "feed")
	fed(t, m.text, append([]string{"coverage"}, args...)...).want(2, "is not a file of -resume")
}

// paid sends a search for whatever it is asked about.
type paid struct {
	nobody
	searches int
}

func (p *paid) Confirm(_ context.Context, q block.Question) (c block.Confirmed, _ error) {
	p.searches++
	for i := 0; i < len(q.Prefixes); i += 4 {
		c.Answers = append(c.Answers, block.PrefixAnswer{Prefix: hex.EncodeToString(q.Prefixes[i : i+4])})
	}
	c.Searches = 1
	return c, nil
}

// Answers that were cached when the feed was read have expired when they are needed.
func TestCoverageSendsNoMoreSearchesThanItMay(t *testing.T) {
	p := new(paid)
	c := newCounter(p, lookup.RuleV5, time.Now())
	for i := range 4 {
		hash := lookup.HashExpression(fmt.Sprintf("%d.example/", i))
		c.suspects = append(c.suspects, page{hosts: []lookup.FullHash{hash}})
		c.listed[hash.Prefix(4)] = block.Listed{Lists: []string{"se-4b"}, Ask: 0}
	}
	s, err := openState("", "", time.Now())
	testkit.Must(t, err)
	search := &confirming{counter: c, state: s, perSearch: 2, most: 1, tell: t.Logf, progress: func(int) {}}
	search.plan()
	testkit.Must(t, search.run(t.Context()))
	if p.searches != 1 || search.stopped == "" {
		t.Errorf("%d searches, stopped by %q", p.searches, search.stopped)
	}
}

// A refusal of the service holds for coverage as for a CoreDNS, and for the next run.
func TestCoverageKeepsTheBackOffOfTheService(t *testing.T) {
	w := newWorld(t)
	w.JudgeSearchBackoff(true)
	m := makeFeed(w.Server, 900, 6)
	file := filepath.Join(t.TempDir(), "answers.json")
	args := []string{"-endpoint", w.endpoint, "-db", w.dir, "-now", "-resume", file, "-"}
	counted(t, 1, m.text, append([]string{"-searches", "1"}, args...)...)
	w.Break("search", 1, protocoltest.Fault{Status: http.StatusTooManyRequests})
	for range 2 {
		f, _ := counted(t, 1, m.text, args...)
		until, err := time.Parse(time.RFC3339, f.Until)
		if f.Unconfirmed == 0 || !strings.Contains(string(f.Stopped), "back-off after a failure") || err != nil || time.Until(until) < 14*time.Minute {
			t.Errorf("%d unconfirmed, %s until %s", f.Unconfirmed, f.Stopped, f.Until)
		}
	}
	if n := len(w.Requests("search")); n != 2 {
		t.Errorf("%d searches, want the first and the one that was refused", n)
	}
}

// The budget of the Corefile holds over several runs.
func TestCoverageKeepsToTheBudget(t *testing.T) {
	w := newWorld(t)
	m := makeFeed(w.Server, 1_300, 7)
	w.SetBudget(3, time.Now().Add(-time.Hour))
	corefile := w.corefile(t, ". {\n safebrowsing {\n  endpoint ENDPOINT\n  db DB\n  budget 3\n }\n}\n")
	file := filepath.Join(t.TempDir(), "answers.json")
	for range 2 {
		f, errOut := counted(t, 1, m.text, "-corefile", corefile, "-now", "-resume", file, "-")
		if f.Searches != 3 || f.Unconfirmed == 0 || !strings.Contains(string(f.Stopped), "the day's budget of 3 searches is spent") || !strings.Contains(errOut, "are left today") {
			t.Errorf("%d searches, %d unconfirmed, %s: %s", f.Searches, f.Unconfirmed, f.Stopped, errOut)
		}
	}
}

// Web Risk asks about one prefix at a time, and each costs money: none is sent that changes nothing.
func TestCoverageByWebRisk(t *testing.T) {
	w := newWorld(t)
	w.SetKey("OWN")
	for _, list := range []string{"se-4b", "mw-4b"} {
		w.AddThreat(list+".example/", sbv5.ThreatType_MALWARE)
	}
	hash, page := lookup.HashExpression("se-4b.example/"), lookup.HashExpression("se-4b.example/a/")
	w.Publish("se-4b", [][]byte{hash[:4], page[:4]})
	const text = "http://se-4b.example/a/b\nhttp://www.se-4b.example/a/c\nhttp://clean.example/\n"
	t.Setenv("SAFEBROWSING_API_KEY", "OWN")
	args := []string{"-protocol", "webrisk", "-endpoint", w.endpoint, "-db", w.dir, "-now"}
	fed(t, text, append(append([]string{"coverage"}, args...), "-")...).want(2, "each search costs money, and there is no budget")
	w.ClientStarted()
	f, errOut := counted(t, 0, text, append(args, "-searches", "5", "-")...)
	if want := (tally{URLs: 3, Listed: 2, ByHost: 2, NotListed: 1}); f.tally != want || f.Searches != 1 || f.PerSearch != 1 || len(w.Requests("search")) != 1 {
		t.Errorf("%+v in %d searches, %d were sent: %s", f.tally, f.Searches, len(w.Requests("search")), errOut)
	}
	if !strings.Contains(errOut, "at most 2 searches of 1 prefix, which cost 0.10 US-$ at list price") {
		t.Errorf("before: %s", errOut)
	}
}

// Version 4 makes other expressions of a host, and sends prefixes in the length that the lists hold.
func TestCoverageByVersion4(t *testing.T) {
	w := newWorld(t)
	host, page := lookup.HashExpression("a.co.uk/"), lookup.HashExpression("co.uk/a/")
	w.AddThreat("a.co.uk/", sbv5.ThreatType_SOCIAL_ENGINEERING)
	w.AddThreat("co.uk/a/", sbv5.ThreatType_SOCIAL_ENGINEERING)
	w.Publish("se-4b", [][]byte{host[:7], page[:4]})
	f, errOut := counted(t, 0, "http://www.a.co.uk/x\nhttp://b.co.uk/a/b\nhttp://c.co.uk/\n", "-protocol", "v4", "-endpoint", w.endpoint, "-db", w.dir, "-now", "-")
	if want := (tally{URLs: 3, Listed: 2, ByHost: 1, ByPath: 1, NotListed: 1}); f.tally != want || f.Searches != 1 || f.Service != "Safe Browsing v4" {
		t.Errorf("%+v in %d searches of %s: %s", f.tally, f.Searches, f.Service, errOut)
	}
	if asked := w.Requests("search"); len(asked) != 1 || len(asked[0].Prefixes) != 2 || !slices.ContainsFunc(asked[0].Prefixes, func(p []byte) bool { return bytes.Equal(p, host[:7]) }) {
		t.Errorf("asked about %+v", asked)
	}
}

func TestCoverageDrawsAPicture(t *testing.T) {
	w := filled(t)
	file, answers := filepath.Join(t.TempDir(), "a&b.svg"), filepath.Join(t.TempDir(), "answers.json")
	drawn := func(file string) said {
		return fed(t, "http://evil.example/\nhttp://clean.example/<x>\n", "coverage", "-endpoint", w.endpoint, "-db", w.dir, "-now", "-resume", answers, "-svg", file, "-")
	}
	// What was found is told, and what was paid for stays, if the picture cannot be written.
	drawn("no/where.svg").want(2, "DNS stops 100.0 %.", "no such file")
	out := drawn(file).
		want(0, "Of what is listed, DNS stops 100.0 %.", "se-4b (phishing)", "1 search of at most 240 prefixes, for 1 prefix that a list holds.").out
	if strings.Contains(out, "By domain") {
		t.Error(out)
	}
	raw, err := os.ReadFile(file)
	testkit.Must(t, err)
	if !bytes.Contains(raw, []byte("<title id=\"title\">What DNS stops of 2 URLs</title>")) || bytes.Contains(raw, []byte("<no value>")) {
		t.Errorf("%s", raw)
	}
	testkit.Must(t, xml.Unmarshal(raw, new(struct{})))
}

func TestCoverageThatCannotBegin(t *testing.T) {
	w := newWorld(t)
	t.Chdir(t.TempDir())
	for name, tc := range map[string]struct{ in, want string }{
		"-endpoint " + w.endpoint + " -db lists -now -":           {"# nothing\n", "no URL in -"},
		"-endpoint " + w.endpoint + " -db lists -now -column x -": {"url,y\nhttp://a.example/,1\n", `no URL in -: line 1: there is no column "x"`},
		"-endpoint http://127.0.0.1:1 -db none -now -":            {"http://a.example/\n", "none has no list that can be used"},
		"-db none -now -": {"http://a.example/\n", "no API key: set $SAFEBROWSING_API_KEY"},
		"-endpoint " + w.endpoint + " -corefile x -db lists -": {"", "-corefile and -db are both given"},
		"none.txt":       {"", "no such file"},
		"":               {"", "coverage takes one file, or - for standard input"},
		"-format xml -":  {"", `-format: "xml" is not one of lines, csv, squid, common, json`},
		"-searches=-1 -": {"", "-searches must not be negative"},
		"-endpoint " + w.endpoint + " -db lists -now -resume no/where -": {"http://evil.example/\n", "no such file"},
	} {
		fed(t, tc.in, append([]string{"coverage"}, strings.Fields(name)...)...).want(2, tc.want).mute()
	}
	if n := len(w.Requests("search")); n != 0 {
		t.Errorf("%d searches", n)
	}
}

// In no mode is a prefix sent that no list holds: that would tell of each URL.
func TestCoverageSendsOnlyWhatAListHolds(t *testing.T) {
	w := newWorld(t)
	m := makeFeed(w.Server, 300, 8)
	var safe [][]byte
	for i := range 200 {
		hash := lookup.HashExpression(fmt.Sprintf("safe%d.example/", i))
		safe = append(safe, hash[:])
	}
	w.Publish("gc-32b", safe)
	corefile := w.corefile(t, ". {\n safebrowsing {\n  endpoint ENDPOINT\n  db DB\n  mode realtime\n }\n}\n")
	f, errOut := counted(t, 0, m.text, "-corefile", corefile, "-now", "-")
	m.wantFound(t, f)
	for _, r := range w.Requests("search") {
		for _, p := range r.Prefixes {
			if !m.prefixes[lookup.Prefix(p)] {
				t.Errorf("%x was sent, and no list holds it", p)
			}
		}
	}
	if f.Mode != "realtime" || !strings.Contains(errOut, "mode realtime also asks about names that no list holds") {
		t.Errorf("%s: %s", f.Mode, errOut)
	}
	corefile = w.corefile(t, ". {\n safebrowsing {\n  endpoint ENDPOINT\n  db DB\n  mode nostorage\n }\n}\n")
	fed(t, m.text, "coverage", "-corefile", corefile, "-").want(2, "mode nostorage, which keeps no lists")
}
