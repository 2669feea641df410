package main

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/block"
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
	expect(t, fmt.Sprintf("the whole of %+v", f.tally), [2]int{f.URLs, f.Listed}, [2]int{f.Listed + f.NotListed + f.Unconfirmed, f.ByHost + f.ByPath})
	return f, s.errOut
}

func (m *made) wantFound(t *testing.T, f findings) {
	t.Helper()
	f.BadLines = nil
	expect(t, "found", f.totals, m.want)
	expect(t, "prefixes", f.Prefixes, len(m.prefixes))
	sum := [3]int{}
	for _, r := range slices.Concat(f.BySuffix, f.Hosting) {
		sum[0], sum[1], sum[2] = sum[0]+r.URLs, sum[1]+r.ByHost, sum[2]+r.ByPath
	}
	expect(t, "all suffixes", sum, [3]int{f.URLs, f.ByHost, f.ByPath})
}

// wantStopped wants an end before all was confirmed, after this number of searches and for this reason.
func (f *findings) wantStopped(t *testing.T, searches int, why string) {
	t.Helper()
	expect(t, "searches", f.Searches, searches)
	expect(t, "some are unconfirmed", f.Unconfirmed > 0, true)
	testkit.WantParts(t, string(f.Stopped), why)
}

// leastSearches returns the fewest searches for the prefixes that were asked about, and how many these were.
func leastSearches(s *protocoltest.Server) (least, sent, prefixes int) {
	requests := s.Requests("search")
	for _, r := range requests {
		prefixes += len(r.Prefixes)
	}
	return (prefixes + lookup.MaxPrefixes - 1) / lookup.MaxPrefixes, len(requests), prefixes
}

// The first line of what shows that coverage is right: 10,000 URLs with known truth, in as few searches as their prefixes take.
func TestAFeedOf10000URLsIsCountedRightInTheFewestSearches(t *testing.T) {
	testkit.Long(t)
	w := newWorld(t)
	m := makeFeed(w.Server, 10_000, 1)
	f, _ := counted(t, 0, "", w.flags(testkit.Write(t, t.TempDir(), "feed.txt", m.text))...)
	m.wantFound(t, f)
	least, sent, prefixes := leastSearches(w.Server)
	expect(t, "searches that are sent, and told, and prefixes of each", [3]int{sent, f.Searches, f.PerSearch}, [3]int{least, least, lookup.MaxPrefixes})
	testkit.Between(t, "searches", sent, 0, (len(m.prefixes)+lookup.MaxPrefixes-1)/lookup.MaxPrefixes)
	testkit.Between(t, "prefixes", prefixes, 0, len(m.prefixes))
	for _, r := range f.ByList {
		expect(t, string(r.Name), r.Listed, m.byList[string(r.Name)])
	}
}

// Where a CoreDNS runs, it does the work: by its lists, its cache and its clocks.
func TestCoverageGoesThroughTheDoorOfTheServerThatRuns(t *testing.T) {
	w := newWorld(t)
	m := makeFeed(w.Server, 700, 2)
	w.update(t).want(0)
	w.ClientStarted()
	blocks, err := parseCorefile(w.corefile(t, strings.Replace(usual, "db DB", "db DB\n  allow OWN(allowed.example)", 1)))
	testkit.Must(t, err)
	testkit.Must(t, blocks[0].Start())
	t.Cleanup(blocks[0].End)
	testkit.Until(t, "the lists", blocks[0].Ready)
	openDoor(t, w.dir, block.ThisProcess()) // without the DNS
	f, errOut := counted(t, 0, m.text, "-db", w.dir, "-")
	m.wantFound(t, f)
	least, sent, _ := leastSearches(w.Server)
	expect(t, "searches that are sent, and told: "+errOut, [2]int{sent, f.Searches}, [2]int{least, least})
	again, _ := counted(t, 0, m.text, "-db", w.dir, "-") // the server has all answers in its cache
	m.wantFound(t, again)
	expect(t, "searches of the second time", again.Searches, 0)
	w.wantRequests(t, "search", sent)
}

