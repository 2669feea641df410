//go:build gc && !purego

package lookup

import (
	"bytes"
	"os"
	"runtime"
	"slices"
	"testing"

	"github.com/klauspost/cpuid/v2"
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
	_, listed, _ = bytes.Cut(listed, []byte("\nflags"))
	listed, _, _ = bytes.Cut(listed, []byte("\n"))
	flags := bytes.Fields(listed)
	want := true
	for _, flag := range []string{"ssse3", "sse4_1", "sha_ni"} {
		want = want && slices.ContainsFunc(flags, func(f []byte) bool { return string(f) == flag })
	}
	if shaUnit != want {
		t.Errorf("shaUnit: got %v, want %v", shaUnit, want)
	}
}

// The tests of the assembly are skipped on a processor without its instructions. .ci/run prints
// what this one says.
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
