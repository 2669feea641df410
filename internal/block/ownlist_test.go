package block

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/coredns-safebrowsing/safebrowsing/internal/config"
	"github.com/coredns-safebrowsing/safebrowsing/internal/ownlist"
	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

// writeList writes an own list and returns its path.
func writeList(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "list.txt")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// A list that does less than its operator thinks, or more, says so in one line.
func TestAListThatIsNotWhatItShouldBeIsAWarning(t *testing.T) {
	for _, test := range []struct {
		name, content string
		allow         bool
		level, want   string // what the line holds after the path; "" the file
	}{
		{"names", "a.example\nb.example\n", false, "INFO", " is in force with 2 names"},
		{"one name", "a.example\n", false, "INFO", " is in force with 1 name"},
		{"HTML", "<!DOCTYPE html>\n<html>\nForbidden\n</html>\n", false, "WARNING", " blocks nothing: it looks like an HTML page; download the list again"},
		{"gzip", "\x1f\x8b\x08\x00xyz\nforbidden\n", false, "WARNING", " blocks nothing: it is compressed (gzip); unpack it"},
		{"UTF-16", "\xff\xfea\x00\n\x00", false, "WARNING", " blocks nothing: it is UTF-16; save it as UTF-8"},
		{"empty", "", false, "WARNING", " blocks nothing: it is empty"},
		{"comments", "# none\n", false, "WARNING", " blocks nothing: it has only comments"},
		{"empty allow list", "", true, "INFO", " allows nothing: it is empty"},
		{"ended", "a.example # until 2020-01-01\n", true, "INFO", " allows nothing: it has only entries that have ended"},
		{"a star", "*\n", false, "WARNING", ` blocks nothing: it has no usable line; 1 line is not a list entry (first at line 1: "*")`},
		{"not supported", "a.example\n/x/\n||b.example^$client=c\n", false, "INFO", " is in force with 1 name; 2 lines are not supported (1 regular expression, first at line 2; 1 with $client, first at line 3)"},
		{"bad lines", "a.example\nno entry\n", false, "WARNING", ` is in force with 1 name; 1 line is not a list entry (first at line 2: "no entry")`},
		{"machines", "a.example\n192.168.1.10 nas.home.arpa nas\n", false, "WARNING", " is in force with 1 name; 1 line has an address other than 0.0.0.0, 127.0.0.1 or the sinkhole and blocks nothing (first at line 2: "},
	} {
		t.Run(test.name, func(t *testing.T) {
			lines := testkit.Capture(t)
			file := writeList(t, test.content)
			c := config.Block{Own: []config.OwnFile{{Path: file, Allow: test.allow}}}
			for range 2 { // two server blocks
				p := New(config.Config{Block: c})
				if err := p.open(true); err != nil {
					t.Fatal(err)
				}
				defer p.End()
			}
			got := lines.About(file)
			if len(got) != 1 || !strings.Contains(got[0], "["+test.level+"]") || !strings.Contains(got[0]+"\n", file+test.want) {
				t.Errorf("Expected one line of level %s that says %q, got %q", test.level, test.want, got)
			}
		})
	}
}

func TestAListOfAWholeTopLevelDomainIsAWarning(t *testing.T) {
	for content, want := range map[string]string{
		"x.example\n||de^\n*.net\n": ": line 2 blocks the whole top-level domain de; line 3 blocks the whole top-level domain net",
		"*.co.uk CNAME .\n":         ": line 1 blocks the whole public suffix co.uk",
		"com\n":                     ": line 1 blocks the name com itself, but no name below it: to block these too, write .com",
	} {
		lines := testkit.Capture(t)
		file := writeList(t, content)
		p := New(config.Config{Block: config.Block{Own: []config.OwnFile{{Path: file}}}})
		if err := p.open(true); err != nil {
			t.Fatal(err)
		}
		defer p.End()
		if got := lines.About("[WARNING] plugin/safebrowsing: List " + file + want); len(got) != 1 {
			t.Errorf("Expected %q, got %q", want, lines.About(file))
		}
	}
}

// Of a list that blocks and allows, allow decides, so its lines are read as allow's.
func TestAListThatBlocksAndAllowsIsReadAsAllow(t *testing.T) {
	file := writeList(t, "a.example\n")
	for _, allowFirst := range []bool{false, true} {
		p := New(config.Config{Block: config.Block{Own: []config.OwnFile{{Path: file, Allow: allowFirst}, {Path: file, Allow: !allowFirst}}}})
		if err := p.ReadOwn(); err != nil {
			t.Fatal(err)
		}
		defer p.End()
		if c := p.OwnList(file); !c.Allow || c.Path != file {
			t.Errorf("Expected a list that allows, got %+v", c)
		}
	}
	if c := New(config.Config{}).OwnList(file); c.Path != "" {
		t.Errorf("Expected no list before Open, got %+v", c)
	}
}

// A list by URL decides as a CoreDNS has stored it, under its name, and a decision has its
// line.
func TestAStoredListByURLDecides(t *testing.T) {
	fetch := ownlist.URLConfig{URL: "https://lists.example.org/a.txt?s3cret", DB: t.TempDir()}
	if err := os.MkdirAll(filepath.Dir(fetch.Path()), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(fetch.Path(), []byte("# a list\nbad.example\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	p := New(config.Config{Block: config.Block{Zones: []string{"."}, Own: []config.OwnFile{{Fetch: fetch}}}})
	if err := p.ReadOwn(); err != nil {
		t.Fatal(err)
	}
	defer p.End()
	h := lookup.FromQname("bad.example.")
	d := p.Check(h)
	if line := p.Line(d.Decision, h); d.By != lookup.ByBlock || d.List != fetch.Name() || line != 2 {
		t.Errorf("Expected line 2 of %s to block, got line %d, %+v", fetch.Name(), line, d)
	}
}
