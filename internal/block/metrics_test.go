package block

import (
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/config"
	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
)

// A file that fails and is well again costs two lines, and the metrics say so
// meanwhile.
func TestAListThatFailsIsLoggedOnceAndMeasured(t *testing.T) {
	lines := testkit.Capture(t)
	dir := t.TempDir()
	file := writeFile(t, dir, "list.txt", "a.example\nb.example\nno entry\n/x/\n192.168.1.1 nas\n")
	changed := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	if err := os.Chtimes(file, changed, changed); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		c := config.Block{Own: []config.OwnFile{{Path: file}}}
		files, err := opened(&c)
		if err != nil {
			t.Fatal(err)
		}
		second, err := opened(&c)
		if err != nil {
			t.Fatal(err)
		}
		want := func(when string, entries, bad, unsupported, last, failing float64) {
			t.Helper()
			for name, want := range map[string]float64{
				"entries": entries, "bad_lines": bad, "unsupported_lines": unsupported, "last_change_timestamp_seconds": last, "failing": failing,
			} {
				if got := testkit.Metric(t, "own_list_"+name, "file", file); got != want {
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
		files.End()
		want("in use by one", 1, 0, 0, float64(later.Unix()), 0)
		second.End()
		want("closed", 0, 0, 0, 0, 0)
	})
	got := lines.About("List " + file)
	if len(got) != 3 || !strings.Contains(got[1], "[ERROR]") ||
		!strings.Contains(got[1], file+" cannot be used: no such file or directory. The 2 names read before stay in force; the file is looked at again every few seconds") ||
		!strings.Contains(got[2], file+" can be used again and is in force with 1 name") {
		t.Errorf("Expected lines at the start, at the failure and at its end, got %q", got)
	}
}

func TestMetricsOfListsThatAreOpenedTwiceInDifferentWays(t *testing.T) {
	file := writeFile(t, t.TempDir(), "list.txt", "192.0.2.9 a.example\n0.0.0.0 b.example\n")
	c := config.Block{Own: []config.OwnFile{{Path: file, Allow: true}, {Path: file}}}
	for _, sinkhole := range []string{"0.0.0.0", "192.0.2.9"} {
		c.IPv4 = netip.MustParseAddr(sinkhole)
		files, err := opened(&c)
		if err != nil {
			t.Fatal(err)
		}
		defer files.End()
	}
	if got := testkit.Metric(t, "own_list_failing", "file", file); got != 0 { // fails if a series is there twice
		t.Errorf("Expected no failure, got %v", got)
	}
	if n := testkit.Metric(t, "own_list_entries", "file", file); n != 1 && n != 2 {
		t.Errorf("Expected the entries of one of the lists, got %v", n)
	}
}

// opened returns a block with the own lists of a stanza, which are kept fresh.
func opened(c *config.Block) (*Block, error) {
	b := New(config.Config{Block: *c})
	return b, b.open(true)
}

func writeFile(t *testing.T, dir, name, text string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
