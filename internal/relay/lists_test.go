package relay

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/coredns-safebrowsing/safebrowsing/internal/prefixset"
	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol"
	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol/pb/sbv5"
	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
	"github.com/coredns-safebrowsing/safebrowsing/updater"
)

// sumOfFirst returns the checksum of the first n entries of a set; 0: of all.
func sumOfFirst(s *prefixset.Set, n int) [sha256.Size]byte {
	if n == 0 {
		return sumOf(setRuns(s))
	}
	return sumOf(firstRuns(setRuns(s), int64(n)))
}

var publishSeeds = flag.Uint64("publish.seeds", 1, "courses of TestClientsAtAnyVersionEndWithThePublishedList for each width")

// Whatever is published in whatever order, a client that comes back with any version and any limits has in the end just what is in
// force: one that takes longer entries has them as they are, and for another one they are cut.
func TestClientsAtAnyVersionEndWithThePublishedList(t *testing.T) {
	for _, width := range []int{4, 8, 16, 32} {
		for seed := range *publishSeeds {
			t.Run(fmt.Sprintf("%d bytes, seed %d", width, seed), func(t *testing.T) {
				t.Parallel()
				publishAtRandom(t, width, rand.New(rand.NewPCG(seed, uint64(width))))
			})
		}
	}
}

func publishAtRandom(t *testing.T, width int, rng *rand.Rand) {
	name := fmt.Sprintf("x-%db", width)
	dir := t.TempDir()
	l := newLists(t, dir)
	clients := make([]*client, 8)
	for i := range clients {
		clients[i] = newClient(t, l)
		clients[i].stored = i%2 == 1
	}
	held := make(map[string]bool)
	partial := 0
	for range 50 {
		for range rng.IntN(200) * rng.IntN(20) {
			entry := width
			if width < 32 && rng.IntN(4) == 0 {
				entry += 1 + rng.IntN(32-width)
			}
			sum := sha256.Sum256([]byte{byte(rng.IntN(40)), byte(rng.IntN(256))}) // one of few, so that it comes back
			e := string(sum[:entry])
			held[e] = !held[e]
		}
		if rng.IntN(15) == 0 {
			clear(held)
		}
		var entries []string
		for e, in := range held {
			if in {
				entries = append(entries, e)
			}
		}
		set := setOf(t, entries...)
		publish(t, l, name, set)
		if rng.IntN(8) == 0 {
			l = newLists(t, dir)
			publish(t, l, name, set)
		}
		for _, c := range clients {
			c.lists = l
			if rng.IntN(3) > 0 {
				continue
			}
			c.maxDB = []int{0, 0, 700, 3000, 100_000}[rng.IntN(5)]
			c.fetch(t, name)
			form, err := set, error(nil)
			if !c.stored {
				form, err = entriesOf(set, width)
				testkit.Must(t, err)
			}
			want := sumOfFirst(form, served(c.maxDB, form.Len()))
			if got := c.held[name].Checksum; got != want {
				t.Fatalf("the client has %x, published is %x", got, want)
			}
			if c.partial && !c.unchanged {
				partial++
			}
		}
	}
	if partial < 10 {
		t.Errorf("%d partial updates: the test shows little", partial)
	}
}

// served returns how many of n entries a client gets that has room for maxDB; 0: all of them.
func served(maxDB, n int) int {
	if maxDB == 0 || maxDB >= n {
		return 0
	}
	return roundDown(maxDB, 5)
}

// Version 4 and Web Risk have entries of more than four bytes in a list of version 5 whose clients expect four.
func TestEntriesOfOtherWidthsAreCut(t *testing.T) {
	l, c := held(t, "", setOf(t, "aaaa", "aaaab", "bbbbb", "bbbbbb", "cccc", "dddddddd"))
	testkit.Equal(t, "the sum of four entries of four bytes", c.held["se-4b"].Checksum, sha256.Sum256([]byte("aaaabbbbccccdddd")))
	publish(t, l, "se-4b", setOf(t, "aaaab", "bbbb", "cccc", "dddd"))
	c.fetch(t, "se-4b")
	testkit.Equal(t, "the same entries, cut, are no update", c.unchanged, true)
	err := l.Publish([]lookup.List{{Name: "se-4b", Set: setOf(t, "eeee")}, {Name: "gc-32b", Set: setOf(t, "aaaa")}, {Name: "nonsense", Set: setOf(t)}})
	testkit.WantError(t, err, "gc-32b", "nonsense")
	testkit.WantNone(t, fmt.Sprint(err), "se-4b") // lists that cannot be served do not hold up another
	c.fetch(t, "se-4b")
	testkit.Equal(t, "entries", c.held["se-4b"].Set.Len(), 1)
	testkit.Equal(t, "lists", l.Names(), []string{"se-4b"})
}

