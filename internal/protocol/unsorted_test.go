package protocol

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/coredns-safebrowsing/safebrowsing/updater"
)

// The schemas promise the order. Google's client for Web Risk sorts all the same, and so do we:
// the checksum says whether the entries are right.
func TestRawPrefixesAreSorted(t *testing.T) {
	for _, test := range []struct {
		size      int32
		raw, want string
	}{
		{4, "aaaabbbbcccc", "aaaabbbbcccc"},
		{4, "ccccaaaabbbb", "aaaabbbbcccc"},
		{5, "bbbbbaaaabaaaaa", "aaaaaaaaabbbbbb"},
		{32, strings.Repeat("b", 32) + strings.Repeat("a", 32), strings.Repeat("a", 32) + strings.Repeat("b", 32)},
		{4, "", ""},
	} {
		entries, err := rawEntries(t.Context(), test.size, []byte(test.raw))
		if err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(entries.Reader); err != nil || string(got) != test.want {
			t.Errorf("%d bytes each, %q: got %q, %v, want %q", test.size, test.raw, got, err, test.want)
		}
	}
}

func TestRawPrefixesHave4To32Bytes(t *testing.T) {
	for _, test := range []struct {
		size  int32
		bytes int
		want  int // entries; -1: an error
	}{
		{3, 12, -1}, {4, 12, 3}, {32, 64, 2}, {33, 66, -1}, {5, 12, -1}, {4, 0, 0}, {0, 0, -1}, {-4, 12, -1},
	} {
		got, err := rawEntries(t.Context(), test.size, make([]byte, test.bytes))
		if test.want < 0 && !errors.Is(err, updater.ErrMalformed) || test.want >= 0 && (err != nil || got.Count != test.want || got.Width != int(test.size)) {
			t.Errorf("%d bytes of %d: got %+v, %v, want %d entries", test.bytes, test.size, got, err, test.want)
		}
	}
}

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
