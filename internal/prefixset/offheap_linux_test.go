package prefixset

import (
	"fmt"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
)

// residentBytes returns the memory that the process takes.
func residentBytes(t *testing.T) int {
	t.Helper()
	statm, err := os.ReadFile("/proc/self/statm")
	testkit.Must(t, err)
	var size, resident int // in pages
	if _, err := fmt.Sscan(string(statm), &size, &resident); err != nil {
		t.Fatal(err)
	}
	return resident * os.Getpagesize()
}

func TestMemoryIsGivenBack(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: it takes long")
	}
	entries := strides(71, 400_000)
	tests := map[string]func(){
		"sets":               func() { setOfPacked(entries, 400_000) },
		"wrong hints":        func() { setOfPacked(entries, 0) },
		"abandoned builders": func() { NewBuilder(400_000).Add(entries, 4) },
	}
	for name, use := range tests {
		t.Run(name, func(t *testing.T) {
			use()
			before := residentBytes(t)
			for range 25 { // 19 MB or more if nothing was given back
				use()
				runtime.GC()
			}
			const most = 10 << 20
			for range 100 {
				if residentBytes(t)-before < most {
					return
				}
				runtime.GC()
				time.Sleep(10 * time.Millisecond) // for the goroutine that gives back
			}
			t.Errorf("%d bytes more are taken than before", residentBytes(t)-before)
		})
	}
}

func TestLargeSetsAreOutsideOfTheHeap(t *testing.T) {
	entries := strides(73, 4_000_000)
	before := heapInUse()
	set := setOfPacked(entries, 4_000_000)
	if grown := int64(heapInUse()) - int64(before); grown > 256<<10 {
		t.Errorf("a set of %d bytes takes %d of the heap", set.Bytes(), grown)
	}
	runtime.KeepAlive(set)
	runtime.KeepAlive(entries)
}
