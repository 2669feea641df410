package prefixset

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// mayHold reports whether an entry with this prefix may have been added.
func (f *Filter) mayHold(prefix uint32) bool {
	var hash [32]byte
	binary.BigEndian.PutUint32(hash[:], prefix)
	return filtered(f, [][32]byte{hash}) != 0
}

func filterOf(entries int, prefixes []uint32) *Filter {
	f := NewFilter(entries)
	for _, p := range prefixes {
		f.addPrefix(p)
	}
	return f
}

// usual is how many hashes of a name are asked about, as a rule.
const usual = 5

// filterSets are sets of prefixes of all kinds, ascending.
func filterSets(r *rand.Rand) map[string][]uint32 {
	sets := map[string][]uint32{
		"one":         {r.Uint32()},
		"the ends":    {0, math.MaxUint32},
		"both halves": {1<<31 - 1, 1 << 31},
	}
	var sequential, clustered []uint32
	base := r.Uint32N(1 << 31)
	for i := range uint32(10_000) {
		sequential = append(sequential, base+i)
		clustered = append(clustered, r.Uint32()>>18<<18|r.Uint32N(32))
	}
	sets["sequential"], sets["clustered"] = sequential, clustered
	for _, n := range []int{2, 10, 100, 1000, 100_000} {
		sets[fmt.Sprintf("%d random", n)] = randomPrefixes(r.Uint64(), n)
	}
	return sets
}

func TestFilterHoldsAllThatWasAdded(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 2 {
		for name, prefixes := range filterSets(r) {
			for _, planned := range []int{1, len(prefixes), 3 * len(prefixes)} {
				f := filterOf(planned, prefixes)
				for _, p := range prefixes {
					if !f.mayHold(p) {
						t.Fatalf("%s, planned for %d: does not hold %08x", name, planned, p)
					}
				}
			}
		}
	}
}

// hashesOf returns hashes that begin with the prefixes.
func hashesOf(prefixes ...uint32) [][32]byte {
	hashes := make([][32]byte, len(prefixes))
	for i, p := range prefixes {
		binary.BigEndian.PutUint32(hashes[i][:], p)
		hashes[i][4] = byte(p) ^ 0x55 // only the prefix counts
	}
	return hashes
}

func TestFilteredAreThoseThatTheFilterMayHold(t *testing.T) {
	r := rand.New(rand.NewPCG(4, 5))
	prefixes := randomPrefixes(6, 1000)
	f := filterOf(len(prefixes), prefixes)
	seen := map[uint]bool{}
	for range 20_000 {
		asked := make([]uint32, r.IntN(usual+1))
		var want uint
		for i := range asked {
			asked[i] = r.Uint32()
			if r.IntN(2) == 0 {
				asked[i] = prefixes[r.IntN(len(prefixes))]
			}
			if f.mayHold(asked[i]) {
				want |= 1 << i
			}
		}
		got := filtered(f, hashesOf(asked...))
		if got != want {
			t.Fatalf("%08x: got %b, want %b", asked, got, want)
		}
		seen[got] = true
	}
	if len(seen) != 1<<usual {
		t.Errorf("%d different answers, want all %d", len(seen), 1<<usual)
	}
}

func TestFilterLetsFewThrough(t *testing.T) {
	for _, test := range []struct {
		entries, filters int
		most             float64
	}{
		{10, 2000, 0.065}, // in a single word
		{100, 500, 0.075},
		{10_000, 10, 0.075},
		{1 << 18, 1, 0.075}, // not at odds with powers of two
		{300_007, 1, 0.075},
	} {
		r := rand.New(rand.NewPCG(7, 8))
		asked, through := 0, 0
		for range test.filters {
			prefixes := randomPrefixes(r.Uint64(), test.entries)
			f := filterOf(len(prefixes), prefixes)
			for range 300_000 / test.filters {
				p := r.Uint32()
				if _, added := slices.BinarySearch(prefixes, p); added {
					continue
				}
				asked++
				if f.mayHold(p) {
					through++
				}
			}
		}
		if share := float64(through) / float64(asked); share > test.most {
			t.Errorf("%d entries: %.4f get through, want at most %.4f", test.entries, share, test.most)
		}
	}
}
