package protocol

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

func TestRadixSortSortsAsTheLibraryDoes(t *testing.T) {
	chance := rand.New(rand.NewPCG(1, 2))
	masks := []uint32{0, 1, 0xff, 0xff00, 0xff000000, 0x00ffff00, 0xffffffff}
	for _, size := range []int{0, 1, 2, fewNumbers, fewNumbers + 1, 1000, 100_000} {
		for _, mask := range masks {
			numbers := make([]uint32, size)
			for i := range numbers {
				numbers[i] = chance.Uint32() & mask
			}
			want := slices.Clone(numbers)
			slices.Sort(want)
			radixSort(numbers, 24)
			if !slices.Equal(numbers, want) {
				t.Errorf("%d numbers with the mask %#x are not sorted", size, mask)
			}
		}
	}
}

func BenchmarkSort(b *testing.B) {
	chance := rand.New(rand.NewPCG(1, 2))
	for _, size := range []int{1000, 4_000_000} {
		numbers := make([]uint32, size)
		for i := range numbers {
			numbers[i] = chance.Uint32()
		}
		copied := make([]uint32, size)
		for name, sort := range map[string]func([]uint32){"radix": func(n []uint32) { radixSort(n, 24) }, "slices": slices.Sort[[]uint32]} {
			b.Run(fmt.Sprintf("%d/%s", size, name), func(b *testing.B) {
				for b.Loop() {
					copy(copied, numbers)
					sort(copied)
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*size), "ns/number")
			})
		}
	}
}
