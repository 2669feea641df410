package updater

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"io"
	"math"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/coredns-safebrowsing/safebrowsing/internal/prefixset"
)

// entry is an entry whose bytes are all b.
func entry(width int, b byte) []byte { return bytes.Repeat([]byte{b}, width) }

// entries returns an entry for each b.
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
	sum := sha256.Sum256(entries(4, c.result...))
	u := &Update{Version: []byte("new"), Partial: c.partial, Checksum: sum[:]}
	if c.removals != nil {
		u.Removals = indices(c.removals...)
	}
	if c.add != nil {
		u.Additions = []Entries{{Width: 4, Count: len(c.add), Reader: bytes.NewReader(entries(4, c.add...))}}
	}
	return u
}

var listNames = map[int]string{4: "se-4b", 8: "x-8b", 16: "x-16b", 32: "gc-32b"}

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
		{"one entry too many in two streams", nil, updateTo(model{a, ab, b, "bbbbb", c}, false, Entries{}, streamOf(a, b, c), streamOf(ab, "bbbbb")), ErrMalformed},
		{"an entry in two streams", ac, updateTo(model{a, b, c}, false, Entries{}, streamOf(a, b), streamOf(b, c)), ErrMalformed},
		{"the first entry in two streams", ac, updateTo(model{a}, false, Entries{}, streamOf(a), streamOf(a)), ErrMalformed},
		{"the last entry in two streams, another width between", ac, updateTo(model{a, ab, c}, false, Entries{}, streamOf(a, c), streamOf(ab), streamOf(c)), ErrMalformed},
		{"an entry in two streams, added to a list", ac, updateTo(model{a, b, c}, true, Entries{}, streamOf(b), streamOf(b)), ErrMalformed},
		{"an entry that is held, in the second stream", ac, updateTo(model{a, ab, c}, true, Entries{}, streamOf(ab), streamOf(c)), ErrMalformed},
		{"an entry that is removed, in two streams", ac, updateTo(model{a, c}, true, indices(1), streamOf(c), streamOf(c)), ErrMalformed},
		{"a stream that descends beside one that does not", ac, updateTo(model{a, b, c}, false, Entries{}, streamOf(a), streamOf(c, b)), ErrMalformed},
		{"entries of three bytes", ac, updateTo(model{"aaa", b}, false, Entries{}, streamOf("aaa"), streamOf(b)), ErrMalformed},
		{"entries of 33 bytes", ac, updateTo(model{a, long}, false, Entries{}, streamOf(a), streamOf(long)), ErrMalformed},
		{"a stream that is shorter than it says", ac, updateTo(model{a, b}, false, Entries{}, streamOf(a), short), ErrMalformed},
		{"a stream that cannot be read", ac, updateTo(model{a}, false, Entries{}, streamOf(a), unread), ErrMalformed},
		{"a removal in a full update of two streams", ac, updateTo(model{a, ab}, false, indices(0), streamOf(a), streamOf(ab)), ErrMalformed},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			old := List{Name: "se-4b"}
			if test.held != nil {
				old = heldList(t, "se-4b", test.held...)
			}
			before := old
			l, changed, err := Apply(old, test.update, 4)
			if !errors.Is(err, test.want) || changed || l.Set != nil {
				t.Errorf("got %v, changed: %t, %v, want %v", l, changed, err, test.want)
			}
			if old.Set != before.Set || !slices.Equal(old.Version, before.Version) || !bytes.Equal(content(t, old), entries(4, test.held...)) {
				t.Errorf("the old list has become %v", old)
			}
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
		if got != want || (err == nil) != (want > 0) {
			t.Errorf("%q: %d, %v, want %d", name, got, err, want)
		}
	}
}
