package test

import (
	"bytes"
	"flag"
	"fmt"
	"maps"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"testing"

	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol"
	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
)

var wholeMatrix = flag.Bool("matrix.all", false, "try each fault in each protocol and with a relay; without it each fault in one cell")

// phases are the moments of a fault.
const (
	firstLoad     = "first load"
	partialUpdate = "partial update"
	inSearch      = "search"
)

var phases = []string{firstLoad, partialUpdate, inSearch}

// columns are the ways to a server. A relay speaks version 5 to both sides.
var columns = append(protocol.DialectNames(), throughRelay)

const throughRelay = "relay"

// matrixParts is how many processes share the faults.
const matrixParts = 4

// Each fault of names, connections, HTTP, content and clocks, in each phase: the last good lists and
// what was confirmed stay in force, all other names are answered at once, never with
// SERVFAIL, the log says what happened and until when, a metric counts it, the next request
// comes neither before the back-off has ended nor more than a day later, and memory is
// bounded.
func TestFaultMatrix(t *testing.T) {
	testkit.Long(t)
	part, mine := inParts(t, matrixParts)
	if !mine {
		return
	}
	lines := testkit.Capture(t)
	faults := matrixFaults(t)
	rows, cells, queries := 0, 0, 0
	for i, name := range slices.Sorted(maps.Keys(faults)) {
		if i%matrixParts != part {
			continue
		}
		rows++
		for _, key := range sampleOf(faults[name].cells(), i) {
			c := &cell{column: key.column, phase: key.phase, fault: faults[name], lines: lines}
			t.Run(fmt.Sprintf("%s/%s/%s", name, key.phase, key.column), func(t *testing.T) { t.Log(c.run(t)) })
			cells, queries = cells+1, queries+c.seen.queries
		}
	}
	t.Logf("%d faults in %d cells, %d queries for clean names", rows, cells, queries)
}

// place is a cell of the matrix in the row of a fault.
type place struct{ phase, column string }

// cells returns the cells in which a fault can be seen.
func (f fault) cells() (all []place) {
	for _, phase := range phases {
		for _, column := range columns {
			if f.seen(phase, column) {
				all = append(all, place{phase, column})
			}
		}
	}
	return all
}

// sampleOf returns all cells of a row with -matrix.all, and else one, another one in each row.
func sampleOf(cells []place, row int) []place {
	if *wholeMatrix || len(cells) == 0 {
		return cells
	}
	at := row * 5 % len(cells)
	return cells[at : at+1]
}

// memory is what this process used when a cell began, in MiB.
type memory struct {
	t        *testing.T
	resident int // the peak; where it cannot begin again, over all cells before
	heap     int
}

// What a cell may add: an answer takes at most 150 MiB in addition to the lists, see
// docs/reliability.md. CoreDNS, the relay, the server and the client of a cell are all in this
// process. The race detector takes several times as much.
const (
	mostPeak = 250 * raceFactor
	mostLeft = 32
)

func measureMemory(t *testing.T) memory {
	debug.FreeOSMemory()
	_ = os.WriteFile("/proc/self/clear_refs", []byte("5"), 0) // begins the peak again, see proc(5)
	return memory{t: t, resident: resident(os.Getpid()), heap: heap()}
}

// grown returns how much more memory the process had for a time. The peak is 0 on systems that do not tell it.
func (m memory) grown() (peak int) {
	peak = max(0, resident(os.Getpid())-m.resident)
	runtime.GC()
	left := max(0, heap()-m.heap)
	if peak > mostPeak || left > mostLeft {
		m.t.Errorf("Expected at most %d MiB more for a time and %d MiB after, got %d and %d", mostPeak, mostLeft, peak, left)
	}
	return peak
}

// resident returns the peak of a process's memory in MiB, 0 where the system does not tell it.
func resident(pid int) int {
	raw, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	_, rest, _ := bytes.Cut(raw, []byte("\nVmHWM:"))
	line, _, _ := bytes.Cut(rest, []byte(" kB"))
	kB, _ := strconv.Atoi(string(bytes.TrimSpace(line)))
	return kB >> 10
}

func heap() int {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc >> 20)
}
