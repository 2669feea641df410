package main

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/block"
	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol/pb/sbv5"
	"github.com/coredns-safebrowsing/safebrowsing/internal/protocoltest"
	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

func entriesOf(t testing.TB, f feedReader, text string) (all []feedEntry) {
	t.Helper()
	testkit.Must(t, f.read(strings.NewReader(text), func(e feedEntry) bool { all = append(all, e); return true }))
	return all
}

func shown(t *testing.T, f feedReader, text string) string {
	var all []string
	for _, e := range entriesOf(t, f, text) {
		all = append(all, e.shown())
	}
	return strings.Join(all, ", ")
}

// shown returns an entry as testdata/coverage/expected.txt has it.
func (e feedEntry) shown() string {
	what, at := e.URL, "-"
	if e.Err != nil {
		what = e.Err.Error()
	}
	if !e.At.IsZero() {
		at = e.At.UTC().Format(time.RFC3339Nano)
	}
	return fmt.Sprintf("%d | %s | %s", e.Line, what, at)
}

// Each published form is read as it is, without being told which it is.
func TestTheFormsOfFeedsAreReadAsTheVectorsSay(t *testing.T) {
	dir := filepath.Join("..", "..", "testdata", "coverage")
	want := make(map[string]string)
	for line := range strings.Lines(read(t, filepath.Join(dir, "expected.txt"))) {
		if !strings.HasPrefix(line, "#") {
			file, rest, _ := strings.Cut(line, " | ")
			want[file] += rest
		}
	}
	found, _ := filepath.Glob(filepath.Join(dir, "*"))
	expect(t, "files, with what is expected of them", len(found), len(want)+1)
	for file, want := range want {
		expect(t, file, shown(t, feedReader{}, read(t, filepath.Join(dir, file))), strings.ReplaceAll(strings.TrimSpace(want), "\n", ", "))
	}
}

func TestAFeedIsReadAsTheFlagsSay(t *testing.T) {
	for name, tc := range map[string]struct {
		feed       feedReader
		text, want string
	}{
		"a byte order mark, blanks and comments": {feedReader{}, "\uFEFFhttp://a.example/ seen\r\n\r\n# http://b.example/\n  c.example/x\t\n", "1 | http://a.example/ | -, 4 | c.example/x | -"},
		"no end of the last line":                {feedReader{}, "http://a.example/", "1 | http://a.example/ | -"},
		"URLs with commas are lines":             {feedReader{}, "http://a.example/1,2\nhttp://b.example/url,3\n", "1 | http://a.example/1,2 | -, 2 | http://b.example/url,3 | -"},
		"a column by its name":                   {feedReader{Column: "link", Time: "seen"}, "seen;link\n2026-11-20;http://a.example/\n", "2 | http://a.example/ | 2026-11-20T00:00:00Z"},
		"a column by its number":                 {feedReader{Column: "2", Time: "1"}, "1763632800\thttp://a.example/\n", "1 | http://a.example/ | 2025-11-20T10:00:00Z"},
		"columns without names":                  {feedReader{}, "7,http://a.example/,x\n8,http://b.example/,y\n", "1 | http://a.example/ | -, 2 | http://b.example/ | -"},
		"a column that is not there":             {feedReader{Column: "link"}, "id,url\n1,http://a.example/\n", `1 | there is no column "link", only ["id" "url"] | -, 2 | there is no column "link", only ["1" "http://a.example/"] | -`},
		"too few columns":                        {feedReader{}, "id,url\n1\n", "2 | it has 1 columns, and the URL is in number 2 | -"},
		"a form that it is not":                  {feedReader{Form: "squid"}, "http://a.example/\n", "1 | the line is not in this form | -"},
		"lines that look like a log":             {feedReader{Form: "lines"}, "1763632800.123 187 c T/200 5 GET http://a.example/ -\n", "1 | 1763632800.123 | -"},
		"JSON, a line each":                      {feedReader{}, `{"url":"http://a.example/","date":"2026-11-20 10:00:00"}` + "\n" + `{"x":[{"URL":"http://b.example/"}],"":1}`, "1 | http://a.example/ | 2026-11-20T10:00:00Z, 2 | http://b.example/ | -"},
		"JSON that breaks off":                   {feedReader{}, `[{"url":"http://a.example/"},{"url":`, "1 | http://a.example/ | -, 2 | the rest is not JSON: unexpected EOF | -"},
		"an array of strings on one line":        {feedReader{}, `["http://a.example/","http://b.example/"]`, "1 | http://a.example/ | -, 2 | http://b.example/ | -"}, // it was taken for CSV with one URL
		"an array of strings":                    {feedReader{}, "[\n  \"http://a.example/\",\n  \"http://b.example/\"\n]\n", "1 | http://a.example/ | -, 2 | http://b.example/ | -"},

		// Bytes with a dot among them would be URLs that no list has.
		"gzip":   {feedReader{}, "\x1f\x8b\x08\x00\x00\nq.w\x01\n", "1 | it is compressed (gzip): unpack it | -"},
		"zip":    {feedReader{}, "PK\x03\x04\x14\x00\nq.w\x01\n", "1 | it is compressed (zip): unpack it | -"},
		"UTF-16": {feedReader{}, "\xff\xfeh\x00t\x00t\x00p\x00:\x00\n", "1 | it is UTF-16: save it as UTF-8 | -"},
		"HTML":   {feedReader{}, "<html>\nwindow.x = 1\n", "1 | it looks like an HTML page: download the list again | -"},
	} {
		expect(t, name, shown(t, tc.feed, tc.text), tc.want)
	}
}

