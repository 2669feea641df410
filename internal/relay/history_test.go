package relay

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/prefixset"
	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

// numbered returns the set of n entries of four bytes, from the first number on, with a step.
func numbered(first, n, step uint32) *prefixset.Set {
	b := prefixset.NewBuilder(int(n))
	for i := range n {
		if err := b.Add(binary.BigEndian.AppendUint32(nil, first+i*step), 4); err != nil {
			panic(err)
		}
	}
	return b.Set()
}

// held returns lists, with their history in a folder, and a client that has fetched one with a content.
func held(t testing.TB, dir string, set *prefixset.Set) (*Lists, *client) {
	t.Helper()
	l := newLists(t, dir)
	publish(t, l, "se-4b", set)
	c := newClient(t, l)
	c.fetch(t, "se-4b")
	return l, c
}

// historyOf returns the file with the history of that list.
func historyOf(dir string) string { return filepath.Join(dir, "history", "se-4b.history") }

// The relay may start with an older list than it had: its folder was restored, or the process
// died before the list was saved.
func TestAnOlderListAfterARestartKeepsItsHistory(t *testing.T) {
	dir := t.TempDir()
	l := newLists(t, dir)
	sets := []*prefixset.Set{numbered(0, 500, 10), numbered(1, 600, 11), numbered(2, 700, 12)}
	var versions [][]byte
	for _, set := range sets {
		publish(t, l, "se-4b", set)
		c := newClient(t, l)
		c.fetch(t, "se-4b")
		versions = append(versions, c.held["se-4b"].Version)
	}
	for _, test := range []struct {
		name    string
		set     *prefixset.Set
		partial []bool // for a client with the version of each set
	}{
		{"the last content", sets[2], []bool{true, true, true}},
		{"the second content", sets[1], []bool{true, true, false}},
		{"a content that was never in force", numbered(3, 800, 13), []bool{false, false, false}},
	} {
		l := newLists(t, dir)
		saved := testkit.Read(t, historyOf(dir))
		publish(t, l, "se-4b", test.set)
		for i, version := range versions {
			if a, err := l.Get(t.Context(), netip.Addr{}, "se-4b", false, version, 0); err != nil || a.Partial != test.partial[i] {
				t.Errorf("%s, version %d: partial: %t, %v, want %t", test.name, i, a.Partial, err, test.partial[i])
			}
		}
		put(t, historyOf(dir), saved)
	}
}

// A damaged history costs full updates, never a wrong list.
func TestADamagedHistoryGivesFullUpdates(t *testing.T) {
	older, newer := numbered(0, 300, 10), numbered(5, 310, 9)
	dir := t.TempDir()
	l, c := held(t, dir, older)
	had := c.held["se-4b"]
	publish(t, l, "se-4b", newer)
	path := historyOf(dir)
	good := []byte(testkit.Read(t, path))
	damaged := map[string][]byte{"empty": nil, "cut": good[:len(good)-7], "longer": append(slices.Clone(good), 0)}
	rng := rand.New(rand.NewPCG(1, 1))
	for range 30 {
		spoilt, at := slices.Clone(good), rng.IntN(len(good))
		spoilt[at] ^= 1 << rng.IntN(8)
		damaged[fmt.Sprintf("byte %d", at)] = spoilt
	}
	for name, content := range damaged {
		put(t, path, string(content))
		c.lists, c.held["se-4b"] = newLists(t, dir), had
		err := c.lists.Publish([]lookup.List{{Name: "se-4b", Set: newer}})
		if err == nil || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "full updates") {
			t.Errorf("%s: got %v, want an error that names the file and what follows", name, err)
		}
		c.fetch(t, "se-4b")
		if c.answers[0].Partial || c.held["se-4b"].Checksum != sumOf(setRuns(newer)) {
			t.Errorf("%s: partial: %t", name, c.answers[0].Partial)
		}
	}
	testkit.Must(t, os.Remove(path))
	c.lists, c.held["se-4b"] = newLists(t, dir), had
	publish(t, c.lists, "se-4b", newer)
	if c.fetch(t, "se-4b"); c.answers[0].Partial {
		t.Error("a partial update without a history")
	}
}

