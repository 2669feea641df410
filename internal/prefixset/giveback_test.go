package prefixset

import (
	"runtime"
	"runtime/debug"
	"testing"
)

func TestGiveBackLeavesALargeHeapAlone(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(10_000)) // the collector returns nothing on its own
	for _, tc := range []struct {
		name     string
		heap     int // bytes that are no longer used
		replaced int
		least    uint64 // bytes of the heap that have not been returned afterwards
		most     uint64
	}{
		{"a small heap", 8 << 20, manyBytes, 0, 6 << 20},
		{"one that has grown", 64 << 20, manyBytes, 60 << 20, 1 << 30},
		{"few bytes replaced", 2 << 20, manyBytes - 1, 2 << 20, 1 << 30},
	} {
		t.Run(tc.name, func(t *testing.T) {
			collect() // what other tests have left
			debug.FreeOSMemory()
			used := make([]byte, tc.heap)
			for i := range used {
				used[i] = 1
			}
			runtime.KeepAlive(used)
			GiveBack(tc.replaced)
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			held := m.HeapInuse + m.HeapIdle - m.HeapReleased - liveBytes()
			if held < tc.least || held > tc.most {
				t.Errorf("%d bytes of the heap have not been returned, want %d to %d", held, tc.least, tc.most)
			}
		})
	}
}

// liveBytes returns the bytes of spans that are in use after a collection.
func liveBytes() uint64 {
	debug.FreeOSMemory()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapInuse
}
