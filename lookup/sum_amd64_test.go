//go:build gc && !purego

package lookup

import (
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/klauspost/cpuid/v2"

	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
)

// shaUnit must agree with the flags that the kernel reports.
func TestAssemblyIsTakenWhereThereIsASHAUnit(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux lists the features of a processor in a file")
	}
	listed, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		t.Skip(err)
	}
	_, flags, _ := strings.Cut(string(listed), "\nflags")
	flags, _, _ = strings.Cut(flags, "\n")
	has := func(flag string) bool { return slices.Contains(strings.Fields(flags), flag) }
	testkit.Equal(t, "shaUnit", shaUnit, has("ssse3") && has("sse4_1") && has("sha_ni"))
}

// The tests of the assembly are skipped on a processor without its instructions. .ci/run prints what this one says.
func TestTheProcessorHasInstructionsOfTheAssembly(t *testing.T) {
	t.Logf("%s: SHA unit (sums of names): %v; SSSE3 (dots of names): %v", cpuid.CPU.BrandName, shaUnit, byteShuffle)
	if !shaUnit && !byteShuffle && os.Getenv("CI") != "" {
		t.Error("no assembly was tested: run CI on a processor with SSSE3 at least")
	}
}

// A name may be hashed on a machine without the instructions.
func TestSumSuffixesWithoutSHAUnit(t *testing.T) {
	defer func(was bool) { shaUnit = was }(shaUnit)
	shaUnit = false
	checkSums(t, benchSumName, benchSumStarts[:])
}

// slowScan is scan, one byte after the other.
func slowScan(name string) (dots, others uint64) {
	for i := range len(name) {
		switch c := name[i]; {
		case c == '.':
			dots |= 1 << i
		case 'a' <= c && c <= 'z', isDigit(c), c == '-', strings.IndexByte("^_`{|}~", c) >= 0:
		default:
			others |= 1 << i
		}
	}
	return dots, others
}

func checkScan(t *testing.T, name string) {
	t.Helper()
	dots, others, ok := scanName(name)
	wantDots, wantOthers := slowScan(name)
	if !ok || dots != wantDots || others != wantOthers {
		t.Fatalf("%q: got %x, %x, %v, want %x, %x", name, dots, others, ok, wantDots, wantOthers)
	}
}

func TestScanKnowsEveryByteAtEveryPlace(t *testing.T) {
	if !byteShuffle {
		t.Skip("no SSSE3")
	}
	for size := 1; size <= 64; size++ {
		for at := range size {
			for b := range 256 {
				name := []byte(strings.Repeat("a", size))
				name[at] = byte(b)
				checkScan(t, string(name))
			}
		}
	}
	r := rand.New(rand.NewPCG(5, 6))
	for range 20_000 {
		checkScan(t, randomMessage(r, 1+r.IntN(64)))
	}
}

// A name may be scanned on a machine without the instructions. The results are the same.
func TestNamesAreTheSameWithoutScan(t *testing.T) {
	was := byteShuffle
	defer func() { byteShuffle = was }()
	r := rand.New(rand.NewPCG(7, 8))
	for range 50_000 {
		name := make([]byte, 1+r.IntN(80))
		for i := range name {
			name[i] = "abc-019."[r.IntN(8)]
			if r.IntN(60) == 0 {
				name[i] = "..ABC/:\\_^\x7f\xe4 "[r.IntN(13)]
			}
		}
		read := func(scan bool) (h Host, starts []int) {
			byteShuffle = scan
			if h = FromQname(string(name)); h.name != "" {
				starts = h.suffixStarts(nil, RuleV5)
			}
			return h, starts
		}
		a, with := read(was)
		b, without := read(false)
		if a.name != b.name || (a.form^b.form)&(isIP|isTruncated) != 0 || !slices.Equal(with, without) {
			t.Fatalf("%q: got %v, %v with scan, %v, %v without", name, a, with, b, without)
		}
	}
}
