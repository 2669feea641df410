package prefixset

import (
	"math"
	"runtime/debug"
	"sync"
)

// memoryLimit applies the operator's memory limit ($GOMEMLIMIT) to the whole process. The
// collector does not count memory outside its heap, so memoryLimit lowers the collector's
// limit by that memory. Without a limit it does nothing. It is safe for concurrent use.
type memoryLimit struct {
	mu      sync.Mutex
	outside int64 // bytes outside the heap
	whole   int64 // the operator's limit, in bytes
	lowered int64 // the limit that add set last, in bytes; 0: none yet
}

var limitOfMemory memoryLimit

// add changes the number of bytes outside the heap. The collector keeps at least half of the
// limit: with less it could spend all its time collecting.
func (l *memoryLimit) add(bytes int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.outside += int64(bytes)
	now := debug.SetMemoryLimit(-1)
	if now == math.MaxInt64 {
		return
	}
	if now != l.lowered { // another part of the program has set a limit
		l.whole = now
	}
	l.lowered = max(l.whole-l.outside, l.whole/2)
	debug.SetMemoryLimit(l.lowered)
}
