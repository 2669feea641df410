package lookup

import "crypto/sha256"

// sumEach is sumSuffixes by the standard library, one sum after the other.
func sumEach(dst []FullHash, name []byte, starts []int) {
	for i, start := range starts {
		dst[i] = sha256.Sum256(name[start:])
	}
}
