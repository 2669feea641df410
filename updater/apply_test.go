package updater

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/coredns-safebrowsing/safebrowsing/internal/prefixset"
	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
)

func entry(width int, b byte) []byte { return bytes.Repeat([]byte{b}, width) }

func entries(width int, all ...byte) (out []byte) {
	for _, b := range all {
		out = append(out, entry(width, b)...)
	}
	return out
}

// heldList is a list that holds an entry for each b.
func heldList(t testing.TB, name string, all ...byte) List {
	t.Helper()
	width, err := Width(name)
	must(t, err)
	b := prefixset.NewBuilder(len(all))
	for _, e := range all {
		must(t, b.Add(entry(width, e), width))
	}
	return List{Name: name, Version: []byte("old"), Checksum: sha256.Sum256(entries(width, all...)), Set: b.Set()}
}

func content(t testing.TB, l List) []byte {
	t.Helper()
	if l.Set == nil {
		return nil
	}
	raw, err := io.ReadAll(l.Set.Reader())
	must(t, err)
	return raw
}

// change describes an update in the terms of heldList.
type change struct {
	partial  bool
	removals []uint32
	add      []byte // an entry for each
	result   []byte // what the checksum is made from, an entry for each
}

func (c change) update() *Update {
	u := updateTo(pieces(entries(4, c.result...), 4), c.partial, indices(c.removals...))
	if c.add != nil {
		u.Additions = []Entries{streamOf(pieces(entries(4, c.add...), 4)...)}
	}
	return u
}

var listNames = map[int]string{4: "se-4b", 8: "x-8b", 16: "x-16b", 32: "gc-32b"}

func TestAnUpdateThatPanicsIsRejected(t *testing.T) {
	u := fullOf("1", 1)
	u.Additions[0].Reader = nil
	_, _, err := applyCaught(List{Name: se}, u, 10)
	testkit.WantError(t, err, "panic")
}

