//go:build gc && !purego

package lookup

import (
	"syscall"
	"testing"
	"unsafe"

	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
)

// endOfPage returns a function that returns n bytes, that many before the end of a page. The next page cannot be read.
func endOfPage(t *testing.T) func(behind, n int) string {
	t.Helper()
	const page = 4096
	memory, err := syscall.Mmap(-1, 0, 2*page, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	testkit.Must(t, err)
	t.Cleanup(func() { _ = syscall.Munmap(memory) })
	for i := range page {
		memory[i] = "abc.-_:9\xff."[i*i>>3%10]
	}
	testkit.Must(t, syscall.Mprotect(memory[page:], syscall.PROT_NONE))
	return func(behind, n int) string { return unsafe.String(&memory[page-behind-n], n) }
}

// The sums must not depend on the bytes around a suffix.
func TestSumsOfSuffixesAtTheEndOfAPage(t *testing.T) {
	if !shaUnit {
		t.Skip("no SHA unit")
	}
	at := endOfPage(t)
	for behind := range 2 * maxOneBlock {
		for n := 1; n < maxOneBlock; n++ {
			for _, other := range []int{1, maxOneBlock - n, maxOneBlock - 1} {
				got := [5]FullHash{{1}, 4: {31: 1}}
				want := got
				want[1], want[2] = HashExpression(at(behind, n)+"/"), HashExpression(at(behind, other)+"/")
				want[3] = want[1]
				sumTwo((*[32]byte)(&got[1]), (*[32]byte)(&got[2]), at(behind, n), at(behind, other))
				sumOne((*[32]byte)(&got[3]), at(behind, n))
				if got != want {
					t.Fatalf("%d and %d bytes, %d before the end of the page: got %x, want %x", n, other, behind, got, want)
				}
			}
		}
	}
}

func TestScanOfNamesAtTheEndOfAPage(t *testing.T) {
	if !byteShuffle {
		t.Skip("no SSSE3")
	}
	at := endOfPage(t)
	for behind := range 128 {
		for n := 1; n <= 64; n++ {
			checkScan(t, at(behind, n))
		}
	}
}
