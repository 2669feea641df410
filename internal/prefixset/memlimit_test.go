package prefixset

import (
	"math"
	"runtime/debug"
	"testing"
)

func TestMemoryOutsideOfTheHeapCountsForTheLimit(t *testing.T) {
	before := debug.SetMemoryLimit(-1)
	defer debug.SetMemoryLimit(before)
	const mib = 1 << 20
	want := func(when string, limit int64) {
		t.Helper()
		if got := debug.SetMemoryLimit(-1); got != limit {
			t.Errorf("%s: the collector's limit is %d, want %d", when, got, limit)
		}
	}
	var l memoryLimit
	debug.SetMemoryLimit(math.MaxInt64)
	l.add(10 * mib)
	want("without a limit", math.MaxInt64)
	debug.SetMemoryLimit(100 * mib)
	l.add(20 * mib)
	want("with one, all that is outside counts", 70*mib)
	l.add(-10 * mib)
	want("some is given back", 80*mib)
	l.add(200 * mib)
	want("the heap keeps a half", 50*mib)
	debug.SetMemoryLimit(1000 * mib)
	l.add(-20 * mib)
	want("somebody has set another limit", 800*mib)
	l.add(-200 * mib)
	want("all is given back", 1000*mib)
}