func TestALineThatIsTooLongIsOneBadLine(t *testing.T) {
	all := entriesOf(t, feedReader{}, "http://a.example/\nhttp://b.example/"+strings.Repeat("x", 3*maxFeedLine)+"\nhttp://c.example/")
	expect(t, "entries", len(all), 3)
	expect(t, "the others", all[0].shown()+", "+all[2].shown(), "1 | http://a.example/ | -, 3 | http://c.example/ | -")
	testkit.WantError(t, all[1].Err)
	expect(t, "its line", all[1].Line, 2)
}

// All of a list of rules would be not listed, and a long host would not fit into a question to the server that runs.
func TestWhatIsNoURL(t *testing.T) {
	long := func(labels int) string { return "http://" + strings.Repeat("abc.", labels) + "example/" }
	for line, good := range map[string]bool{
		"||evil.example^": false, "|evil.example^": false, "@@||evil.example^$important": false,
		long(50): true, long(100): false, long(70_000): false,
	} {
		_, err := urlOf(feedEntry{URL: line})
		expect(t, fmt.Sprintf("%.40s: %v", line, err), err == nil, good)
	}
}

func TestTimesOfFeeds(t *testing.T) {
	want := time.Date(2025, 11, 20, 10, 0, 0, 123_000_000, time.UTC)
	for _, text := range []string{"1763632800.123", "1763632800123", "1763632800123000", "13408106400123000", "2025-11-20T10:00:00.123Z", "2025-11-20T11:00:00.123+01:00"} {
		expect(t, text, timeOf(text).UTC(), want)
	}
	for _, text := range []string{"", "-", "0", "-5", "yesterday", "1e9", "99999999999999999999"} {
		expect(t, text, timeOf(text), time.Time{})
	}
}