// A client that takes longer entries gets partial updates from and to lists that have some, and after
// a restart. Once there are more of them than is reasonable to send as they are, it gets cut ones.
func TestLongerEntriesAreServedAsStored(t *testing.T) {
	dir := t.TempDir()
	l := newLists(t, dir)
	c := newClient(t, l)
	c.stored = true
	var before *prefixset.Set
	for i, s := range []struct {
		entries          []string
		restart, partial bool
	}{
		{entries: []string{"aaaa", "bbbb"}},
		{entries: []string{"aaaab", "bbbb", "cccccccc"}}, // another form
		{entries: []string{"aaaac", "bbbb"}, partial: true},
		{entries: []string{"bbbb", "dddd"}, partial: true}, // the form stays
		{entries: []string{"bbbbbb", "dddd"}, partial: true},
		{entries: []string{"bbbbbb", "eeee"}, restart: true, partial: true},
	} {
		set := setOf(t, s.entries...)
		if s.restart {
			l = newLists(t, dir)
			publish(t, l, "se-4b", before)
			c.lists = l
		}
		before = set
		publish(t, l, "se-4b", set)
		c.mustHave(t, fmt.Sprint("step ", i), set, s.partial)
		testkit.Equal(t, i, l.Names(), []string{"se-4b"})
	}
	many := prefixset.NewBuilder(0)
	for i := range uint32(maxLonger/5 + 1) {
		testkit.Must(t, many.Add(binary.BigEndian.AppendUint64(nil, uint64(i)<<24)[:5], 5))
	}
	publish(t, l, "se-4b", many.Set())
	c.fetch(t, "se-4b")
	testkit.Equal(t, "widths of too many longer entries", c.held["se-4b"].Set.Widths(), []int{4})
}

func TestMinimumWaitsKeepClientsWithinAMinute(t *testing.T) {
	for r, want := range map[float64]time.Duration{0: 10 * time.Second, 0.5: 32500 * time.Millisecond, 0.999999999: 55 * time.Second} {
		testkit.Between(t, r, MinimumWait(r), want-time.Microsecond, want+time.Microsecond)
	}
	l := new(sbv5.HashList)
	testkit.Must(t, proto.Unmarshal(Answer{}.tail(time.Minute), l))
	testkit.Equal(t, "a wait without a fraction of a second", l.GetMinimumWaitDuration().AsDuration(), time.Minute)
}

// FuzzGet: no version makes Get panic, or gives a full update with anything but the list.
func FuzzGet(f *testing.F) {
	l := newLists(f, "")
	older, newer := setOf(f, "aaaa", "bbbb", "cccc"), setOf(f, "aaaa", "cccc", "dddd")
	publish(f, l, "se-4b", older)
	tag, from := tagOf("se-4b"), (*l.current.Load())["se-4b"].id
	publish(f, l, "se-4b", newer)
	to := (*l.current.Load())["se-4b"].id
	f.Add([]byte(nil), uint16(0))
	f.Add(versionOf(tag, view{id: from}), uint16(0))
	f.Add(versionOf(tag, view{id: from, limit: 2}), uint16(2))
	f.Add(versionOf(tag, view{id: to}), uint16(1))
	f.Fuzz(func(t *testing.T, raw []byte, base uint16) {
		a, err := l.Get(t.Context(), netip.Addr{}, "se-4b", false, raw, int(base))
		testkit.Must(t, err)
		list := new(sbv5.HashList)
		if err := proto.Unmarshal(a.Message, list); err != nil || list.Name != "se-4b" || len(list.Version) == 0 || list.PartialUpdate != a.Partial {
			t.Fatalf("answer %v, %v", list, err)
		}
		if parseVersion(list.Version, tag) == (view{}) {
			t.Errorf("version %x is not one of the list", list.Version)
		}
		if want := sumOfFirst(newer, min(int(base), newer.Len())); !a.Partial && !bytes.Equal(list.Sha256Checksum, want[:]) {
			t.Errorf("a full update has checksum %x, want %x", list.Sha256Checksum, want)
		}
	})
}