func TestCoverageCountsWhatOwnListsDo(t *testing.T) {
	w := filled(t)
	corefile := w.corefile(t, ". {\n safebrowsing {\n  endpoint ENDPOINT\n  db DB\n  block OWN(own.example mal.example)\n  allow evil.example\n }\n}\n")
	f, _ := counted(t, 0, "http://evil.example/\nhttp://mal.example/\nhttp://own.example/x\nhttp://sub.own.example/\nhttp://clean.example/\n", "-corefile", corefile, "-now", "-")
	expect(t, "found", f.tally, tally{URLs: 5, Listed: 2, ByHost: 2, NotListed: 3})
	expect(t, "own lists add and let pass", [2]int{f.OwnAdds, f.OwnAllows}, [2]int{2, 1})
}

func TestCoverageByAgeSuffixAndList(t *testing.T) {
	w := filled(t)
	now := time.Now().UTC()
	text := "url,dateadded\n"
	for i, age := range []time.Duration{time.Minute, 2 * time.Hour, 48 * time.Hour, 10 * 24 * time.Hour, 99 * 24 * time.Hour} {
		text += fmt.Sprintf("http://evil.example/%d,%s\n", i, now.Add(-age).Format(time.DateTime))
	}
	text += "http://mal.example/,\nhttp://a.github.io/,\n"
	f, _ := counted(t, 0, text, w.flags("-")...)
	var byAge []row
	for _, age := range ages {
		byAge = append(byAge, listedByHost(age, 1))
	}
	expect(t, "by age", f.ByAge, byAge)
	expect(t, "by list", f.ByList, []row{listedByHost("se-4b", 5), listedByHost("mw-4b", 1)})
	expect(t, "by suffix", f.BySuffix, []row{listedByHost("example", 6)})
	expect(t, "hosting", f.Hosting, []row{{"github.io", tally{URLs: 1, NotListed: 1}}})
	expect(t, "by domain", f.ByDomain, []row{listedByHost("evil.example", 5), listedByHost("mal.example", 1)})
}

func listedByHost(name string, n int) row {
	return row{text(name), tally{URLs: n, Listed: n, ByHost: n}}
}

func TestADryRunSendsNoSearch(t *testing.T) {
	w := newWorld(t)
	m := makeFeed(w.Server, 700, 3)
	f, errOut := counted(t, 0, m.text, w.flags("-dry-run", "-resume", filepath.Join(t.TempDir(), "x"), "-")...)
	w.wantRequests(t, "search", 0)
	expect(t, "dry", f.DryRun, true)
	w.ClientStarted()
	done, _ := counted(t, 0, m.text, w.flags("-")...)
	testkit.Between(t, "searches that are said before: "+errOut, f.Searches, done.Searches, done.Searches+1)
	expect(t, "prefixes", f.Prefixes, done.Prefixes)
	m.wantFound(t, done)
}

// A run that was stopped continues without asking again what it knows, and the server would complain.
func TestAStoppedRunGoesOn(t *testing.T) {
	w := newWorld(t)
	w.SetCacheDuration(time.Hour) // longer than the test takes on any machine
	m := makeFeed(w.Server, 1_500, 4)
	file := filepath.Join(t.TempDir(), "answers.json")
	args := w.flags("-resume", file, "-")
	f, _ := counted(t, 1, m.text, append([]string{"-searches", "2"}, args...)...)
	f.wantStopped(t, 2, "as many as -searches allows")
	dry, _ := counted(t, 0, m.text, append([]string{"-dry-run"}, args...)...)
	// The second run is stopped while it waits for an answer.
	w.Break("search", 1, protocoltest.Fault{Delay: time.Minute})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan said, 1)
	go func() { ended <- runIn(ctx, t, strings.NewReader(m.text), append([]string{"coverage"}, args...)...) }()
	testkit.Until(t, "the third search", func() bool { return len(w.Requests("search")) == 3 })
	w.ClientCancelled()
	cancel()
	(<-ended).want(2, "run the same command again: it continues with what is in "+file).mute()
	testkit.Until(t, "the server to see that", func() bool { return w.Requests("search")[2].Done })
	f, _ = counted(t, 0, m.text, args...)
	m.wantFound(t, f)
	least, sent, prefixes := leastSearches(w.Server)
	testkit.Between(t, "searches after 2", dry.Searches, 0, f.Searches-2)
	testkit.Between(t, "searches", sent, 0, min(least, f.Searches)+1)
	testkit.Between(t, "prefixes", prefixes, 0, len(m.prefixes)+lookup.MaxPrefixes)
	expect(t, "the file is left", exists(file), false)
}

