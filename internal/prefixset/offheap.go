package prefixset

import "runtime"

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
