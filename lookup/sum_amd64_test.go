//go:build gc && !purego

package lookup

import (
	"bytes"
	"crypto/sha256"
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

// The sums must not depend on the bytes before the message.
func TestSumTwoReadsOnlyItsMessages(t *testing.T) {
	if !shaUnit {
		t.Skip("no SHA unit")
	}
	for first := range maxOneBlock + 1 {
		for second := range maxOneBlock + 1 {
			padded := [2 * maxOneBlock * 2]byte(bytes.Repeat([]byte{0xff}, 4*maxOneBlock))
			block := padded[maxOneBlock:]
			clear(block[maxOneBlock:])
			block[maxOneBlock] = 0x80
			var got, want [4]FullHash
			got[0][0], got[3][0] = 1, 1
			want = got
			want[1], want[2] = sha256.Sum256(block[maxOneBlock-first:maxOneBlock]), sha256.Sum256(block[maxOneBlock-second:maxOneBlock])
			sumTwo((*[32]byte)(&got[1]), (*[32]byte)(&got[2]), &block[maxOneBlock], first, second)
			if got != want {
				t.Fatalf("%d and %d bytes: got %x, want %x", first, second, got, want)
			}
		}
	}
}
