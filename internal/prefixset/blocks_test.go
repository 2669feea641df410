package prefixset

import (
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"testing"
)

// numbers are ascending prefixes by the shape that they have.
func numbers(r *rand.Rand, n int) map[string][]uint32 {
	shapes := map[string]func(i int) uint32{
		"spread":                   func(int) uint32 { return r.Uint32() },
		"all of one block":         func(int) uint32 { return 0xabcd0000 | r.Uint32N(1<<16) },
		"one after the other":      func(i int) uint32 { return 0x7fffff00 + uint32(i) },
		"the least":                func(i int) uint32 { return uint32(i) },
		"the greatest":             func(i int) uint32 { return ^uint32(i) },
		"the least and greatest":   func(i int) uint32 { return uint32(i) - uint32(n/2) },
		"few leading bytes":        func(int) uint32 { return r.Uint32N(4)<<30 | r.Uint32N(1<<20) },
		"even, with equal strides": func(i int) uint32 { return uint32(i) * uint32(1<<32/uint64(n+1)) },
	}
	made := make(map[string][]uint32)
	for name, shape := range shapes {
		var all []uint32
		for i := range n {
			all = append(all, shape(i))
		}
		slices.Sort(all)
		made[name] = slices.Compact(all)
	}
	return made
}

// strides returns n ascending entries of four bytes, fast: with random strides
// over the whole range.
func strides(seed uint64, n int) []byte {
	r := rand.New(rand.NewPCG(seed, 1))
	entries := make([]byte, 0, 4*n)
	for x, most := uint32(0), uint32(2*((1<<32-1<<24)/uint64(n))); len(entries) < 4*n; x += 1 + r.Uint32N(most) {
		entries = binary.BigEndian.AppendUint32(entries, x)
	}
	return entries
}

// TestBytesAPrefix pins the memory of large lists.
func TestBytesAPrefix(t *testing.T) {
	for _, tt := range []struct {
		n    int
		most float64 // bytes a prefix
	}{{4_000_000, 1.6}, {8_000_000, 1.5}} {
		set := setOfPacked(strides(41, tt.n), tt.n)
		got := float64(set.Bytes()) / float64(tt.n)
		if held := float64(cap(set.four.Load().buf)) / float64(tt.n); got > tt.most || held > 1.01*tt.most {
			t.Errorf("%d prefixes: %.3f bytes each, %.3f with what is reserved, want %.1f", tt.n, got, held, tt.most)
		}
	}
}

func TestMatchDoesNotAllocate(t *testing.T) {
	set := mixedSet(t, mixedEntries(rand.New(rand.NewPCG(45, 46)), 2000, 4, 5, 8, 32))
	hash := new([32]byte)
	if n := testing.AllocsPerRun(1000, func() {
		hash[0]++
		hash[1] += 7
		set.Match(hash)
		set.Contains(hash)
	}); n != 0 {
		t.Errorf("%v allocations a look-up", n)
	}
}
