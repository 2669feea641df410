//go:build gc && !purego

package lookup

import (
	"crypto/sha256"

	"github.com/klauspost/cpuid/v2"
)

//go:generate go run -C _asm . -out ../sum_amd64.s -stubs ../sum_stub_amd64.go -pkg lookup

// shaUnit says that the processor has the instructions that sumOne and sumTwo need.
var shaUnit = cpuid.CPU.Supports(cpuid.SSSE3, cpuid.SSE4, cpuid.SHA) // SSE4 is SSE4.1

// maxOneBlock is the length of the longest message that fits into one block: the
// padding adds the byte 0x80 and eight bytes of length (FIPS 180-4, section 5.1.1).
const maxOneBlock = sha256.BlockSize - 1 - 8

// sumSuffixes writes to dst[i] the SHA-256 of the expression of host[starts[i]:]: that
// suffix and a slash. It computes two sums at a time if both fit into one block.
func sumSuffixes(dst []FullHash, host string, starts []int) {
	if !shaUnit {
		sumEach(dst, host, starts)
		return
	}
	// All expressions end with the same bytes, so one padded copy of the host serves
	// them all: an expression of n bytes begins n bytes before the byte 0x80. sumOne
	// and sumTwo add the length at the end of the block themselves.
	const most = maxOneBlock - 1 // bytes of a host, without the slash
	var padded [maxOneBlock + sha256.BlockSize]byte
	copy(padded[max(0, most-len(host)):], host[max(0, len(host)-most):])
	padded[most] = '/'
	end := &padded[maxOneBlock]
	*end = 0x80

	var waiting *[sha256.Size]byte // where the first sum of a pair goes; nil: no pair begun
	var waitingSize int
	for i, start := range starts {
		sum, suffix := (*[sha256.Size]byte)(&dst[i]), host[start:]
		switch {
		case len(suffix) > most:
			*sum = sumExpression(suffix)
		case waiting == nil:
			waiting, waitingSize = sum, len(suffix)+1
		default:
			sumTwo(waiting, sum, end, waitingSize, len(suffix)+1)
			waiting = nil
		}
	}
	if waiting != nil {
		sumOne(waiting, end, waitingSize)
	}
}
