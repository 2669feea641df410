package prefixset

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"testing"
)

// mixedEntries returns at most n distinct ascending entries of the widths. Many begin with a whole other entry.
func mixedEntries(r *rand.Rand, n int, widths ...int) [][]byte {
	var entries [][]byte
	for i := range n {
		width := widths[r.IntN(len(widths))]
		entry := randomEntries(r, width, 1, r.IntN(2) == 0)[0]
		if i > 0 && r.IntN(2) == 0 {
			copy(entry, entries[r.IntN(i)])
		}
		entries = append(entries, entry)
	}
	slices.SortFunc(entries, bytes.Compare)
	return slices.CompactFunc(entries, bytes.Equal)
}

// mixedSet makes a set of ascending entries of any widths.
func mixedSet(t testing.TB, entries [][]byte) *Set {
	t.Helper()
	b := NewBuilder(0)
	for _, e := range entries {
		must(t, b.Add(e, len(e)))
	}
	return b.Set()
}

// shortestMatch is what Match should return.
func shortestMatch(entries [][]byte, hash *[32]byte) (width int) {
	for _, e := range entries {
		if bytes.HasPrefix(hash[:], e) && (width == 0 || len(e) < width) {
			width = len(e)
		}
	}
	return width
}

func eachMixedSet(t *testing.T, run func(t *testing.T, set *Set, entries [][]byte)) {
	for _, widths := range [][]int{{4}, {4, 5}, {4, 32}, {5, 8, 31}, {4, 5, 6, 7, 8, 9, 16, 31, 32}} {
		for _, size := range []int{0, 1, 2, 10, 800, 4000} {
			t.Run(fmt.Sprintf("%d of widths %d", size, widths), func(t *testing.T) {
				r := rand.New(rand.NewPCG(21, uint64(size)))
				entries := mixedEntries(r, size, widths...)
				run(t, mixedSet(t, entries), entries)
			})
		}
	}
}

func TestMatchIsTheShortestEntry(t *testing.T) {
	eachMixedSet(t, func(t *testing.T, set *Set, entries [][]byte) {
		r := rand.New(rand.NewPCG(23, 24))
		for i := range min(2*len(entries), 500) {
			hash := padded(randomEntries(r, 32, 1, true)[0], 0)
			if i%2 == 0 {
				copy(hash[:], entries[r.IntN(len(entries))])
			}
			want := shortestMatch(entries, hash)
			if got := set.Match(hash); got != want || set.Contains(hash) != (want != 0) {
				t.Fatalf("Match(%x) = %d, want %d", hash, got, want)
			}
		}
	})
}

func TestRunsYieldAllEntriesInOrder(t *testing.T) {
	eachMixedSet(t, func(t *testing.T, set *Set, entries [][]byte) {
		runs := set.Runs()
		for rest := entries; ; {
			run, width := runs.Next()
			if len(run) == 0 {
				if run != nil || width != 0 || len(rest) != 0 {
					t.Errorf("the end is %x, %d, before %d entries", run, width, len(rest))
				}
				break
			}
			if len(run)%width != 0 || len(run)/width > 1024 {
				t.Fatalf("a run of %d bytes of width %d", len(run), width)
			}
			for ; len(run) > 0; run, rest = run[width:], rest[1:] {
				if len(rest) == 0 || !bytes.Equal(rest[0], run[:width]) {
					t.Fatalf("got %x, want the next of %d entries", run[:width], len(rest))
				}
			}
		}
		if run, width := runs.Next(); run != nil || width != 0 {
			t.Errorf("after the end come %x, %d", run, width)
		}
	})
}

func TestBuilderRefusesBrokenEntries(t *testing.T) {
	for _, tt := range []struct{ length, width int }{{3, 3}, {33, 33}, {0, 0}, {4, -4}, {6, 4}, {4, 8}} {
		b := NewBuilder(-1)
		if err := b.Add(make([]byte, tt.length), tt.width); err == nil || errors.Is(err, ErrOrder) {
			t.Errorf("%d bytes of width %d: error is %v", tt.length, tt.width, err)
		}
		if set := b.Set(); set.Len() != 0 || set.Widths() != nil {
			t.Errorf("%d bytes of width %d were added", tt.length, tt.width)
		}
	}
	b := NewBuilder(0)
	if err := b.Add(nil, 4); err != nil || b.Set().Len() != 0 {
		t.Errorf("adding nothing: %v", err)
	}
}

func TestAddStopsAtTheFirstEntryOutOfOrder(t *testing.T) {
	b := NewBuilder(0)
	if err := b.Add([]byte("aaaabbbbabbbcccc"), 4); !errors.Is(err, ErrOrder) {
		t.Errorf("Add = %v, want ErrOrder", err)
	}
	if got, _ := io.ReadAll(b.Set().Reader()); string(got) != "aaaabbbb" {
		t.Errorf("the set holds %q, want what was in order", got)
	}
}

// FuzzBuilder adds what the bytes say: a width, a number of entries, and these.
func FuzzBuilder(f *testing.F) {
	f.Add([]byte("\x04\x02aaaabbbb\x05\x01ccccc"))
	f.Add([]byte("\x04\x02aaaabbbb\x04\x01aaaa"))
	f.Add([]byte("\x08\x01aaaaaaaa\x04\x01bbbb\x20\x01bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"))
	f.Add([]byte("\x04\x04\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\x01\x00\xff\xff\xff\xff\x03\x01aaa"))
	f.Fuzz(func(t *testing.T, orders []byte) {
		b := NewBuilder(len(orders))
		var want [][]byte
		for len(orders) >= 2 {
			width, n := int(orders[0]%40), int(orders[1])
			entries := orders[2:min(2+width*n, len(orders))]
			orders = orders[2+len(entries):]
			ok := width >= minWidth && width <= maxWidth && len(entries)%width == 0
			for rest := entries; ok && len(rest) > 0; rest = rest[width:] {
				if ok = len(want) == 0 || bytes.Compare(want[len(want)-1], rest[:width]) < 0; ok {
					want = append(want, rest[:width])
				}
			}
			if err := b.Add(entries, width); (err == nil) != ok {
				t.Fatalf("adding %x of width %d: %v, want an error: %v", entries, width, err, !ok)
			}
		}
		set := b.Set()
		if got, _ := io.ReadAll(set.Reader()); !bytes.Equal(got, bytes.Join(want, nil)) || set.Len() != len(want) {
			t.Fatalf("the set holds %x, want %x", got, want)
		}
		for _, e := range want {
			for _, filler := range []byte{0, 0xff} {
				if hash := padded(e, filler); set.Match(hash) != shortestMatch(want, hash) {
					t.Fatalf("Match(%x) = %d, want %d", hash, set.Match(hash), shortestMatch(want, hash))
				}
			}
		}
	})
}
