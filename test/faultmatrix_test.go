package test

import (
	"flag"
	"fmt"
	"maps"
	"slices"
	"strings"
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

// Each fault of names, connections, HTTP and content, in each phase: the last good lists and
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
	var all results
	for i, name := range slices.Sorted(maps.Keys(faults)) {
		if i%matrixParts != part {
			continue
		}
		for j, key := range sampleOf(faults[name].cells(), i) {
			c := &cell{column: key.column, phase: key.phase, fault: faults[name], lines: lines}
			all.add(t, fmt.Sprintf("%s/%s/%s", name, key.phase, key.column), j == 0, c)
		}
	}
	t.Log(all.summary())
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

// results has the cells that have run.
type results struct {
	faults, cells int
	survived      int // cells
	rows          strings.Builder
	queries       int
	lost          int // not answered, or answered with an error
	peak, left    int // MiB, at most
}

// add runs a cell. firstOfRow says that its fault differs from the previous cell's.
func (r *results) add(t *testing.T, name string, firstOfRow bool, c *cell) {
	if firstOfRow {
		r.faults++
	}
	r.cells++
	var seen seen
	if t.Run(name, func(t *testing.T) { seen = c.run(t) }) {
		r.survived++
	}
	r.queries += seen.queries
	r.lost += seen.lost
	r.peak, r.left = max(r.peak, seen.peak), max(r.left, seen.left)
	fmt.Fprintf(&r.rows, "%-56s %s\n", name, seen)
}

func (r *results) summary() string {
	return fmt.Sprintf("%d faults in %d cells, %d of them survived; %d queries for clean names, %d lost; at most %d MiB more for a time, %d MiB after\n%s",
		r.faults, r.cells, r.survived, r.queries, r.lost, r.peak, r.left, &r.rows)
}