func TestApplyRejects(t *testing.T) {
	const a, b, c, ab = "aaaa", "bbbb", "cccc", "aaaab"
	three, ac, long := []byte{10, 20, 30}, []byte("ac"), strings.Repeat("b", 33)
	broken := errors.New("broken")
	short, unread := streamOf(b), Entries{Width: 5, Count: 1, Reader: iotest.ErrReader(broken)}
	short.Count = 2
	with := func(c change, alter func(*Update)) *Update {
		u := c.update()
		alter(u)
		return u
	}
	nothing := func(*Update) {}
	full := func(result model, additions ...Entries) *Update {
		return updateTo(result, false, Entries{}, additions...)
	}
	part := func(result model, additions ...Entries) *Update {
		return updateTo(result, true, Entries{}, additions...)
	}
	tests := []struct {
		name   string
		held   []byte // nil: nothing
		update *Update
		want   error
	}{
		{"an update that is broken by itself", three, &Update{Err: broken}, broken},
		{"no version", three, with(change{add: three, result: three}, func(u *Update) { u.Version = nil }), ErrMalformed},
		{"no change without version", three, &Update{Partial: true}, ErrMalformed},
		{"a partial update of nothing", nil, with(change{partial: true, add: three, result: three}, nothing), ErrMalformed},
		{"no change of nothing", nil, &Update{Version: []byte{1}, Partial: true}, ErrMalformed},
		{"a negative wait", three, with(change{add: three, result: three}, func(u *Update) { u.MinimumWait = -1 }), ErrMalformed},
		{"a short checksum", three, with(change{add: three, result: three}, func(u *Update) { u.Checksum = u.Checksum[:31] }), ErrMalformed},
		{"a long checksum", three, with(change{add: three, result: three}, func(u *Update) { u.Checksum = append(u.Checksum, 0) }), ErrMalformed},
		{"an empty checksum", three, with(change{partial: true}, func(u *Update) { u.Checksum = []byte{} }), ErrMalformed},
		{"additions without checksum", three, with(change{partial: true, add: []byte{1}}, func(u *Update) { u.Checksum = nil }), ErrMalformed},
		{"removals without checksum", three, with(change{partial: true, removals: []uint32{1}}, func(u *Update) { u.Checksum = nil }), ErrMalformed},
		{"a full update without checksum", three, with(change{add: three}, func(u *Update) { u.Checksum = nil }), ErrMalformed},
		{"an empty full update without checksum", three, &Update{Version: []byte{1}}, ErrMalformed},
		{"another checksum", three, with(change{partial: true, add: []byte{1}, result: []byte{1, 10, 20, 31}}, nothing), ErrChecksum},
		{"the old checksum", three, with(change{partial: true, add: []byte{1}, result: three}, nothing), ErrChecksum},
		{"no change, another checksum", three, with(change{partial: true, result: []byte{1}}, nothing), ErrChecksum},
		{"empty, another checksum", three, with(change{result: three}, nothing), ErrChecksum},
		{"a removal of a full update", three, with(change{removals: []uint32{0}, add: three, result: three}, nothing), ErrMalformed},
		{"a removal behind the end", three, with(change{partial: true, removals: []uint32{3}, result: three}, nothing), ErrMalformed},
		{"a removal far behind the end", three, with(change{partial: true, removals: []uint32{1<<32 - 1}, result: three}, nothing), ErrMalformed},
		{"more removals than entries", three, with(change{partial: true, removals: []uint32{0, 1, 2, 3}}, nothing), ErrMalformed},
		{"a removal of an empty list", []byte{}, with(change{partial: true, removals: []uint32{0}}, nothing), ErrMalformed},
		{"removals that descend", three, with(change{partial: true, removals: []uint32{2, 1}, result: []byte{10}}, nothing), ErrMalformed},
		{"a removal that stands twice", three, with(change{partial: true, removals: []uint32{1, 1}, result: []byte{10, 30}}, nothing), ErrMalformed},
		{"additions that descend", three, with(change{partial: true, add: []byte{2, 1}, result: []byte{1, 2, 10, 20, 30}}, nothing), ErrMalformed},
		{"additions behind the end that descend", three, with(change{partial: true, add: []byte{41, 40}, result: []byte{10, 20, 30, 40, 41}}, nothing), ErrMalformed},
		{"an addition that stands twice", three, with(change{partial: true, add: []byte{2, 2}, result: []byte{2, 10, 20, 30}}, nothing), ErrMalformed},
		{"an addition that is held", three, with(change{partial: true, add: []byte{20}, result: three}, nothing), ErrMalformed},
		{"an addition that is held last", three, with(change{partial: true, add: []byte{30}, result: three}, nothing), ErrMalformed},
		{"an addition that is held, another removed", three, with(change{partial: true, removals: []uint32{0}, add: []byte{20}, result: []byte{20, 30}}, nothing), ErrMalformed},
		{"one entry too many in full", nil, with(change{add: []byte{1, 2, 3, 4, 5}, result: []byte{1, 2, 3, 4, 5}}, nothing), ErrMalformed},
		{"one entry too many in part", three, with(change{partial: true, add: []byte{1, 2}, result: []byte{1, 2, 10, 20, 30}}, nothing), ErrMalformed},
		{"a count beyond all memory", three, with(change{add: three, result: three}, func(u *Update) { u.Additions[0].Count = math.MaxInt32 }), ErrMalformed},
		{"fewer additions than counted", three, with(change{add: three, result: three}, func(u *Update) { u.Additions[0].Count = 4 }), ErrMalformed},
		{"fewer removals than counted", three, with(change{partial: true, removals: []uint32{0}, result: []byte{20, 30}}, func(u *Update) { u.Removals.Count = 2 }), ErrMalformed},
		{"additions that cannot be read", three, with(change{add: three}, func(u *Update) { u.Additions[0].Reader = iotest.ErrReader(broken) }), broken},
		{"removals that cannot be read", three, with(change{partial: true, removals: []uint32{0}}, func(u *Update) { u.Removals.Reader = iotest.ErrReader(broken) }), broken},
		{"one entry too many in two streams", nil, full(model{a, ab, b, "bbbbb", c}, streamOf(a, b, c), streamOf(ab, "bbbbb")), ErrMalformed},
		{"an entry in two streams", ac, full(model{a, b, c}, streamOf(a, b), streamOf(b, c)), ErrMalformed},
		{"the first entry in two streams", ac, full(model{a}, streamOf(a), streamOf(a)), ErrMalformed},
		{"the last entry in two streams", ac, full(model{a, ab, c}, streamOf(a, c), streamOf(ab), streamOf(c)), ErrMalformed},
		{"an entry in two streams, added to a list", ac, part(model{a, b, c}, streamOf(b), streamOf(b)), ErrMalformed},
		{"an entry that is held, in the second stream", ac, part(model{a, ab, c}, streamOf(ab), streamOf(c)), ErrMalformed},
		{"an entry that is removed, in two streams", ac, updateTo(model{a, c}, true, indices(1), streamOf(c), streamOf(c)), ErrMalformed},
		{"a stream that descends beside one that does not", ac, full(model{a, b, c}, streamOf(a), streamOf(c, b)), ErrMalformed},
		{"entries of three bytes", ac, full(model{"aaa", b}, streamOf("aaa"), streamOf(b)), ErrMalformed},
		{"entries of 33 bytes", ac, full(model{a, long}, streamOf(a), streamOf(long)), ErrMalformed},
		{"a stream that is shorter than it says", ac, full(model{a, b}, streamOf(a), short), ErrMalformed},
		{"a stream that cannot be read", ac, full(model{a}, streamOf(a), unread), ErrMalformed},
		{"a removal in a full update of two streams", ac, updateTo(model{a, ab}, false, indices(0), streamOf(a), streamOf(ab)), ErrMalformed},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			old := List{Name: "se-4b"}
			if test.held != nil {
				old = heldList(t, "se-4b", test.held...)
			}
			l, changed, err := Apply(old, test.update, 4)
			testkit.Is(t, "the error", err, test.want)
			testkit.Equal(t, "it has changed, and there is a list", []bool{changed, l.Set != nil}, []bool{false, false})
			testkit.Equal(t, "the entries of the old list", string(content(t, old)), string(entries(4, test.held...)))
		})
	}
}

