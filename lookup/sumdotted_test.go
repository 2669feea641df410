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
		var got, want [maxLabelsWithoutPSL]FullHash
		n := sumDotted(&got, h.name, h.dots())
		if n == 0 {
			continue
		}
		dotted++
		all := want[:Host{name: h.name}.sumAny(&want, RuleV5)]
		if n != len(all) || !equalSets(got[:n], all) {
			t.Fatalf("%q: %d sums %x, want %x", name, n, got[:n], all)
		}
	}
	if _, _, ok := scanName("a.example"); ok && formOf("a.example") != 1<<1 {
		t.Errorf("the dot of a.example: %x", formOf("a.example"))
	}
	if n := sumDotted(new([maxLabelsWithoutPSL]FullHash), "www.a.example", 1<<3|1<<5); n != 0 && dotted < 10_000 {
		t.Errorf("%d names were summed by their dots, want the usual ones", dotted)
	}
}

func equalSets(a, b []FullHash) bool {
	compare := func(a, b FullHash) int { return slices.Compare(a[:], b[:]) }
	return slices.Equal(slices.SortedFunc(slices.Values(a), compare), slices.SortedFunc(slices.Values(b), compare))
}

// Public has a short way for most names.
func TestPublicKnowsEveryPrivateZone(t *testing.T) {
	for _, zone := range []string{"local", "internal", "onion", "invalid", "test", "localhost", "alt", "10.in-addr.arpa", "8.ip6.arpa", "home.arpa"} {
		for _, below := range []string{"a.", "www.a.", strings.Repeat("long.", 20)} {
			if h := FromQname(below + zone + "."); h.Public() {
				t.Errorf("%s is public", h)
			}
			if h := FromQname(below + "x" + zone + "."); !h.Public() && !strings.HasSuffix(zone, ".arpa") {
				t.Errorf("%s is not public", h)
			}
		}
	}
}
