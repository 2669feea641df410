package ownlist

import (
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
)

// While a large list is read it takes little more memory than afterwards, also if its
// beginning is not like the rest.
func TestALargeListIsReadInTheMemoryThatItTakes(t *testing.T) {
	testkit.Long(t)
	const lines = 300_000
	text := string(generated(lines, "%s"))
	for name, test := range map[string]struct {
		text    string
		perName float64 // the most bytes that may be allocated in all
	}{
		"as published":        {"# a list\n" + text, 10},
		"half of it comments": {strings.Repeat("# a comment\n", lines) + text, 10},
		"comments after it":   {text + strings.Repeat("# a comment\n", lines), 30},
	} {
		path := filepath.Join(t.TempDir(), "list.txt")
		write(t, path, test.text)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		c, _, _, err := load(Config{Path: path})
		must(t, err)
		runtime.ReadMemStats(&after)
		if perName := float64(after.TotalAlloc-before.TotalAlloc) / float64(c.summary.Entries); perName > test.perName || c.summary.Entries != lines {
			t.Errorf("%s: %.1f bytes for each of %d names, want at most %.0f", name, perName, c.summary.Entries, test.perName)
		}
	}
}

func TestLinesAreCountedOnlyToPredict(t *testing.T) {
	for _, lines := range []int{1, 3*predictAfter/2 + 1} { // much less, and much more, than there are
		b := newBuilder()
		b.lines = lines
		must(t, scan(strings.NewReader(string(generated(2*predictAfter, "%s"))), Config{}, &b.content.summary, b.add))
		if c := b.build(); c.summary.Entries != 2*predictAfter {
			t.Errorf("%d entries", c.summary.Entries)
		}
	}
}