// FuzzFeed checks that no feed stops the reader: each entry has a line that grows and either a URL or an
// error, there are no more of them than lines or objects, and what is taken for a URL has expressions.
func FuzzFeed(f *testing.F) {
	found, err := filepath.Glob(filepath.Join("..", "..", "testdata", "coverage", "*.*"))
	if err != nil || len(found) == 0 {
		f.Fatalf("no seeds: %v", err)
	}
	for _, file := range found {
		raw, err := os.ReadFile(file)
		testkit.Must(f, err)
		f.Add(raw, "", "", "")
	}
	f.Add([]byte(`{"url":{"url":"http://a.example/"}}`), "", "", "")
	f.Add([]byte("a|b|url\n\"|\"\"|http://x/"), "csv", "3", "0")
	f.Add([]byte("# url,x\nhttp://a,b"), "", "url", "x")
	f.Fuzz(func(t *testing.T, raw []byte, form, column, at string) {
		if form != "" && parsers[form] == nil && form != "csv" && form != "json" {
			t.Skip("-format refuses other words")
		}
		last := 0
		err := feedReader{form, column, at}.read(bytes.NewReader(raw), func(e feedEntry) bool {
			testkit.Between(t, "line", e.Line, last+1, math.MaxInt)
			last = e.Line
			if u, err := urlOf(e); err == nil && len(u.Expressions(lookup.RuleV5)) == 0 {
				t.Errorf("%q has no expressions", e.URL)
			}
			return true
		})
		if most := bytes.Count(raw, []byte("\n")) + bytes.Count(raw, []byte("{")) + 2; last > most || err != nil && !bytes.Contains(raw, []byte("[")) && !bytes.Contains(raw, []byte("{")) {
			t.Errorf("%d entries of %d at most, %v", last, most, err)
		}
	})
}

// scripted answers as told, and then knows everything.
type scripted struct {
	confirmer
	answers []block.Confirmed
	asked   []time.Time
}

func (s *scripted) Confirm(_ context.Context, q block.Question) (c block.Confirmed, err error) {
	s.asked = append(s.asked, time.Now())
	if len(s.answers) > 0 {
		c, s.answers = s.answers[0], s.answers[1:]
		return c, nil
	}
	c.Searches = 1
	for i := 0; i < len(q.Prefixes); i += 4 {
		c.Answers = append(c.Answers, block.PrefixAnswer{Prefix: fmt.Sprintf("%x", q.Prefixes[i:i+4]), TTL: time.Minute})
	}
	return c, nil
}

// A short wait of the service is waited for, a long one ends the run, and what fails is tried three times.
func TestCoverageWaitsForAShortWhileOnly(t *testing.T) {
	in := func(d time.Duration) block.Confirmed {
		return block.Confirmed{Error: "back-off", Until: time.Now().Add(d)}
	}
	failed := block.Confirmed{Error: "status 503"}
	for name, tc := range map[string]struct {
		answers func() []block.Confirmed
		asked   []time.Duration // after the begin
		stopped string
	}{
		"a minute":       {func() []block.Confirmed { return []block.Confirmed{in(time.Minute)} }, []time.Duration{0, time.Minute}, ""},
		"an hour":        {func() []block.Confirmed { return []block.Confirmed{in(time.Hour)} }, []time.Duration{0}, "back-off"},
		"it is over":     {func() []block.Confirmed { return []block.Confirmed{in(-time.Hour)} }, []time.Duration{0, retryAfter}, ""},
		"two failures":   {func() []block.Confirmed { return []block.Confirmed{failed, failed} }, []time.Duration{0, retryAfter, 2 * retryAfter}, ""},
		"three failures": {func() []block.Confirmed { return []block.Confirmed{failed, failed, failed} }, []time.Duration{0, retryAfter, 2 * retryAfter}, "status 503"},
	} {
		synctest.Test(t, func(t *testing.T) {
			begun, hash := time.Now(), lookup.HashExpression("a.example/")
			server := &scripted{answers: tc.answers()}
			c := newCounter(server, lookup.RuleV5, begun)
			c.suspects = []page{{host: "a.example", hosts: []lookup.FullHash{hash}}}
			c.listed[hash.Prefix(4)] = block.Listed{Lists: []string{"se-4b"}, Ask: 1}
			s := &state{known: make(map[lookup.Prefix]bool)}
			search := &confirming{counter: c, state: s, perSearch: 240, tell: func(string, ...any) {}, progress: func(int) {}}
			prefixes, searches := search.plan()
			expect(t, name+": prefixes, searches", [2]int{prefixes, searches}, [2]int{1, 1})
			testkit.Must(t, search.run(t.Context()))
			expect(t, name, search.stopped, tc.stopped)
			var asked []time.Duration
			for _, at := range server.asked {
				asked = append(asked, at.Sub(begun))
			}
			expect(t, name+": asked after", asked, tc.asked)
			c.finish(search.confirmed, s.has)
			unconfirmed := map[bool]int{true: 1}[tc.stopped != ""]
			expect(t, name, c.total.tally, tally{URLs: 1, Unconfirmed: unconfirmed, NotListed: 1 - unconfirmed})
		})
	}
}

