package prefixset

import (
	"math"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync"
)

// memory holds bytes outside the collector's heap, if there are many. In the heap they would
// let the garbage grow to their own size before the next collection. The bytes are released
// after a collection that finds the memory unreachable. A function that uses bytes must
// therefore keep the memory, or its owner, alive until it is done (runtime.KeepAlive), and
// must not pass a slice of them out of this package.
type memory struct{ bytes []byte }

// minMapped is the size in bytes from which memory is outside the heap. The unused rest of
// the last page is then a small part.
const minMapped = 128 << 10

// newMemory returns memory of size zero bytes.
func newMemory(size int) *memory { return newMemoryFrom(size, mapBytes) }

// newMemoryFrom allocates with mapped. If there are few bytes, or if mapped fails, it
// allocates from the heap.
func newMemoryFrom(size int, mapped func(size int) ([]byte, error)) *memory {
	m := new(memory)
	if size >= minMapped {
		if b, err := mapped(size); err == nil {
			m.bytes = b
			limitOfMemory.add(size)
			runtime.AddCleanup(m, giveBack, b)
			return m
		}
	}
	m.bytes = make([]byte, size)
	return m
}

// giveBack releases bytes that newMemoryFrom mapped. If that fails, the memory is lost: that
// is better than to stop the name server. It releases the pages in pieces before it
// releases the mapping: the system takes milliseconds for all pages of a large list.
func giveBack(b []byte) {
	var pause Pause
	for rest := b; len(rest) > 0; {
		piece := rest[:min(len(rest), 1<<20)]
		dropPages(piece)
		rest = rest[len(piece):]
		pause.After(lookEvery)
	}
	if unmapBytes(b) == nil {
		limitOfMemory.add(-len(b))
	}
}

// fitted returns memory of the size of its content, or m if m is not much larger.
func fitted(m *memory) *memory {
	if cap(m.bytes) <= len(m.bytes)*17/16+slack {
		return m
	}
	f := newMemory(len(m.bytes))
	new(Pause).copy(f.bytes, m.bytes)
	runtime.KeepAlive(m)
	return f
}

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

const (
	// manyBytes are worth a collection.
	manyBytes = 1 << 20

	// fewUnused are bytes of the heap. The collector returns that number to the system in a
	// millisecond. It does nothing else meanwhile: with one core no query is answered.
	fewUnused = 16 << 20
)

// GiveBack releases the memory of sets that have been replaced, if they had 1 MiB or more. It also
// returns the unused part of the heap to the system, unless that takes long, because the heap has
// grown under load: it would soon be needed again. The collector would take its time for both,
// since most of a set is not in its heap.
func GiveBack(replaced int) {
	switch release(replaced, unusedBytes()) {
	case collected:
		runtime.GC()
	case returned:
		debug.FreeOSMemory()
	}
}

// released says what becomes of unused memory.
type released int

const (
	left      released = iota
	collected          // the memory of sets is released
	returned           // and the unused part of the heap goes to the system
)

// release decides what GiveBack does if unused bytes of the heap could be returned.
func release(replaced int, unused uint64) released {
	switch {
	case replaced < manyBytes:
		return left
	case unused <= fewUnused:
		return returned
	}
	return collected
}

// unusedBytes returns the bytes of the heap that could be returned to the system, or a little more.
func unusedBytes() uint64 {
	samples := []metrics.Sample{
		{Name: "/memory/classes/heap/free:bytes"}, {Name: "/memory/classes/heap/objects:bytes"}, {Name: "/gc/heap/live:bytes"},
	}
	metrics.Read(samples)
	free, objects, live := samples[0].Value.Uint64(), samples[1].Value.Uint64(), samples[2].Value.Uint64()
	return free + objects - min(objects, live)
}
