package prefixset

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
)

const (
	// manyBytes are worth a collection.
	manyBytes = 1 << 20

	// fewUnused are bytes of the heap. The collector returns so many to the system in a
	// millisecond. It does nothing else meanwhile: with one core no query is answered.
	fewUnused = 16 << 20
)

// GiveBack releases the memory of sets that have been replaced, if they had 1 MiB or more. It also
// returns the unused part of the heap to the system, unless that takes long, because the heap has
// grown under load: it would soon be needed again. The collector would take its time for both,
// since most of a set is not in its heap.
func GiveBack(replaced int) {
	switch {
	case replaced < manyBytes:
	case unusedBytes() <= fewUnused:
		debug.FreeOSMemory()
	default:
		runtime.GC()
	}
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
