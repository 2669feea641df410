package prefixset

import (
	"runtime"
	"runtime/debug"
	"testing"
)

func TestGiveBackLeavesALargeHeapAlone(t *testing.T) {
	for _, tc := range []struct {
		name     string
		replaced int
		unused   uint64
		want     released
	}{
		{"few bytes replaced", manyBytes - 1, 0, left},
		{"nothing unused", manyBytes, 0, returned},
		{"a small heap", manyBytes, fewUnused, returned},
		{"one that has grown", manyBytes, fewUnused + 1, collected},
		{"one that has grown, much replaced", 1 << 30, 1 << 40, collected},
	} {
		if got := release(tc.replaced, tc.unused); got != tc.want {
			t.Errorf("%s: got %d, want %d", tc.name, got, tc.want)
		}
	}
}

// Half of it is the bound: what else runs in this process leaves more, or frees what was alive when
// the collector last counted.
func TestGarbageCountsAsUnused(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // nothing is collected on its own
	collect()
	const size = 64 << 20
	garbage := make([]byte, size)
	runtime.KeepAlive(garbage)
	if got := unusedBytes(); got < size/2 {
		t.Errorf("got %d bytes, want about the %d that have become garbage", got, size)
	}
}
