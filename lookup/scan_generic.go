//go:build !amd64 || !gc || purego

package lookup

// scanName has no vector instructions here: ok is false.
func scanName(string) (dots, others uint64, ok bool) { return 0, 0, false }