// made is a feed with known truth.
type made struct {
	text     string
	want     totals
	byList   map[string]int
	prefixes map[lookup.Prefix]bool // of its URLs, that a list holds
}

// madeKinds are kinds of lines of a made feed. Of a collision a list has the prefix of the host, and the service knows no
// threat; again is the URL before in another spelling, and nothing a line without a URL.
var madeKinds = strings.Fields("clean host parent page folder query both collision address private again nothing")

// makeFeed makes a feed of n URLs, and lets the server list what it says. All kinds are as frequent.
func makeFeed(s *protocoltest.Server, n int, seed uint64) *made {
	r := rand.New(rand.NewPCG(seed, 0))
	m := &made{byList: make(map[string]int), prefixes: make(map[lookup.Prefix]bool)}
	entries := map[string][][]byte{"se-4b": nil, "mw-4b": nil, "uws-4b": nil}
	threat := map[string]sbv5.ThreatType{"se-4b": sbv5.ThreatType_SOCIAL_ENGINEERING, "mw-4b": sbv5.ThreatType_MALWARE}
	name := ""                                         // of the list
	list := func(f fate, expressions ...string) fate { // notListed: the service knows no threat
		for _, x := range expressions {
			hash := lookup.HashExpression(x)
			entries[name] = append(entries[name], hash[:4])
			m.prefixes[hash.Prefix(4)] = true
			if f != notListed {
				s.AddThreat(x, threat[name])
			}
		}
		return f
	}
	var lines strings.Builder
	last := ""
	for i := 0; m.want.URLs < n; i++ {
		name = []string{"se-4b", "mw-4b"}[r.IntN(2)]
		host := fmt.Sprintf("www.h%d-%d.%s", i, r.Uint32(), []string{"com", "co.uk", "github.io", "example"}[r.IntN(4)])
		parent := strings.TrimPrefix(host, "www.")
		url, f := fmt.Sprintf("http://%s/a/%d/x.html?q=%d", host, i, i), notListed
		kind := madeKinds[r.IntN(len(madeKinds))]
		if (kind == "again" || kind == "nothing") && last == "" {
			kind = "clean"
		}
		switch kind {
		case "host":
			f = list(byHost, host+"/")
		case "parent":
			f = list(byHost, parent+"/")
		case "page":
			f = list(byPath, fmt.Sprintf("%s/a/%d/x.html", host, i))
		case "folder":
			f = list(byPath, parent+"/a/")
		case "query":
			f = list(byPath, fmt.Sprintf("%s/a/%d/x.html?q=%d", host, i, i))
		case "both":
			f = list(byHost, host+"/", host+"/a/")
		case "collision":
			list(notListed, host+"/")
		case "address":
			address := fmt.Sprintf("198.%d.%d.1", i>>8, i&255) // not twice: there are 65,536
			url = fmt.Sprintf("http://%s:8080/x%d", address, i)
			f = list(byPath, address+"/")
			m.want.Addresses++
		case "private":
			url = fmt.Sprintf("https://nas%d.home.arpa/%d", i, i)
			m.want.Private++
		case "again":
			fmt.Fprintf(&lines, "%s#again\n", strings.Replace(last, "http", "HTTP", 1))
			m.want.Duplicates++
			continue
		case "nothing":
			fmt.Fprintln(&lines, []string{"http://", "chrome://newtab/", "javascript:void(0)", "word"}[r.IntN(4)])
			m.want.Bad++
			continue
		}
		m.want.add(f)
		if f != notListed {
			m.byList[name]++
		}
		fmt.Fprintln(&lines, url)
		last = url
	}
	for name, all := range entries {
		s.Publish(name, all)
	}
	m.text = lines.String()
	return m
}