func TestWidthIsTheSuffix(t *testing.T) {
	for name, want := range map[string]int{
		"se-4b": 4, "uwsa-4b": 4, "a-8b": 8, "a-16b": 16, "gc-32b": 32, "my-own_list.1-4b": 4,
		"": 0, "4b": 0, "-4b": 0, "se": 0, "se-5b": 0, "se-04b": 0, "se-4b ": 0, "SE-4b": 0, "se-4b\n": 0,
		"../se-4b": 0, "a/b-4b": 0, "se--4b": 0, "-se-4b": 0, "se-4b-": 0, ".-4b": 0, "ä-4b": 0,
	} {
		got, err := Width(name)
		testkit.Equal(t, fmt.Sprintf("the width of %q", name), got, want)
		testkit.Equal(t, fmt.Sprintf("%q has a width", name), err == nil, want > 0)
	}
}

// model is what a list should hold: its entries, ascending, each once.
type model []string

// newModel sorts entries and drops those that stand twice.
func newModel(all []string) model {
	slices.Sort(all)
	return slices.Compact(all)
}

func (m model) list(t testing.TB) List {
	t.Helper()
	b := prefixset.NewBuilder(len(m))
	for _, e := range m {
		must(t, b.Add([]byte(e), len(e)))
	}
	return List{Name: "se-4b", Version: []byte("old"), Checksum: m.checksum(), Set: b.Set()}
}

func (m model) checksum() [sha256.Size]byte { return sha256.Sum256([]byte(strings.Join(m, ""))) }

// someEntries returns entries of the widths. Some begin with another one.
func someEntries(r *rand.Rand, n int, widths []int) (all []string) {
	for range n {
		e := make([]byte, widths[r.IntN(len(widths))])
		for i := range e {
			e[i] = byte(r.Uint32())
		}
		if len(all) > 0 && r.IntN(3) == 0 {
			copy(e, all[r.IntN(len(all))])
		}
		all = append(all, string(e))
	}
	return all
}

