package prefixset

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
)

// randomEntries returns at most n distinct ascending entries. Clustered ones share their first bytes.
func randomEntries(r *rand.Rand, width, n int, clustered bool) [][]byte {
	entries := make([][]byte, n)
	for i := range entries {
		entry := make([]byte, 0, width+8)
		for len(entry) < width {
			entry = binary.BigEndian.AppendUint64(entry, r.Uint64())
		}
		entry = entry[:width]
		if clustered {
			copy(entry, []byte{0xab, 0xcd, 0xef}[:1+r.IntN(3)])
		}
		entries[i] = entry
	}
	return ascending(entries)
}

// buildSet makes a set of ascending entries, of any widths. capacity chooses the index of those of four bytes.
func buildSet(t testing.TB, capacity int, entries [][]byte) *Set {
	t.Helper()
	b := NewBuilder(capacity)
	for _, e := range entries {
		testkit.Must(t, b.Add(e, len(e)))
	}
	return b.Set()
}

// ascending sorts entries, and leaves each one in once.
func ascending(entries [][]byte) [][]byte {
	slices.SortFunc(entries, bytes.Compare)
	return slices.CompactFunc(entries, bytes.Equal)
}

// padded returns a hash that begins with entry. What follows must not matter.
func padded(entry []byte, filler byte) *[32]byte {
	hash := [32]byte(bytes.Repeat([]byte{filler}, maxWidth))
	copy(hash[:], entry)
	return &hash
}

// eachSet runs a test for sets of every width, size and index, with the least and the greatest entry.
func eachSet(t *testing.T, sizes []int, run func(t *testing.T, set *Set, width int, entries [][]byte, r *rand.Rand)) {
	for _, width := range []int{4, 5, 8, 16, 32} {
		for _, size := range sizes {
			for _, capacity := range []int{0, 1000, 100_000} {
				for _, clustered := range []bool{false, true} {
					name := fmt.Sprintf("width %d, size %d, capacity %d, clustered %v", width, size, capacity, clustered)
					t.Run(name, func(t *testing.T) {
						r := rand.New(rand.NewPCG(uint64(width), uint64(size)))
						entries := randomEntries(r, width, size, clustered)
						if size >= 255 {
							entries = slices.Insert(entries, 0, make([]byte, width))
							entries = append(entries, bytes.Repeat([]byte{0xff}, width))
						}
						run(t, buildSet(t, capacity, entries), width, entries, r)
					})
				}
			}
		}
	}
}

func TestContainsEqualsLinearScan(t *testing.T) {
	eachSet(t, []int{0, 1, 2, 255, 600}, func(t *testing.T, set *Set, width int, entries [][]byte, r *rand.Rand) {
		testkit.Equal(t, "Len", set.Len(), len(entries))
		near := randomEntries(r, width, 100, true)
		near = append(near, make([]byte, width), bytes.Repeat([]byte{0xff}, width))
		for _, e := range entries {
			if !set.Contains(padded(e, 0)) || !set.Contains(padded(e, 0xff)) {
				t.Fatalf("%x is not found", e)
			}
			for _, bit := range []byte{1, 0x80} { // near misses
				miss := slices.Clone(e)
				miss[width-1] ^= bit
				near = append(near, miss)
			}
			first := slices.Clone(e)
			first[0] ^= 1
			near = append(near, first)
		}
		for _, e := range near {
			if got, want := set.Contains(padded(e, 0x55)), slices.ContainsFunc(entries, func(held []byte) bool { return bytes.Equal(held, e) }); got != want {
				t.Fatalf("Contains(%x) = %v, want %v", e, got, want)
			}
		}
	})
}

func TestLargeSetsEqualMaps(t *testing.T) {
	testkit.Long(t)
	r := rand.New(rand.NewPCG(7, 8))
	for _, size := range []int{chunkEntries - 1, chunkEntries, 200_000} {
		for _, width := range []int{4, 8} {
			entries := randomEntries(r, width, size, false)
			set := buildSet(t, size, entries)
			for _, e := range entries {
				miss := slices.Clone(e)
				miss[width-1] ^= 1
				_, held := slices.BinarySearchFunc(entries, miss, bytes.Compare)
				if !set.Contains(padded(e, 0)) || set.Contains(padded(miss, 0)) != held {
					t.Fatalf("width %d, size %d: %x is not found, or %x is: %v", width, size, e, miss, !held)
				}
			}
			testkit.Between(t, "bytes", set.Bytes(), 0, 256<<10+8+len(entries)*(width-1))
		}
	}
}

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
	return ascending(entries)
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

