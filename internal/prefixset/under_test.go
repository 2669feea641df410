package prefixset

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"testing"
)

// The entries are few enough to collide, and some sets are large enough for an index of two
// leading bytes.
func TestUnderFindsWhatAScanFinds(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for _, size := range []int{0, 1, 300, chunkEntries + 5000} {
		var entries [][]byte
		for range size {
			e := make([]byte, []int{4, 5, 8, 32}[random.IntN(4)])
			for i := range e {
				e[i] = byte(random.Uint32())
			}
			if random.IntN(2) == 0 {
				copy(e, []byte{7, 7, byte(random.IntN(4)), byte(random.IntN(64))})
			}
			entries = append(entries, e)
		}
		slices.SortFunc(entries, bytes.Compare)
		entries = slices.CompactFunc(entries, bytes.Equal)
		b := NewBuilder(len(entries))
		for _, e := range entries {
			if err := b.Add(e, len(e)); err != nil {
				t.Fatal(err)
			}
		}
		set := b.Set()
		for third := range byte(4) {
			for fourth := range byte(64) {
				prefix := [4]byte{7, 7, third, fourth}
				want := scanUnder(entries, prefix)
				if got := set.Under(prefix, len(entries)+1); !slices.EqualFunc(got, want, bytes.Equal) {
					t.Fatalf("of %d entries under %x: %x, want %x", len(entries), prefix, got, want)
				}
				if got := set.Under(prefix, 1); len(got) != min(1, len(want)) {
					t.Fatalf("%d entries, want at most 1", len(got))
				}
			}
		}
	}
}

func scanUnder(entries [][]byte, prefix [4]byte) (found [][]byte) {
	for _, e := range entries {
		if bytes.Equal(e, prefix[:]) {
			return [][]byte{e}
		}
		if bytes.HasPrefix(e, prefix[:]) {
			found = append(found, e)
		}
	}
	return found
}
