package prefixset

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
)

// some returns few entries of a width in ascending order, which begin with some of the same bytes as those of other calls.
func some(random *rand.Rand, width, most int) (all [][]byte) {
	for range random.IntN(most + 1) {
		all = append(all, append(make([]byte, width-1), byte(random.IntN(40))))
	}
	slices.SortFunc(all, bytes.Compare)
	return slices.CompactFunc(all, bytes.Equal)
}

func TestBelowCountsWhatAScanCounts(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for round := range 3000 {
		width := 4 + round%2*4
		entries := append(some(random, width, 20), bytes.Repeat([]byte{0xff}, width))
		c := NewCursor(func() ([]byte, int) { return bytes.Join(entries, nil), width })
		c.OK()
		n, bound := 1+random.IntN(len(entries)), append(make([]byte, 3+random.IntN(5)), byte(random.IntN(40)))
		want := len(slices.DeleteFunc(slices.Clone(entries[:n]), func(e []byte) bool { return bytes.Compare(e, bound) >= 0 }))
		if got := c.Below(n, bound); got != want {
			t.Fatalf("of %x %d are below %x, want %d", entries[:n], got, bound, want)
		}
	}
}

func TestADifferFindsWhatEachHasAlone(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	for round := range 3000 {
		base, target := slices.Concat(some(random, 5, 9), some(random, 4, 9)), slices.Concat(some(random, 5, 9), some(random, 4, 9))
		slices.SortFunc(base, bytes.Compare)
		slices.SortFunc(target, bytes.Compare)
		var want, got []string
		for i, e := range base {
			if !slices.ContainsFunc(target, func(o []byte) bool { return bytes.Equal(e, o) }) {
				want = append(want, fmt.Sprintf("%x at %d", e, i))
			}
		}
		for _, e := range target {
			if !slices.ContainsFunc(base, func(o []byte) bool { return bytes.Equal(e, o) }) {
				want = append(want, fmt.Sprintf("%x", e))
			}
		}
		both := 0
		d := NewDiffer(buildSet(t, 0, base).Runs().Next, buildSet(t, 0, target).Runs().Next)
		for where, entries, width := d.Next(); where != Ended; where, entries, width = d.Next() {
			switch where {
			case BaseOnly:
				got = append(got, fmt.Sprintf("%x at %d", entries, d.Index()))
			case TargetOnly:
				got = append(got, fmt.Sprintf("%x", entries))
			case Both:
				both += len(entries) / width
			}
		}
		slices.Sort(want)
		slices.Sort(got)
		testkit.Equal(t, fmt.Sprint("entries of one only in round ", round), got, want)
		testkit.Equal(t, fmt.Sprint("all entries in round ", round), 2*both+len(got), len(base)+len(target))
	}
}
