package lookup

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// A look-up asks about the same sums whether the dots of a name are known or not.
func TestSumDottedSumsTheSameSuffixes(t *testing.T) {
	random := rand.New(rand.NewPCG(21, 22))
	dotted := 0
	for range 20_000 {
		name := strings.Repeat("l", random.IntN(30)) + randomName(random)
		h := FromQname(name)
		var got [maxDottedSums]FullHash
		n := sumDotted(&got, h.name, h.dots())
		if n == 0 {
			continue
		}
		dotted++
		var want []FullHash
		for _, start := range (Host{name: h.name}).suffixStarts(nil, RuleV5) {
			want = append(want, HashExpression(h.name[start:]+"/"))
		}
		if !equalSets(got[:n], want) {
			t.Fatalf("%q: %d sums %x, want %x", name, n, got[:n], want)
		}
	}
	if n := sumDotted(new([maxDottedSums]FullHash), "www.a.example", 1<<3|1<<5); n > 0 && dotted < 5_000 {
		t.Errorf("%d names were summed by their dots, want the usual ones", dotted)
	}
}

func equalSets(a, b []FullHash) bool {
	compare := func(a, b FullHash) int { return slices.Compare(a[:], b[:]) }
	return slices.Equal(slices.SortedFunc(slices.Values(a), compare), slices.SortedFunc(slices.Values(b), compare))
}
