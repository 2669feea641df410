package prefixset

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
)

const (
	// manyBytes are worth a collection.
	manyBytes = 1 << 20

	// smallHeap is a size in bytes. The collector returns the unused pages of such a heap to the
	// system in a millisecond. It does nothing else meanwhile: with one core no query is answered.
	smallHeap = 16 << 20
)

// GiveBack releases the memory of sets that have been replaced, if they had 1 MiB or more. It also
// returns the unused part of the heap to the system, unless that takes long, because the heap has
// grown under load: it would soon be needed again. The collector would take its time for both,
// since most of a set is not in its heap.
func GiveBack(replaced int) {
	switch {
	case replaced < manyBytes:
	case heapBytes() <= smallHeap:
		debug.FreeOSMemory()
	default:
		runtime.GC()
	}
}

// heapBytes returns the bytes of the heap that are in use or could be returned to the system.
func heapBytes() (n uint64) {
	samples := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}, {Name: "/memory/classes/heap/free:bytes"}}
	metrics.Read(samples)
	for _, s := range samples {
		n += s.Value.Uint64()
	}
	return n
}
