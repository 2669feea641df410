package prefixset

import (
	"fmt"
	"os"
	"runtime"
	"testing"

	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
)

// residentBytes returns the memory that the process takes.
func residentBytes(t *testing.T) int {
	t.Helper()
	statm, err := os.ReadFile("/proc/self/statm")
	testkit.Must(t, err)
	var size, resident int // in pages
	_, err = fmt.Sscan(string(statm), &size, &resident)
	testkit.Must(t, err)
	return resident * os.Getpagesize()
}

func TestMemoryIsGivenBack(t *testing.T) {
	testkit.Long(t)
	entries := strides(71, 400_000)
	tests := map[string]func(){
		"sets":               func() { setOfPacked(entries, 400_000) },
		"wrong hints":        func() { setOfPacked(entries, 0) },
		"abandoned builders": func() { NewBuilder(400_000).Add(entries, 4) },
	}
	for name, use := range tests {
		use()
		before := residentBytes(t)
		for range 25 { // 19 MB or more if nothing was given back
			use()
			runtime.GC()
		}
		testkit.Until(t, name+": less than 10 MiB more than before", func() bool {
			collect()
			return residentBytes(t)-before < 10<<20
		})
	}
}

func TestLargeSetsAreOutsideOfTheHeap(t *testing.T) {
	entries := strides(73, 4_000_000)
	before := heapInUse()
	set := setOfPacked(entries, 4_000_000)
	testkit.Between(t, "bytes of the heap", heapInUse(), 0, before+256<<10)
	runtime.KeepAlive(set)
	runtime.KeepAlive(entries)
}