// streamsOf deals entries out to one to three streams of each width, in any order.
func streamsOf(r *rand.Rand, added model) (all []Entries) {
	dealt := make(map[[2]int]model) // by width and number
	most := 1 + r.IntN(3)
	for _, e := range added {
		key := [2]int{len(e), r.IntN(most)}
		dealt[key] = append(dealt[key], e)
	}
	keys := slices.SortedFunc(maps.Keys(dealt), func(a, b [2]int) int { return slices.Compare(a[:], b[:]) })
	r.Shuffle(len(keys), func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
	for _, key := range keys {
		all = append(all, streamOf(dealt[key]...))
	}
	return all
}

// streamOf returns the stream of entries of one width, read in pieces.
func streamOf(entries ...string) Entries {
	reader := strings.NewReader(strings.Join(entries, ""))
	return Entries{Width: len(entries[0]), Count: len(entries), Reader: iotest.HalfReader(reader)}
}

func indices(all ...uint32) Entries {
	raw, _ := binary.Append(nil, binary.BigEndian, all) // numbers of a fixed size have no error
	return Entries{Width: 4, Count: len(all), Reader: bytes.NewReader(raw)}
}

// next returns a random update of what is held and what it must lead to. An entry that is removed may be added again.
func next(r *rand.Rand, held model, widths []int, partial bool) (*Update, model) {
	var kept []string
	var removed []uint32
	quarters := []int{0, 3, 3, 3, 4}[r.IntN(5)]                             // that stay
	more := []int{0, r.IntN(200), 2 * streamEntries * r.IntN(4)}[r.IntN(3)] // that come
	for i, e := range held {
		if partial && r.IntN(4) < quarters {
			kept = append(kept, e)
		} else {
			removed = append(removed, uint32(i))
		}
	}
	added := newModel(append(someEntries(r, more, widths), sample(r, held)...))
	if !partial && quarters == 3 && more == 0 {
		added = slices.Clone(held)
	}
	added = slices.DeleteFunc(added, func(e string) bool {
		_, ok := slices.BinarySearch(kept, e)
		return ok
	})
	want := newModel(append(slices.Clone(kept), added...))
	if !partial {
		removed = nil
	}
	return updateTo(want, partial, indices(removed...), streamsOf(r, added)...), want
}

// updateTo is an update that should lead to a model.
func updateTo(result model, partial bool, removals Entries, additions ...Entries) *Update {
	sum := result.checksum()
	return &Update{Version: []byte("new"), Partial: partial, Removals: removals, Additions: additions, Checksum: sum[:]}
}

func sample(r *rand.Rand, all model) (some []string) {
	for range min(len(all), r.IntN(5)) {
		some = append(some, all[r.IntN(len(all))])
	}
	return some
}

// Streams of any widths must lead to the entries of all of them, sorted.
func TestStreamsOfSeveralWidthsAreMerged(t *testing.T) {
	var every []int
	for more := range 29 {
		every = append(every, 4+more)
	}
	for name, widths := range map[string][]int{"4": {4}, "32": {32}, "4 and 5": {4, 5}, "4 and 32": {4, 32}, "5, 8, 16": {5, 8, 16}, "4 to 32": every} {
		t.Run("widths "+name, func(t *testing.T) {
			r := rand.New(rand.NewPCG(31, uint64(len(widths)*widths[0])))
			held := newModel(someEntries(r, r.IntN(5_000), widths))
			l := held.list(t)
			for round := range 60 {
				if round%12 == 9 {
					l, held = List{Name: "se-4b"}, nil
				}
				u, want := next(r, held, widths, round%3 != 0)
				applied, changed, err := Apply(l, u, len(want))
				if err != nil || changed != (l.Set == nil || !slices.Equal(held, want)) || string(applied.Version) != "new" {
					t.Fatalf("round %d: version %q, changed: %v, %v", round, applied.Version, changed, err)
				}
				checkModel(t, applied, want)
				if l.Set != nil {
					checkModel(t, l, held)
				}
				l, held = applied, want
			}
		})
	}
}

// checkModel fails unless the list holds what the model does.
func checkModel(t *testing.T, l List, want model) {
	t.Helper()
	got := content(t, l)
	if string(got) != strings.Join(want, "") || l.Set.Len() != len(want) || l.Checksum != want.checksum() {
		t.Fatalf("%d bytes, %d entries, checksum %x, want the %d entries of %x", len(got), l.Set.Len(), l.Checksum, len(want), want.checksum())
	}
	widths := make(map[int]bool)
	for _, e := range want {
		widths[len(e)] = true
		if hash := [32]byte([]byte(e + strings.Repeat("\x00", 32-len(e)))); !l.Set.Contains(&hash) {
			t.Fatalf("entry %x is missing", e)
		}
	}
	testkit.Equal(t, "widths", l.Set.Widths(), slices.Sorted(maps.Keys(widths)))
}

// atEnd is a reader that does something when all has been read.
type atEnd struct {
	io.Reader
	do func()
}

func (r atEnd) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	if err == io.EOF {
		r.do()
	}
	return n, err
}

