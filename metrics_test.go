package safebrowsing

import (
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/coredns-safebrowsing/safebrowsing/internal/config"
	"github.com/coredns-safebrowsing/safebrowsing/internal/policy"
)

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
		{"empty allow list", "", true, "WARNING", " allows nothing: it is empty"},
		{"ended", "a.example # until 2020-01-01\n", true, "WARNING", " allows nothing: it has only entries that have ended; 1 entry has ended"},
		{"a star", "*\n", false, "WARNING", ` blocks nothing: it has no line that can be used; 1 line is not a list entry (first at line 1: "*")`},
		{"not supported", "a.example\n/x/\n||b.example^$client=c\n", false, "INFO", " is in force with 1 name; 2 lines are not supported (1 regular expression, first at line 2; 1 with $client, first at line 3)"},
		{"bad lines", "a.example\nno entry\n", false, "WARNING", ` is in force with 1 name; 1 line is not a list entry (first at line 2: "no entry")`},
		{"machines", "a.example\n192.168.1.10 nas.home.arpa nas\n", false, "WARNING", " is in force with 1 name; 1 line with another address than 0.0.0.0, 127.0.0.1 or the sinkhole blocks nothing (first at line 2: "},
	} {
		t.Run(test.name, func(t *testing.T) {
			lines := captureLog(t)
			file := writeFile(t, t.TempDir(), "list.txt", test.content)
			c := config.Block{Own: []config.OwnFile{{Path: file, Allow: test.allow}}}
			for range 2 { // two server blocks
				files, err := openOwn(&c)
				if err != nil {
					t.Fatal(err)
				}
				defer closeOwn(files)
			}
			got := lines.about(file)
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
		lines := captureLog(t)
		file := writeFile(t, t.TempDir(), "list.txt", content)
		files, err := openOwn(&config.Block{Own: []config.OwnFile{{Path: file}}})
		if err != nil {
			t.Fatal(err)
		}
		defer closeOwn(files)
		if got := lines.about("[WARNING] plugin/safebrowsing: List " + file + want); len(got) != 1 {
			t.Errorf("Expected %q, got %q", want, lines.about(file))
		}
	}
}

// A file that fails and is well again costs two lines, and the metrics say so
// meanwhile.
func TestAListThatFailsIsLoggedOnceAndMeasured(t *testing.T) {
	lines := captureLog(t)
	dir := t.TempDir()
	file := writeFile(t, dir, "list.txt", "a.example\nb.example\nno entry\n/x/\n192.168.1.1 nas\n")
	changed := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	if err := os.Chtimes(file, changed, changed); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		c := config.Block{Own: []config.OwnFile{{Path: file}}}
		files, err := openOwn(&c)
		if err != nil {
			t.Fatal(err)
		}
		second, err := openOwn(&c)
		if err != nil {
			t.Fatal(err)
		}
		want := func(when string, entries, bad, unsupported, last, failing float64) {
			t.Helper()
			for name, want := range map[string]float64{
				"entries": entries, "bad_lines": bad, "unsupported_lines": unsupported, "last_change_timestamp_seconds": last, "failing": failing,
			} {
				if got := metric(t, "own_list_"+name, "file", file); got != want {
					t.Errorf("%s: Expected %s of %v, got %v", when, name, want, got)
				}
			}
		}
		poll := func() {
			time.Sleep(5 * time.Second)
			synctest.Wait()
		}
		want("read", 2, 1, 2, float64(changed.Unix()), 0)
		os.Remove(file)
		for range 3 {
			poll()
		}
		want("gone", 2, 1, 2, float64(changed.Unix()), 1)
		writeFile(t, dir, "list.txt", "c.example\n")
		later := changed.Add(time.Hour)
		if err := os.Chtimes(file, later, later); err != nil {
			t.Fatal(err)
		}
		poll()
		want("back", 1, 0, 0, float64(later.Unix()), 0)
		closeOwn(files)
		want("in use by one", 1, 0, 0, float64(later.Unix()), 0)
		closeOwn(second)
		want("closed", 0, 0, 0, 0, 0)
	})
	got := lines.about("List " + file)
	if len(got) != 3 || !strings.Contains(got[1], "[ERROR]") ||
		!strings.Contains(got[1], file+" cannot be used: no such file or directory. The 2 names read before stay in force; the file is looked at every 5 seconds") ||
		!strings.Contains(got[2], file+" can be used again and is in force with 1 name") {
		t.Errorf("Expected lines at the start, at the failure and at its end, got %q", got)
	}
}

func TestMetricsOfListsThatAreOpenedTwiceInDifferentWays(t *testing.T) {
	file := writeFile(t, t.TempDir(), "list.txt", "192.0.2.9 a.example\n0.0.0.0 b.example\n")
	c := config.Block{Own: []config.OwnFile{{Path: file, Allow: true}, {Path: file}}}
	for _, sinkhole := range []string{"0.0.0.0", "192.0.2.9"} {
		c.IPv4 = netip.MustParseAddr(sinkhole)
		files, err := openOwn(&c)
		if err != nil {
			t.Fatal(err)
		}
		defer closeOwn(files)
	}
	if got := metric(t, "own_list_failing", "file", file); got != 0 { // fails if a series is there twice
		t.Errorf("Expected no failure, got %v", got)
	}
	if n := metric(t, "own_list_entries", "file", file); n != 1 && n != 2 {
		t.Errorf("Expected the entries of one of the lists, got %v", n)
	}
}

// openOwn opens the lists of a server block.
func openOwn(b *config.Block) (*policy.Policy, error) {
	p := policy.New(b)
	return p, p.Open()
}

func closeOwn(p *policy.Policy) { p.Close() }

func writeFile(t *testing.T, dir, name, text string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// metric returns the sum of the samples of a family that have a label.
func metric(t *testing.T, name, label, value string) (sum float64) {
	t.Helper()
	families, err := prometheus.DefaultGatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() != "coredns_safebrowsing_"+name {
			continue
		}
		for _, m := range family.GetMetric() {
			for _, l := range m.GetLabel() {
				if l.GetName() == label && l.GetValue() == value {
					sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
				}
			}
		}
	}
	return sum
}
