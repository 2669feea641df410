package prefixset

import (
	"math"
	"runtime/debug"
	"sync"
)

// memoryLimit keeps a limit of memory that the operator set ($GOMEMLIMIT) for all
// that the process takes: the collector knows nothing of memory outside of its
// heap, so that its limit is lowered by that. Without a limit it does nothing. Safe
// for concurrent use.
type memoryLimit struct {
	mu      sync.Mutex
	outside int64 // bytes outside of the heap
	whole   int64 // the limit for all
	lowered int64 // what the collector was told last; 0: nothing yet
}

var limitOfMemory memoryLimit

// add notes that more bytes, or less if negative, are outside of the heap. The
// collector is left at least a half of the limit: with too little it would do
// nothing but collect.
func (l *memoryLimit) add(bytes int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.outside += int64(bytes)
	now := debug.SetMemoryLimit(-1)
	if now == math.MaxInt64 {
		return
	}
	if now != l.lowered { // somebody else has set it
		l.whole = now
	}
	l.lowered = max(l.whole-l.outside, l.whole/2)
	debug.SetMemoryLimit(l.lowered)
}