// What comes last in an answer is known when the additions have been read.
func TestChecksumAndErrorMayComeLast(t *testing.T) {
	broken := errors.New("broken")
	sum := model{"aaaa", "bbbbb"}.checksum()
	for name, tt := range map[string]struct {
		late func(u *Update)
		want error
	}{
		"the checksum":          {func(u *Update) { u.Checksum = sum[:] }, nil},
		"the checksum and more": {func(u *Update) { u.Checksum, u.MinimumWait = sum[:], 1 }, nil},
		"no checksum":           {func(*Update) {}, ErrMalformed},
		"another checksum":      {func(u *Update) { u.Checksum = make([]byte, 32) }, ErrChecksum},
		"a negative wait":       {func(u *Update) { u.Checksum, u.MinimumWait = sum[:], -1 }, ErrMalformed},
		"an error":              {func(u *Update) { u.Checksum, u.Err = sum[:], broken }, broken},
	} {
		t.Run(name, func(t *testing.T) {
			u := &Update{Version: []byte("new")}
			last := Entries{Width: 5, Count: 1, Reader: atEnd{iotest.DataErrReader(strings.NewReader("bbbbb")), func() { tt.late(u) }}}
			u.Additions = []Entries{streamOf("aaaa"), last}
			l, _, err := Apply(List{Name: "se-4b"}, u, 10)
			testkit.Is(t, "the error", err, tt.want)
			testkit.Equal(t, "there is a list", l.Set != nil, tt.want == nil)
		})
	}
}

func TestAnUpdateEndsTheTakingOver(t *testing.T) {
	held := model{"aaaa", "cccc"}
	for name, u := range map[string]*Update{
		"nothing new":               {Version: []byte("new"), Partial: true},
		"nothing new, the checksum": updateTo(held, true, Entries{}),
		"an addition":               updateTo(model{"aaaa", "bbbb", "cccc"}, true, Entries{}, streamOf("bbbb")),
		"all anew":                  updateTo(held, false, Entries{}, streamOf(held...)),
	} {
		old := held.list(t)
		old.TakenOver = true
		l, _, err := Apply(old, u, 10)
		must(t, err)
		testkit.Equal(t, name+": the version", string(l.Version), "new")
		testkit.Equal(t, name+": taken over", l.TakenOver, false)
	}
}

// A stream that breaks off, as one does whose request is over, ends the merge: what else there is to merge may be long.
func TestMergingEndsWithABrokenStream(t *testing.T) {
	broken := errors.New("the request is over")
	held := prefixset.NewBuilder(1 << 20)
	for i := range 1 << 20 {
		must(t, held.Add(binary.BigEndian.AppendUint32(nil, uint32(i)<<8), 4))
	}
	old := List{Name: "se-4b", Version: []byte{1}, Set: held.Set()}
	for name, partial := range map[string]bool{"into a list": true, "without a list": false} {
		long := &counting{}
		u := &Update{Version: []byte{2}, Partial: partial, Checksum: make([]byte, 32), Additions: []Entries{
			{Width: 4, Count: 1 << 20, Reader: long},
			{Width: 4, Count: 5000, Reader: io.MultiReader(bytes.NewReader(make([]byte, 4)), iotest.ErrReader(broken))},
		}}
		if _, _, err := Apply(old, u, 1<<24); !errors.Is(err, broken) || !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: got %v, want %v", name, err, broken)
		}
		testkit.Between(t, name+": entries of the other stream that were read", long.next, 0, 2*streamEntries)
	}
}

// counting yields numbers from one on.
type counting struct{ next uint32 }

func (c *counting) Read(p []byte) (n int, err error) {
	for ; n+4 <= len(p); n += 4 {
		c.next++
		binary.BigEndian.PutUint32(p[n:], c.next<<8+1)
	}
	return n, nil
}