// setOf returns the set of entries, which it sorts.
func setOf(t testing.TB, entries ...string) *prefixset.Set {
	t.Helper()
	slices.Sort(entries)
	b := prefixset.NewBuilder(0)
	for _, e := range slices.Compact(entries) {
		testkit.Must(t, b.Add([]byte(e), len(e)))
	}
	return b.Set()
}

func newLists(t testing.TB, dir string) *Lists {
	t.Helper()
	l, err := NewLists(dir)
	testkit.Must(t, err)
	return l
}

func publish(t testing.TB, l *Lists, name string, set *prefixset.Set) {
	t.Helper()
	testkit.Must(t, l.Publish([]lookup.List{{Name: name, Set: set}}))
}

// client is a real client with the lists that it holds. It is the transport to its server, too.
type client struct {
	*protocol.V5
	lists              *Lists // of its server
	maxDB              int
	stored             bool // it takes entries as they are stored
	held               map[string]updater.List
	partial, unchanged bool // by the last update
}

func newClient(t testing.TB, l *Lists) (c *client) {
	t.Helper()
	c = &client{lists: l, held: make(map[string]updater.List)}
	var err error
	c.V5, err = protocol.NewV5(protocol.Config{UserAgent: "test/1", Transport: c})
	testkit.Must(t, err)
	return c
}

func (c *client) RoundTrip(r *http.Request) (*http.Response, error) {
	m, _ := methodOf(r.URL.Path)
	q, bad := m.parse(r.URL.RawQuery)
	if bad != nil {
		return nil, errors.New(bad.message)
	}
	q.stored, q.maxEntries = c.stored, c.maxDB
	answer, bad := m.answer(&handler{lists: c.lists}, r, netip.Addr{}, q)
	if bad != nil {
		return nil, errors.New(bad.message)
	}
	w := httptest.NewRecorder()
	answer.write(w, r)
	return w.Result(), nil
}

// fetch fetches a list once and applies the update.
func (c *client) fetch(t testing.TB, name string) {
	t.Helper()
	old := c.held[name]
	_, err := c.Fetch(context.Background(), []updater.Want{{List: name, Version: old.Version}}, func(_ int, u *updater.Update) {
		if !u.Partial {
			old = updater.List{}
		}
		old.Name = name
		list, _, err := updater.Apply(old, u, 1<<24)
		if err != nil {
			t.Fatalf("list %s: %v", name, err)
		}
		if c.maxDB > 0 && list.Set.Len() > c.maxDB {
			t.Fatalf("list %s: %d entries, asked for %d at most (partial: %t)", name, list.Set.Len(), c.maxDB, u.Partial)
		}
		c.held[name], c.partial, c.unchanged = list, u.Partial, u.Partial && u.Checksum == nil
	})
	testkit.Must(t, err)
}

// mustHave fetches the list and wants the entries of a set, by a partial update or a full one.
func (c *client) mustHave(t testing.TB, when string, set *prefixset.Set, partial bool) {
	t.Helper()
	c.fetch(t, "se-4b")
	testkit.Equal(t, when+": partial", c.partial, partial)
	testkit.Equal(t, when+": checksum", c.held["se-4b"].Checksum, sumOf(setRuns(set)))
}

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

// The relay may start with an older list than it had: its folder was restored, or the process died before the list was saved.
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
			a, err := l.Get(t.Context(), netip.Addr{}, "se-4b", false, version, 0)
			testkit.Must(t, err)
			testkit.Equal(t, fmt.Sprint(test.name, ", version ", i), a.Partial, test.partial[i])
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
		testkit.WantError(t, c.lists.Publish([]lookup.List{{Name: "se-4b", Set: newer}}), path, "full updates")
		c.mustHave(t, name, newer, false)
	}
	testkit.Must(t, os.Remove(path))
	c.lists, c.held["se-4b"] = newLists(t, dir), had
	publish(t, c.lists, "se-4b", newer)
	c.mustHave(t, "without a history", newer, false)
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
		c.mustHave(t, name, newer, false)
	}
}

