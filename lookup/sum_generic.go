//go:build !amd64 || !gc || purego

package lookup

// sumSuffixes writes to dst[i] the SHA-256 of the expression of host[starts[i]:].
func sumSuffixes(dst []FullHash, host string, starts []int) { sumEach(dst, host, starts) }
