package lookup

import (
	"math/rand/v2"
	"testing"

	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
)

// checkSums compares sumSuffixes with the standard library, and checks that it does not write past its sums.
func checkSums(t *testing.T, name string, starts []int) {
	t.Helper()
	got := make([]FullHash, len(starts)+1)
	sumSuffixes(got, name, starts)
	for i, start := range starts {
		if want := HashExpression(name[start:] + "/"); got[i] != want {
			t.Fatalf("the sum of %q, number %d of %v: got %x, want %x", name[start:], i, starts, got[i], want)
		}
	}
	testkit.Equal(t, "what is behind the last sum", got[len(starts)], FullHash{})
}

// randomMessage returns n bytes, of all values: some of them look like padding.
func randomMessage(r *rand.Rand, n int) string {
	name := make([]byte, n)
	for i := range name {
		name[i] = byte(r.Uint32())
	}
	return string(name)
}

func TestSumSuffixesOfEveryLength(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for n := range 301 {
		name := randomMessage(r, n)
		for start := range n + 1 {
			checkSums(t, name, []int{start})
			checkSums(t, name, []int{start, n / 2})
			checkSums(t, name, []int{n, start, 0})
			checkSums(t, name, []int{0, start, start / 2, n / 3, start, n / 2, 0, n})
		}
	}
}

func FuzzSumSuffixes(f *testing.F) {
	f.Add(benchSumName, []byte{28, 21, 14, 7, 0})
	f.Add("", []byte{0, 0})
	f.Add(string(make([]byte, 56)), []byte{0, 1, 56})
	f.Add(string(make([]byte, 300)), []byte{0, 255, 245, 244, 45})
	f.Fuzz(func(t *testing.T, name string, from []byte) {
		starts := make([]int, len(from))
		for i, b := range from {
			starts[i] = int(b) % (len(name) + 1)
		}
		checkSums(t, name, starts)
	})
}

// benchSumName is a longer name of a usual kind.
const benchSumName = "img-07.static.eu-west-1.cdn.example.com"

// benchSumStarts are the expressions of benchSumName, the most important first.
var benchSumStarts = [maxExpressions]int{0, 28, 24, 14, 7}
