//go:build gc && !purego

package lookup

import (
	"bytes"
	"os"
	"runtime"
	"slices"
	"testing"
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

// A name may be hashed on a machine without the instructions.
func TestSumSuffixesWithoutSHAUnit(t *testing.T) {
	defer func(was bool) { shaUnit = was }(shaUnit)
	shaUnit = false
	checkSums(t, benchSumName, benchSumStarts[:])
}
