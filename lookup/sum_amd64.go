//go:build gc && !purego

package lookup

import (
	"crypto/sha256"
	"math/bits"

	"github.com/klauspost/cpuid/v2"
)

//go:generate go run -C _asm . -out ../sum_amd64.s -stubs ../sum_stub_amd64.go -pkg lookup

// shaUnit says that the processor has the instructions that sumOne and sumTwo need.
var shaUnit = cpuid.CPU.Supports(cpuid.SSSE3, cpuid.SSE4, cpuid.SHA) // SSE4 is SSE4.1

// maxOneBlock is the length of the longest message that fits into one block: the
// padding adds the byte 0x80 and eight bytes of length (FIPS 180-4, section 5.1.1).
const maxOneBlock = sha256.BlockSize - 1 - 8

// sumDotted is sumSuffixes for all suffixes of two or more labels of a name. dots belongs to the
// name, see hostForm. It returns their number, or 0 if the name is too long, has too many
// labels, or the processor does not have the instructions. The odd one comes first: it leaves
// a part of the SHA unit idle, where the pairs can begin.
func sumDotted(dst *[maxDottedSums]FullHash, name string, dots uint64) (n int) {
	if dots == 0 || len(name) >= maxOneBlock || !shaUnit || bits.OnesCount64(dots) > maxDottedSums {
		return 0
	}
	dots &^= 1 << 63 >> bits.LeadingZeros64(dots) // no suffix of one label
	start := 0
	if bits.OnesCount64(dots)%2 == 0 {
		sumOne((*[sha256.Size]byte)(&dst[0]), name)
		if dots == 0 {
			return 1
		}
		n, start = 1, bits.TrailingZeros64(dots)+1
		dots &= dots - 1
	}
	for {
		sumTwo((*[sha256.Size]byte)(&dst[n]), (*[sha256.Size]byte)(&dst[n+1]), name[start:], name[bits.TrailingZeros64(dots)+1:])
		n += 2
		if dots &= dots - 1; dots == 0 {
			return n
		}
		start = bits.TrailingZeros64(dots) + 1
		dots &= dots - 1
	}
}

// sumSuffixes writes to dst[i] the SHA-256 of the expression of host[starts[i]:]: that
// suffix and a slash. It computes two sums at a time if both fit into one block. The
// assembly reads the host where it is: a copy would have to wait until its bytes have
// reached the cache.
func sumSuffixes(dst []FullHash, host string, starts []int) {
	if !shaUnit {
		sumEach(dst, host, starts)
		return
	}
	waiting, first := (*FullHash)(nil), "" // the first sum of a pair; nil: no pair begun
	for i, start := range starts {
		sum, suffix := &dst[i], host[start:]
		switch {
		case suffix == "" || len(suffix) >= maxOneBlock:
			*sum = sumExpression(suffix)
		case waiting == nil:
			waiting, first = sum, suffix
		default:
			sumTwo((*[sha256.Size]byte)(waiting), (*[sha256.Size]byte)(sum), first, suffix)
			waiting = nil
		}
	}
	if waiting != nil {
		sumOne((*[sha256.Size]byte)(waiting), first)
	}
}

// byteShuffle says that the processor has the instructions that scan needs.
var byteShuffle = cpuid.CPU.Supports(cpuid.SSSE3)

// scanName is scan for any name. ok is false if the name has no byte or more than 64, or
// if the processor does not have the instructions.
func scanName(name string) (dots, others uint64, ok bool) {
	if uint(len(name)-1) >= 64 || !byteShuffle {
		return 0, 0, false
	}
	dots, others = scan(name)
	return dots, others, true
}
