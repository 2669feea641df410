package prefixset

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
)

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