// Even a history that is damaged behind its checksum, or in memory, gives no wrong update.
func TestAHistoryThatContradictsItsVersionGivesFullUpdates(t *testing.T) {
	older, newer := numbered(0, 300, 10), numbered(5, 310, 9)
	for name, spoil := range map[string]func(*step){
		"removals lost":      func(s *step) { s.removed = new(prefixset.Set) },
		"additions lost":     func(s *step) { s.added = new(prefixset.Set) },
		"other removals":     func(s *step) { s.removed = numbered(3, 100, 10) },
		"removals swapped":   func(s *step) { s.removed, s.added = s.added, s.removed },
		"removals as added":  func(s *step) { s.added = s.removed },
		"more than there is": func(s *step) { s.added = numbered(0, 5000, 1) },
	} {
		l, c := held(t, "", older)
		publish(t, l, "se-4b", newer)
		spoil(&(*l.current.Load())["se-4b"].history[0])
		c.fetch(t, "se-4b")
		if c.answers[0].Partial || c.held["se-4b"].Checksum != sumOf(setRuns(newer)) {
			t.Errorf("%s: partial: %t", name, c.answers[0].Partial)
		}
	}
}

// A set may be made a second time from the same entries, for example when the engine is replaced.
func TestAnEqualSetKeepsTheHistory(t *testing.T) {
	l, c := held(t, "", numbered(0, 300, 10))
	publish(t, l, "se-4b", numbered(0, 310, 10))
	publish(t, l, "se-4b", numbered(0, 310, 10))
	if c.fetch(t, "se-4b"); !c.answers[0].Partial {
		t.Error("a full update after the same entries were published twice")
	}
}

func TestAHistoryOfAnotherListIsNotUsed(t *testing.T) {
	dir := t.TempDir()
	s := &state{name: "se-4b", tag: tagOf("se-4b"), width: 4}
	for name, test := range map[string]struct {
		name string
		set  *prefixset.Set
		want bool
	}{
		"this list":       {"se-4b", numbered(0, 5, 1), true},
		"another list":    {"mw-4b", numbered(0, 5, 1), false},
		"another width":   {"se-4b", setOf(t, "aaaaa"), false},
		"a width of many": {"se-4b", setOf(t, "aaaa", "bbbbbb"), false},
	} {
		other := *s
		other.name, other.history = test.name, []step{{from: id{1}, until: time.Now(), change: change{test.set, test.set}}}
		testkit.Must(t, saveHistory(dir, &other))
		testkit.Must(t, os.Rename(filepath.Join(dir, test.name+historySuffix), filepath.Join(dir, "se-4b"+historySuffix)))
		steps, err := loadHistory(dir, s)
		if got := len(steps) == 1; got != test.want || errors.Is(err, errDamaged) == test.want {
			t.Errorf("%s: %d steps, %v, want it used: %t", name, len(steps), err, test.want)
		}
	}
	if _, err := loadHistory(t.TempDir(), s); err != nil {
		t.Errorf("no history: %v", err)
	}
	s.id = id{9}
	testkit.Must(t, saveHistory(dir, &state{name: "se-4b", history: []step{{from: id{1}, change: change{numbered(0, 5, 1), numbered(0, 5, 1)}}}}))
	if steps, err := loadHistory(dir, s); len(steps) != 0 || err != nil {
		t.Errorf("%d steps, %v: they lead to another content", len(steps), err)
	}
}

