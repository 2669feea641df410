package prefixset

import "runtime"

// memory is bytes that are outside of the collector's heap, if they are many:
// there they do not let the heap grow by as much garbage before it is collected.
// They are given back after a collection that finds the memory unreachable.
// Whoever reads or writes bytes must therefore keep the memory, or what refers
// to it, alive until it is done (runtime.KeepAlive), and must not let a slice of
// them out of this package.
type memory struct{ bytes []byte }

// minMapped is the size from which memory is outside of the heap, in bytes:
// the rest of the last page is little to lose then.
const minMapped = 128 << 10

// newMemory returns memory of size bytes, which are zero.
func newMemory(size int) *memory { return newMemoryFrom(size, mapBytes) }

// newMemoryFrom takes the bytes from the heap if they are few or if mapped, which
// takes them from elsewhere, fails.
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

// giveBack ends what newMemoryFrom mapped. Where that cannot be done the memory is
// lost, which is better than the name server.
func giveBack(b []byte) {
	if unmapBytes(b) == nil {
		limitOfMemory.add(-len(b))
	}
}

// fitted returns memory of what is in m, or m if that is about as large.
func fitted(m *memory) *memory {
	if cap(m.bytes) <= len(m.bytes)*17/16+slack {
		return m
	}
	f := newMemory(len(m.bytes))
	copy(f.bytes, m.bytes)
	runtime.KeepAlive(m)
	return f
}
