//go:build !amd64 || !gc || purego

package lookup

// sumSuffixes writes to dst[i] the SHA-256 of name[starts[i]:]. It does not
// allocate.
func sumSuffixes(dst []FullHash, name []byte, starts []int) { sumEach(dst, name, starts) }
