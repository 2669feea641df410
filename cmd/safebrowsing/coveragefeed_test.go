package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

// entriesOf reads a feed.
func entriesOf(t testing.TB, f feedReader, text string) (all []feedEntry) {
	t.Helper()
	if err := f.read(strings.NewReader(text), func(e feedEntry) bool { all = append(all, e); return true }); err != nil {
		t.Error(err)
	}
	return all
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
	found, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || len(found) != len(want)+1 {
		t.Fatalf("%d files, %v, want %d and what is expected of them", len(found), err, len(want))
	}
	for file, want := range want {
		var got strings.Builder
		for _, e := range entriesOf(t, feedReader{}, read(t, filepath.Join(dir, file))) {
			got.WriteString(e.shown() + "\n")
		}
		expect(t, file, got.String(), want)
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
	} {
		var got []string
		for _, e := range entriesOf(t, tc.feed, tc.text) {
			got = append(got, e.shown())
		}
		expect(t, name, strings.Join(got, ", "), tc.want)
	}
}

func TestALineThatIsTooLongIsOneBadLine(t *testing.T) {
	all := entriesOf(t, feedReader{}, "http://a.example/\nhttp://b.example/"+strings.Repeat("x", 3*maxFeedLine)+"\nhttp://c.example/")
	if len(all) != 3 || all[0].Err != nil || all[1].Err == nil || all[1].Line != 2 || all[2].URL != "http://c.example/" || all[2].Line != 3 {
		t.Errorf("got %d entries, the second %.60v", len(all), all[1].Err)
	}
}

func TestTimesOfFeeds(t *testing.T) {
	want := time.Date(2025, 11, 20, 10, 0, 0, 123_000_000, time.UTC)
	for _, text := range []string{"1763632800.123", "1763632800123", "1763632800123000", "13408106400123000", "2025-11-20T10:00:00.123Z", "2025-11-20T11:00:00.123+01:00"} {
		if got := timeOf(text); !got.Equal(want) {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
	for _, text := range []string{"", "-", "0", "-5", "yesterday", "1e9", "99999999999999999999"} {
		if got := timeOf(text); !got.IsZero() {
			t.Errorf("%q: %s, want none", text, got)
		}
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
		if err != nil {
			f.Fatal(err)
		}
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
			if e.Line <= last {
				t.Errorf("line %d after %d", e.Line, last)
			}
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
