package prefixset

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"

	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
)

// benchFound keeps the compiler from leaving work out.
var benchFound bool

// randomPrefixes returns at most n distinct ascending prefixes.
func randomPrefixes(seed uint64, n int) []uint32 {
	r := rand.New(rand.NewPCG(seed, 1))
	prefixes := make([]uint32, n)
	for i := range prefixes {
		prefixes[i] = r.Uint32()
	}
	slices.Sort(prefixes)
	return slices.Compact(prefixes)
}

// packed returns ascending prefixes as entries.
func packed(prefixes []uint32) []byte {
	entries := make([]byte, 0, 4*len(prefixes))
	for _, p := range prefixes {
		entries = binary.BigEndian.AppendUint32(entries, p)
	}
	return entries
}

func setOfNumbers(prefixes []uint32) *Set { return setOfPacked(packed(prefixes), len(prefixes)) }

// setOfPacked adds entries of four bytes in runs, as an update does.
func setOfPacked(entries []byte, capacity int) *Set {
	b := NewBuilder(capacity)
	for run := range slices.Chunk(entries, 4*runEntries) {
		if err := b.Add(run, 4); err != nil {
			panic(err)
		}
	}
	return b.Set()
}

// BenchmarkContains compares a Set with a binary search over packed prefixes and with a map.
func BenchmarkContains(b *testing.B) {
	for _, millions := range []int{1, 4, 8, 10} {
		prefixes := randomPrefixes(17, millions*1_000_000)
		b.Run(fmt.Sprintf("%dM", millions), func(b *testing.B) { benchContains(b, prefixes) })
	}
}

func benchContains(b *testing.B, prefixes []uint32) {
	hits, misses := queries(prefixes)
	run := func(name string, bytesHeld int, contains func(*[32]byte) bool) {
		for kind, asked := range map[string][][32]byte{"hit": hits, "miss": misses} {
			b.Run(name+"-"+kind, func(b *testing.B) {
				b.ReportAllocs()
				i := 0
				for b.Loop() {
					benchFound = contains(&asked[i])
					i = (i + 1) % len(asked)
				}
				testkit.Equal(b, "found", benchFound, kind == "hit")
				b.ReportMetric(float64(bytesHeld)/float64(len(prefixes)), "B/prefix")
			})
		}
	}

	set := setOfNumbers(prefixes)
	run("ours", set.Bytes(), set.Contains)

	run("binary-search", 4*len(prefixes), func(hash *[32]byte) bool {
		_, ok := slices.BinarySearch(prefixes, binary.BigEndian.Uint32(hash[:]))
		return ok
	})

	before := heapInUse()
	held := make(map[[4]byte]struct{}, len(prefixes))
	for _, p := range prefixes {
		held[[4]byte(binary.BigEndian.AppendUint32(nil, p))] = struct{}{}
	}
	run("map", int(heapInUse()-before), func(hash *[32]byte) bool {
		_, ok := held[[4]byte(hash[:4])]
		return ok
	})
	runtime.KeepAlive(held)
}

// queries returns hashes that the set holds all, or none of.
func queries(prefixes []uint32) (hits, misses [][32]byte) {
	r := rand.New(rand.NewPCG(19, 20))
	for len(hits) < 1<<16 {
		hits = append(hits, *padded(binary.BigEndian.AppendUint32(nil, prefixes[r.IntN(len(prefixes))]), 0))
	}
	for len(misses) < 1<<16 {
		p := r.Uint32()
		if _, ok := slices.BinarySearch(prefixes, p); !ok {
			misses = append(misses, *padded(binary.BigEndian.AppendUint32(nil, p), 0))
		}
	}
	return hits, misses
}

func heapInUse() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
