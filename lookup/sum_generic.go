//go:build !amd64 || !gc || purego

package lookup

// sumDotted has no SHA instructions here: n is 0.
func sumDotted(*[maxDottedSums]FullHash, string, uint64) (n int) { return 0 }

// sumSuffixes writes to dst[i] the SHA-256 of the expression of host[starts[i]:].
func sumSuffixes(dst []FullHash, host string, starts []int) { sumEach(dst, host, starts) }

// scanName has no vector instructions here: ok is false.
func scanName(string) (dots, others uint64, ok bool) { return 0, 0, false }