func TestAnAnswerThatHasExpiredIsAskedForAgain(t *testing.T) {
	w := newWorld(t)
	m := makeFeed(w.Server, 700, 5)
	file := filepath.Join(t.TempDir(), "answers.json")
	args := w.flags("-resume", file, "-")
	counted(t, 1, m.text, append([]string{"-searches", "1"}, args...)...)
	var s state
	testkit.Must(t, json.Unmarshal([]byte(read(t, file)), &s))
	expect(t, "answers", len(s.Answers), lookup.MaxPrefixes)
	for i, a := range s.Answers {
		testkit.Between(t, "an answer lives for", time.Until(a.Until), 1, 5*time.Minute)
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
	asked := ""
	for _, r := range w.Requests("search")[1:] {
		asked += fmt.Sprintf("%x", r.Prefixes)
	}
	for _, a := range s.Answers { // all again
		testkit.WantParts(t, asked, a.Prefix)
	}
	w.wantRequests(t, "search", f.Searches)
	write(t, file, `{"service":"another","answers":[]}`)
	fed(t, m.text, append([]string{"coverage"}, args...)...).want(2, "has answers of another, and now Safe Browsing v5 at "+w.endpoint)
	write(t, file, "feed")
	fed(t, m.text, append([]string{"coverage"}, args...)...).want(2, "is not a file of -resume")
}

// Answers that were cached when the feed was read have expired when they are needed.
func TestCoverageSendsNoMoreSearchesThanItMay(t *testing.T) {
	p := new(scripted)
	c := newCounter(p, lookup.RuleV5, time.Now())
	for i := range 4 {
		hash := lookup.HashExpression(fmt.Sprintf("%d.example/", i))
		c.suspects = append(c.suspects, page{hosts: []lookup.FullHash{hash}})
		c.listed[hash.Prefix(4)] = block.Listed{Lists: []string{"se-4b"}, Ask: 0}
	}
	s := &state{known: make(map[lookup.Prefix]bool)}
	search := &confirming{counter: c, state: s, perSearch: 2, most: 1, tell: t.Logf, progress: func(int) {}}
	search.plan()
	testkit.Must(t, search.run(t.Context()))
	expect(t, "searches", len(p.asked), 1)
	expect(t, "it was stopped", search.stopped != "", true)
}

// A refusal of the service holds for coverage as for a CoreDNS, and for the next run.
func TestCoverageKeepsTheBackOffOfTheService(t *testing.T) {
	w := newWorld(t)
	w.JudgeSearchBackoff(true)
	m := makeFeed(w.Server, 900, 6)
	file := filepath.Join(t.TempDir(), "answers.json")
	args := w.flags("-resume", file, "-")
	counted(t, 1, m.text, append([]string{"-searches", "1"}, args...)...)
	w.Break("search", 1, protocoltest.Fault{Status: http.StatusTooManyRequests})
	for range 2 {
		f, _ := counted(t, 1, m.text, args...)
		f.wantStopped(t, f.Searches, "back-off after a failure")
		until, err := time.Parse(time.RFC3339, f.Until)
		testkit.Must(t, err)
		testkit.Between(t, "the back-off", time.Until(until), 14*time.Minute, 24*time.Hour)
	}
	w.wantRequests(t, "search", 2) // the first and the one that was refused
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
		f.wantStopped(t, 3, "the day's budget of 3 searches is spent")
		testkit.WantParts(t, errOut, "are left today")
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
	paid := append([]string{"coverage"}, w.flags("-protocol", "webrisk", "-")...)
	fed(t, text, paid...).want(2, "each search costs money, and there is no budget")
	w.ClientStarted()
	f, errOut := counted(t, 0, text, w.flags("-protocol", "webrisk", "-searches", "5", "-")...)
	expect(t, "found", f.tally, tally{URLs: 3, Listed: 2, ByHost: 2, NotListed: 1})
	expect(t, "searches, and prefixes in each", [2]int{f.Searches, f.PerSearch}, [2]int{1, 1})
	w.wantRequests(t, "search", 1)
	testkit.WantParts(t, errOut, "at most 2 searches of 1 prefix, which cost 0.10 US-$ at list price")
}

// Version 4 makes other expressions of a host, and sends prefixes in the length that the lists hold.
func TestCoverageByVersion4(t *testing.T) {
	w := newWorld(t)
	host, page := lookup.HashExpression("a.co.uk/"), lookup.HashExpression("co.uk/a/")
	w.AddThreat("a.co.uk/", sbv5.ThreatType_SOCIAL_ENGINEERING)
	w.AddThreat("co.uk/a/", sbv5.ThreatType_SOCIAL_ENGINEERING)
	w.Publish("se-4b", [][]byte{host[:7], page[:4]})
	f, _ := counted(t, 0, "http://www.a.co.uk/x\nhttp://b.co.uk/a/b\nhttp://c.co.uk/\n", w.flags("-protocol", "v4", "-")...)
	expect(t, "found", f.tally, tally{URLs: 3, Listed: 2, ByHost: 1, ByPath: 1, NotListed: 1})
	expect(t, "searches", fmt.Sprint(f.Searches, " of ", f.Service), "1 of Safe Browsing v4")
	w.wantRequests(t, "search", 1)
	expect(t, "asked about", slices.SortedFunc(slices.Values(w.Requests("search")[0].Prefixes), bytes.Compare), slices.SortedFunc(slices.Values([][]byte{host[:7], page[:4]}), bytes.Compare))
}

func TestCoverageDrawsAPicture(t *testing.T) {
	w := filled(t)
	file, answers := filepath.Join(t.TempDir(), "a&b.svg"), filepath.Join(t.TempDir(), "answers.json")
	drawn := func(file string) said {
		return fed(t, "http://evil.example/\nhttp://clean.example/<x>\n", append([]string{"coverage"}, w.flags("-resume", answers, "-svg", file, "-")...)...)
	}
	// What was found is told, and what was paid for stays, if the picture cannot be written.
	drawn("no/where.svg").want(2, "DNS stops 100.0 %.", "no such file")
	drawn(file).want(0, "Of what is listed, DNS stops 100.0 %.", "se-4b (phishing)", "1 search of at most 240 prefixes, for 1 prefix that a list holds.").not("By domain")
	picture := read(t, file)
	testkit.WantParts(t, picture, "<title id=\"title\">What DNS stops of 2 URLs</title>")
	testkit.WantNone(t, picture, "<no value>")
	testkit.Must(t, xml.Unmarshal([]byte(picture), new(struct{})))
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
	w.wantRequests(t, "search", 0)
}

// In no mode is a prefix sent that no list holds: that would tell of each URL.
func TestCoverageSendsOnlyWhatAListHolds(t *testing.T) {
	w := newWorld(t)
	m := makeFeed(w.Server, 300, 8)
	w.Publish("gc-32b", nil)
	corefile := w.corefile(t, ". {\n safebrowsing {\n  endpoint ENDPOINT\n  db DB\n  mode realtime\n }\n}\n")
	f, errOut := counted(t, 0, m.text, "-corefile", corefile, "-now", "-")
	m.wantFound(t, f)
	for _, r := range w.Requests("search") {
		for _, p := range r.Prefixes {
			expect(t, fmt.Sprintf("a list holds %x, which was sent", p), m.prefixes[lookup.Prefix(p)], true)
		}
	}
	expect(t, "mode", f.Mode, "realtime")
	testkit.WantParts(t, errOut, "mode realtime also asks about names that no list holds")
	corefile = w.corefile(t, ". {\n safebrowsing {\n  endpoint ENDPOINT\n  db DB\n  mode nostorage\n }\n}\n")
	fed(t, m.text, "coverage", "-corefile", corefile, "-").want(2, "mode nostorage, which keeps no lists")
}
