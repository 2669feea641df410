package prefixset

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// randomEntries returns at most n distinct ascending entries. Clustered ones
// share their first bytes with many others.
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
	slices.SortFunc(entries, bytes.Compare)
	return slices.CompactFunc(entries, bytes.Equal)
}

// buildSet makes a set of ascending entries. capacity chooses its index.
func buildSet(t testing.TB, width, capacity int, entries [][]byte) *Set {
	t.Helper()
	b := NewBuilder(capacity)
	for _, e := range entries {
		must(t, b.Add(e, width))
	}
	return b.Set()
}

// padded returns a hash that begins with entry. What follows must not matter.
func padded(entry []byte, filler byte) *[32]byte {
	hash := [32]byte(bytes.Repeat([]byte{filler}, maxWidth))
	copy(hash[:], entry)
	return &hash
}

// eachSet runs a test for sets of every width, size and index. Their entries
// include the least and the greatest possible.
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
						run(t, buildSet(t, width, capacity, entries), width, entries, r)
					})
				}
			}
		}
	}
}

func TestContainsEqualsLinearScan(t *testing.T) {
	eachSet(t, []int{0, 1, 2, 255, 600}, func(t *testing.T, set *Set, width int, entries [][]byte, r *rand.Rand) {
		if set.Len() != len(entries) {
			t.Fatalf("Len = %d, want %d", set.Len(), len(entries))
		}
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
			t.Run(fmt.Sprintf("width %d, size %d", width, size), func(t *testing.T) {
				entries := randomEntries(r, width, size, false)
				set := buildSet(t, width, size, entries)
				held := make(map[string]bool, size)
				for _, e := range entries {
					held[string(e)] = true
				}
				for _, e := range entries {
					miss := slices.Clone(e)
					miss[width-1] ^= 1
					if !set.Contains(padded(e, 0)) {
						t.Fatalf("%x is not found", e)
					}
					if got, want := set.Contains(padded(miss, 0)), held[string(miss)]; got != want {
						t.Fatalf("Contains(%x) = %v, want %v", miss, got, want)
					}
				}
				if most := 256<<10 + 8 + len(entries)*(width-1); set.Bytes() > most {
					t.Errorf("%d bytes, want at most %d", set.Bytes(), most)
				}
			})
		}
	}
}

func TestBuilderRefusesEntriesOutOfOrder(t *testing.T) {
	tests := []struct {
		name, first, second string
		want                error
	}{
		{"ascending in the last byte", "aaaa", "aaab", nil},
		{"ascending in the first byte", "aaaa", "baaa", nil},
		{"equal", "aaaa", "aaaa", ErrOrder},
		{"descending in the last byte", "aaab", "aaaa", ErrOrder},
		{"descending in the first byte", "baaa", "aaab", ErrOrder},
		{"zeros twice", "\x00\x00\x00\x00", "\x00\x00\x00\x00", ErrOrder},
		{"bytes are unsigned", "\x7faaa", "\x80aaa", nil},
		{"the longer after its beginning", "aaaa", "aaaaa", nil},
		{"the longer before its beginning", "aaaaa", "aaaa", ErrOrder},
		{"the shorter is greater", "aaaaa", "aaab", nil},
		{"the longer is less", "aaab", "aaaaa", ErrOrder},
	}
	for _, tt := range tests {
		for _, capacity := range []int{0, 100_000} {
			t.Run(fmt.Sprintf("%s, capacity %d", tt.name, capacity), func(t *testing.T) {
				b := NewBuilder(capacity)
				must(t, b.Add([]byte(tt.first), len(tt.first)))
				if err := b.Add([]byte(tt.second), len(tt.second)); !errors.Is(err, tt.want) {
					t.Fatalf("Add = %v, want %v", err, tt.want)
				}
				want := 2
				if tt.want != nil {
					want = 1
				}
				set := b.Set()
				if set.Len() != want || !set.Contains(padded([]byte(tt.first), 0)) {
					t.Errorf("%d entries, want %d, the first among them", set.Len(), want)
				}
			})
		}
	}
}
