package lookup

import (
	"math"
	"runtime/debug"
)

// UsableMemory returns how many bytes of memory this process may use: the least of the memory of the
// machine, the limits of its cgroups, and GOMEMLIMIT as it is in force now (runtime/debug,
// SetMemoryLimit). It returns 0 if nothing is known. It reads files of the system at
// each call. It is safe for concurrent use.
func UsableMemory() int64 {
	limit := debug.SetMemoryLimit(-1)
	machine := ofMachine()
	switch {
	case machine > 0:
		return min(machine, limit)
	case limit == math.MaxInt64: // no limit
		return 0
	}
	return limit
}