func TestHistoryIsBounded(t *testing.T) {
	testkit.Long(t)
	t.Run("in time", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			l, c := held(t, "", numbered(0, 5000, 10))
			had := c.held["se-4b"]
			time.Sleep(100 * time.Hour) // in force as long as that: the age counts from its end
			publish(t, l, "se-4b", numbered(0, 5001, 10))
			time.Sleep(historyAge)
			publish(t, l, "se-4b", numbered(0, 5002, 10))
			if c.fetch(t, "se-4b"); !c.answers[0].Partial {
				t.Errorf("a full update to a client %s behind", historyAge)
			}
			time.Sleep(time.Second)
			publish(t, l, "se-4b", numbered(0, 5003, 10))
			c.held["se-4b"] = had
			if c.fetch(t, "se-4b"); c.answers[0].Partial {
				t.Errorf("a partial update to a client more than %s behind", historyAge)
			}
		})
	})
	t.Run("in bytes and number", func(t *testing.T) {
		l := newLists(t, "")
		for i := range uint32(20) {
			publish(t, l, "se-4b", numbered(0, 200_000+1000*i, 10))
		}
		s := (*l.current.Load())["se-4b"]
		bytes := 0
		for _, step := range s.history {
			bytes += step.bytes()
		}
		if most := max(s.set.Bytes()/2, minHistoryBytes); bytes > most || len(s.history) < 2 {
			t.Errorf("%d steps of %d bytes, want %d bytes at most", len(s.history), bytes, most)
		}
		steps := slices.Repeat([]step{{until: time.Now(), change: change{new(prefixset.Set), new(prefixset.Set)}}}, historySteps+50)
		if got := len(trimmed(steps, 1<<30, time.Now())); got != historySteps {
			t.Errorf("%d steps, want %d", got, historySteps)
		}
		large := numbered(0, 500_000, 10)
		steps = slices.Repeat([]step{{until: time.Now(), change: change{large, large}}}, 10)
		if got := len(trimmed(steps, 1<<30, time.Now())) * steps[0].bytes(); got == 0 || got > maxHistoryBytes {
			t.Errorf("%d bytes of history, want %d at most", got, maxHistoryBytes)
		}
	})
}

func TestAFolderThatCannotBeUsedIsSaidAndDoneWithout(t *testing.T) {
	file := testkit.Write(t, t.TempDir(), "file", "")
	l, err := NewLists(file)
	if err == nil || !strings.Contains(err.Error(), file) || !strings.Contains(err.Error(), "memory") {
		t.Errorf("got %v, want an error that says where the history is now", err)
	}
	publish(t, l, "se-4b", numbered(0, 5, 1))

	dir := t.TempDir()
	l = newLists(t, dir)
	publish(t, l, "se-4b", numbered(0, 5, 1))
	testkit.Must(t, os.RemoveAll(dir))
	err = l.Publish([]lookup.List{{Name: "se-4b", Set: numbered(0, 6, 1)}})
	if err == nil || !strings.Contains(err.Error(), "se-4b") || !strings.Contains(err.Error(), "full updates") {
		t.Errorf("got %v, want an error that names the list and what follows", err)
	}
	c := newClient(t, l)
	if c.fetch(t, "se-4b"); c.held["se-4b"].Set.Len() != 6 {
		t.Errorf("%d entries, want 6", c.held["se-4b"].Set.Len())
	}
}

func TestUnfinishedFilesAreRemoved(t *testing.T) {
	dir := t.TempDir()
	publish(t, newLists(t, dir), "se-4b", numbered(0, 5, 1))
	put(t, historyOf(dir)+".123.tmp", "")
	newLists(t, dir)
	files, err := os.ReadDir(filepath.Join(dir, "history"))
	if err != nil || len(files) != 1 || files[0].Name() != "se-4b.history" {
		t.Errorf("files %v, %v, want the history only", files, err)
	}
}

// FuzzHistory: no file makes the reader panic, or gives steps behind a wrong checksum.
func FuzzHistory(f *testing.F) {
	dir := f.TempDir()
	l := newLists(f, dir)
	publish(f, l, "se-4b", numbered(0, 30, 10))
	publish(f, l, "se-4b", numbered(5, 31, 9))
	good := testkit.Read(f, historyOf(dir))
	f.Add([]byte(good[:len(good)-32]))
	f.Fuzz(func(t *testing.T, raw []byte) {
		sum := sha256.Sum256(raw) // else hardly any input would get past the checksum
		_, steps, err := parseHistory(append(slices.Clone(raw), sum[:]...), &state{name: "se-4b", width: 4})
		if err != nil {
			return
		}
		set := numbered(5, 31, 9)
		s := &state{name: "se-4b", tag: tagOf("se-4b"), width: 4, set: set, sum: sumOf(setRuns(set)), history: steps}
		s.id = idOf(s.sum)
		e := newEncodings()
		for _, step := range steps {
			if c, err := e.open(s, view{id: step.from}); err == nil && idOf(sumOf(c())) != step.from {
				t.Errorf("the content of version %x has another checksum", step.from)
			}
		}
	})
}
