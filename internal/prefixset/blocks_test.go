package prefixset

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"math/bits"
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

// eachNumbers runs a test for sets of many sizes, shapes and hints.
func eachNumbers(t *testing.T, run func(t *testing.T, set *Set, all []uint32)) {
	r := rand.New(rand.NewPCG(31, 32))
	for _, n := range []int{1, 2, 47, 48, 63, 64, 65, 1000, 70_000} {
		for name, all := range numbers(r, n) {
			for _, capacity := range []int{0, 1, n, 20 * n, 3_000_000} {
				if capacity > 100*n && n < 1000 {
					continue // the same as 20 times
				}
				t.Run(fmt.Sprintf("%d, %s, capacity %d", n, name, capacity), func(t *testing.T) {
					run(t, setOfPacked(packed(all), capacity), all)
				})
			}
		}
	}
}

func hashOf(x uint32) *[32]byte { return padded(binary.BigEndian.AppendUint32(nil, x), 0x5a) }

func TestBlocksEqualMaps(t *testing.T) {
	eachNumbers(t, func(t *testing.T, set *Set, all []uint32) {
		held := make(map[uint32]bool, len(all))
		for _, x := range all {
			held[x] = true
		}
		for i := 0; i < len(all); i += 1 + len(all)/700 {
			x := all[i]
			for _, asked := range []uint32{x, x - 1, x + 1, x ^ 1<<9, x ^ 1<<16, x ^ 1<<31, x * 0x9e3779b1} {
				if got := set.Contains(hashOf(asked)); got != held[asked] {
					t.Fatalf("Contains(%08x) = %v, want %v", asked, got, held[asked])
				}
			}
		}
		for _, asked := range []uint32{0, 1, 1<<31 - 1, 1 << 31, 1<<32 - 1} {
			if got := set.Contains(hashOf(asked)); got != held[asked] {
				t.Fatalf("Contains(%08x) = %v, want %v", asked, got, held[asked])
			}
		}
	})
}

func TestBlocksYieldWhatWasAdded(t *testing.T) {
	eachNumbers(t, func(t *testing.T, set *Set, all []uint32) {
		if got, _ := io.ReadAll(set.Reader()); !bytes.Equal(got, packed(all)) || set.Len() != len(all) {
			t.Errorf("%d entries in %d bytes differ from the %d that were added", set.Len(), len(got), len(all))
		}
		again, err := Read(bytes.NewReader(writtenForm(t, set)), len(all))
		if err != nil || !sameSet(again, set) {
			t.Errorf("the set is not read back: %v", err)
		}
	})
}

func TestBlocksAreSmallWhateverTheHint(t *testing.T) {
	eachNumbers(t, func(t *testing.T, set *Set, all []uint32) {
		n := len(all)
		if most := blocksBytes(lowBits(n), n)*5/4 + 64; set.Bytes() > most || cap(set.four.Load().buf) > most {
			t.Errorf("%d entries in %d bytes, of %d; want at most %d", n, set.Bytes(), cap(set.four.Load().buf), most)
		}
	})
}

func TestEntriesMayBeAddedInAnyPieces(t *testing.T) {
	r := rand.New(rand.NewPCG(33, 34))
	all := packed(randomPrefixes(35, 30_000))
	want := setOfPacked(all, 30_000)
	for _, most := range []int{1, 100, 30_000} {
		b := NewBuilder(30_000)
		for rest := all; len(rest) > 0; {
			n := 4 * min(1+r.IntN(most), len(rest)/4)
			if err := b.Add(rest[:n], 4); err != nil {
				t.Fatal(err)
			}
			rest = rest[n:]
		}
		if !sameSet(b.Set(), want) {
			t.Errorf("added by at most %d the set is another", most)
		}
	}
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

func TestSmallSetsAreSmall(t *testing.T) {
	for n, most := range map[int]int{1: 40, 10: 80, 100: 420, 1000: 3300, 10_000: 30_000, 65_536: 152_000} {
		if got := setOfNumbers(randomPrefixes(43, n)).Bytes(); got > most {
			t.Errorf("%d prefixes take %d bytes, want at most %d", n, got, most)
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

func TestBuildingAllocatesNothingForAnEntry(t *testing.T) {
	entries := packed(randomPrefixes(47, 100_000))
	if n := testing.AllocsPerRun(3, func() { setOfPacked(entries, 100_000) }); n > 60 {
		t.Errorf("%v allocations for 100,000 entries", n)
	}
}

func TestSelect64FindsEachOne(t *testing.T) {
	r := rand.New(rand.NewPCG(51, 52))
	words := []uint64{1, 1 << 63, ^uint64(0), 0x8080808080808080, 0x0101010101010101}
	for range 1000 {
		words = append(words, r.Uint64(), r.Uint64()&r.Uint64()&r.Uint64(), r.Uint64()|r.Uint64()|r.Uint64())
	}
	for _, w := range words {
		rank := 0
		for rest := w; rest != 0; rest &= rest - 1 {
			if got, want := select64(w, rank), bits.TrailingZeros64(rest); got != want {
				t.Fatalf("select64(%#x, %d) = %d, want %d", w, rank, got, want)
			}
			rank++
		}
	}
}

func TestLowBitsMakeSmallSets(t *testing.T) {
	for _, n := range []int{1, 50, 100, 1000, 65_536, 1_000_000, 3_000_000, 4_000_000, 8_000_000, 20_000_000, 50_000_000} {
		low := lowBits(n)
		for other := range uint(maxLow + 1) {
			if best := blocksBytes(other, n); blocksBytes(low, n) > best+best/10+40 {
				t.Errorf("%d entries: %d low bits, but %d take only %d bytes", n, low, other, best)
			}
			if fits(other, n) != (max(other, low)-min(other, low) <= 1) {
				t.Errorf("%d low bits fit %d entries: %v", other, n, fits(other, n))
			}
		}
	}
}
