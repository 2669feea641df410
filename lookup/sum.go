package lookup

import "crypto/sha256"

// maxDottedSums is the most sums of sumDotted. Few names have more.
const maxDottedSums = 6

// sumEach is sumSuffixes with the standard library, one sum after the other.
func sumEach(dst []FullHash, host string, starts []int) {
	for i, start := range starts {
		dst[i] = sumExpression(host[start:])
	}
}

// sumExpression returns the SHA-256 of the expression of a host. It allocates only if
// the host is longer than maxHost.
func sumExpression(host string) FullHash {
	var buf [maxHost + 1]byte
	return sha256.Sum256(append(append(buf[:0], host...), '/'))
}