func TestMixedSetsMatchTheShortestEntryAndYieldAllInOrder(t *testing.T) {
	for _, widths := range [][]int{{4}, {4, 5}, {4, 32}, {5, 8, 31}, {4, 5, 6, 7, 8, 9, 16, 31, 32}} {
		for _, size := range []int{0, 1, 2, 10, 800, 4000} {
			t.Run(fmt.Sprintf("%d of widths %d", size, widths), func(t *testing.T) {
				entries := mixedEntries(rand.New(rand.NewPCG(21, uint64(size))), size, widths...)
				set := buildSet(t, 0, entries)
				checkMatch(t, set, entries)
				checkRuns(t, set, entries)
				checkRuns(t, addedOf(t, set), entries)
			})
		}
	}
}

func checkMatch(t *testing.T, set *Set, entries [][]byte) {
	t.Helper()
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
}

func checkRuns(t *testing.T, set *Set, entries [][]byte) {
	t.Helper()
	runs, rest, ofWidth := set.Runs(), entries, make(map[int]int)
	for run, width := runs.Next(); width > 0; run, width = runs.Next() {
		if len(run) == 0 || len(run)%width != 0 || len(run)/width > 1024 {
			t.Fatalf("a run of %d bytes of width %d", len(run), width)
		}
		for e := range slices.Chunk(run, width) {
			if len(rest) == 0 || !bytes.Equal(rest[0], e) {
				t.Fatalf("got %x, want the next of %d entries", e, len(rest))
			}
			rest = rest[1:]
			ofWidth[width]++
		}
	}
	if run, width := runs.Next(); run != nil || width != 0 || len(rest) > 0 {
		t.Errorf("after the end come %x, %d, and %d entries are missing", run, width, len(rest))
	}
	for width := 3; width <= 33; width++ {
		testkit.Equal(t, width, set.LenOf(width), ofWidth[width])
	}
}

// FuzzBuilder adds what the bytes say: a width, a number of entries, and these.
func FuzzBuilder(f *testing.F) {
	f.Add([]byte("\x04\x02aaaabbbb\x05\x01ccccc"))
	f.Add([]byte("\x04\x02aaaabbbb\x04\x01aaaa"))
	f.Add([]byte("\x08\x01aaaaaaaa\x04\x01bbbb\x20\x01bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"))
	f.Add([]byte("\x04\x04\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\x01\x00\xff\xff\xff\xff\x03\x01aaa\x00\x00\xfc\x01\x04\x00"))
	r := rand.New(rand.NewPCG(25, 26))
	for range 500 { // each entry is like the one before, but for a byte or its width
		last := []byte("\x00aaa")
		var orders []byte
		for range 1 + r.IntN(4) {
			width, n := []int{3, 4, 4, 5, 5, 32, 33}[r.IntN(7)], r.IntN(4)
			orders = append(orders, byte(width), byte(n))
			for range n {
				last = append(last, make([]byte, 33)...)[:width]
				if r.IntN(4) > 0 {
					last[r.IntN(width)] += "\x01\x80\xff"[r.IntN(3)]
				}
				orders = append(orders, last...)
			}
		}
		f.Add(orders[:len(orders)-r.IntN(9)/8])
	}
	f.Fuzz(func(t *testing.T, orders []byte) {
		b := NewBuilder(len(orders))
		var want [][]byte
		for len(orders) >= 2 {
			width, n := int(int8(orders[0]))%40, int(orders[1])
			entries := orders[2:min(2+max(width, 0)*n, len(orders))]
			orders = orders[2+len(entries):]
			whole := width >= minWidth && width <= maxWidth && len(entries)%width == 0
			ok := whole
			for rest := entries; ok && len(rest) > 0; rest = rest[width:] {
				if ok = len(want) == 0 || bytes.Compare(want[len(want)-1], rest[:width]) < 0; ok {
					want = append(want, rest[:width])
				}
			}
			if err := b.Add(entries, width); (err == nil) != ok || errors.Is(err, ErrOrder) != (whole && !ok) {
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