// A set may be made a second time from the same entries, for example when the engine is replaced.
func TestAnEqualSetKeepsTheHistory(t *testing.T) {
	l, c := held(t, "", numbered(0, 300, 10))
	publish(t, l, "se-4b", numbered(0, 310, 10))
	publish(t, l, "se-4b", numbered(0, 310, 10))
	c.mustHave(t, "after the same entries were published twice", numbered(0, 310, 10), true)
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
	_, err := loadHistory(t.TempDir(), s)
	testkit.Is(t, "no history", err, nil)
	s.id = id{9}
	testkit.Must(t, saveHistory(dir, &state{name: "se-4b", history: []step{{from: id{1}, change: change{numbered(0, 5, 1), numbered(0, 5, 1)}}}}))
	if steps, err := loadHistory(dir, s); len(steps) != 0 || err != nil {
		t.Errorf("%d steps, %v: they lead to another content", len(steps), err)
	}
}

func TestHistoryIsBounded(t *testing.T) {
	testkit.Long(t)
	bubble(t, "in time", func(t *testing.T) {
		l, c := held(t, "", numbered(0, 5000, 10))
		had := c.held["se-4b"]
		time.Sleep(100 * time.Hour) // in force as long as that: the age counts from its end
		publish(t, l, "se-4b", numbered(0, 5001, 10))
		time.Sleep(historyAge)
		publish(t, l, "se-4b", numbered(0, 5002, 10))
		c.mustHave(t, "as far behind as may be", numbered(0, 5002, 10), true)
		time.Sleep(time.Second)
		publish(t, l, "se-4b", numbered(0, 5003, 10))
		c.held["se-4b"] = had
		c.mustHave(t, "farther behind", numbered(0, 5003, 10), false)
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
		testkit.Between(t, "bytes", bytes, 0, max(s.set.Bytes()/2, minHistoryBytes))
		testkit.Between(t, "steps", len(s.history), 2, 20)
		steps := slices.Repeat([]step{{until: time.Now(), change: change{new(prefixset.Set), new(prefixset.Set)}}}, historySteps+50)
		testkit.Equal(t, "steps", len(trimmed(steps, 1<<30, time.Now())), historySteps)
		large := numbered(0, 500_000, 10)
		steps = slices.Repeat([]step{{until: time.Now(), change: change{large, large}}}, 10)
		testkit.Between(t, "bytes of history", len(trimmed(steps, 1<<30, time.Now()))*steps[0].bytes(), 1, maxHistoryBytes)
	})
}

func TestAFolderThatCannotBeUsedIsSaidAndDoneWithout(t *testing.T) {
	file := testkit.Write(t, t.TempDir(), "file", "")
	l, err := NewLists(file)
	testkit.WantError(t, err, file, "memory")
	publish(t, l, "se-4b", numbered(0, 5, 1))

	dir := t.TempDir()
	l = newLists(t, dir)
	publish(t, l, "se-4b", numbered(0, 5, 1))
	testkit.Must(t, os.RemoveAll(dir))
	testkit.WantError(t, l.Publish([]lookup.List{{Name: "se-4b", Set: numbered(0, 6, 1)}}), "se-4b", "full updates")
	newClient(t, l).mustHave(t, "without a folder", numbered(0, 6, 1), false)
}

func TestUnfinishedFilesAreRemoved(t *testing.T) {
	dir := t.TempDir()
	publish(t, newLists(t, dir), "se-4b", numbered(0, 5, 1))
	put(t, historyOf(dir)+".123.tmp", "")
	newLists(t, dir)
	files, err := filepath.Glob(filepath.Join(dir, "history", "*"))
	testkit.Must(t, err)
	testkit.Equal(t, "files", files, []string{historyOf(dir)})
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
		s, e := *(*l.current.Load())["se-4b"], newEncodings()
		s.history = steps
		for _, step := range steps {
			if c, err := e.open(&s, view{id: step.from}); err == nil && idOf(sumOf(c())) != step.from {
				t.Errorf("the content of version %x has another checksum", step.from)
			}
		}
	})
}
