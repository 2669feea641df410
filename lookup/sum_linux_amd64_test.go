//go:build gc && !purego

package lookup

import (
	"syscall"
	"testing"
	"unsafe"
)

// The sums must not depend on the bytes around a suffix, and no byte of another page may
// be read: the page behind the suffix cannot be read here.
func TestSumsOfSuffixesAtTheEndOfAPage(t *testing.T) {
	if !shaUnit {
		t.Skip("no SHA unit")
	}
	const page = 4096
	memory, err := syscall.Mmap(-1, 0, 2*page, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Munmap(memory)
	for i := range page {
		memory[i] = byte(i*i>>3 | 1)
	}
	if err := syscall.Mprotect(memory[page:], syscall.PROT_NONE); err != nil {
		t.Fatal(err)
	}
	at := func(end, n int) string { return unsafe.String(&memory[end-n], n) }
	for behind := range 2 * maxOneBlock {
		end := page - behind
		for n := 1; n < maxOneBlock; n++ {
			for _, other := range []int{1, maxOneBlock - n, maxOneBlock - 1} {
				var got, want [5]FullHash
				got[0][0], got[4][31] = 1, 1
				want = got
				want[1], want[2], want[3] = HashExpression(at(end, n)+"/"), HashExpression(at(end, other)+"/"), HashExpression(at(end, n)+"/")
				sumTwo((*[32]byte)(&got[1]), (*[32]byte)(&got[2]), at(end, n), at(end, other))
				sumOne((*[32]byte)(&got[3]), at(end, n))
				if got != want {
					t.Fatalf("%d and %d bytes, %d before the end of the page: got %x, want %x", n, other, behind, got, want)
				}
			}
		}
	}
}
