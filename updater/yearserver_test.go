package updater_test

import (
	"net/http"
	"slices"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/protocoltest"
)

// publish makes a next version: some entries go, some come.
func (y *year) publish(list string) {
	held := y.content[list]
	for _, e := range sorted(held) {
		if y.chance.IntN(4) == 0 {
			delete(held, e)
		}
	}
	for range y.chance.IntN(8) {
		entry := make([]byte, y.widths(list, y.chance))
		for i := range entry {
			entry[i] = byte(y.chance.Uint32())
		}
		held[string(entry)] = true
	}
	var entries [][]byte
	for e := range held {
		entries = append(entries, []byte(e))
	}
	y.server.Publish(list, entries)
	y.published++
}

func sorted(set map[string]bool) (all []string) {
	for e := range set {
		all = append(all, e)
	}
	slices.Sort(all)
	return all
}

// longestWait is the longest minimum wait that the server gives: more than a day,
// where back-offs end.
const longestWait = 8 * 24 * time.Hour

func (y *year) setWait(list string) {
	if y.chance.IntN(20) == 0 {
		y.server.SetMinimumWait(list, 0)
		return
	}
	shortest, longest := 30*time.Minute, 40*time.Hour
	if y.chance.IntN(10) == 0 {
		longest = longestWait
	}
	y.server.SetMinimumWait(list, shortest+time.Duration(y.chance.Int64N(int64(longest-shortest))))
}

// setMethodWaits sets the waits of methods, where there are some, and how removals are coded.
func (y *year) setMethodWaits() {
	if y.waits != nil {
		y.waits(y)
	}
	y.server.SetRawRemovals(y.chance.IntN(2) == 0)
}

// breakSomething queues a fault for one to thirty requests.
func (y *year) breakSomething() {
	faults := y.faults()
	var names []string
	for name, fault := range faults {
		if !fault.EndlessBody { // takes a hundred times as long as all others; it has its own test
			names = append(names, name)
		}
	}
	slices.Sort(names)
	fault := faults[names[y.chance.IntN(len(names))]]
	if y.chance.IntN(2) == 0 {
		fault.List = y.list()
	}
	if y.chance.IntN(5) == 0 {
		fault.Delay = time.Duration(y.chance.Int64N(int64(4 * time.Minute)))
	}
	if fault.Status != 0 && y.chance.IntN(5) == 0 { // which counts for a day at most
		fault.RetryAfter = 10 * 365 * 24 * time.Hour
	}
	y.server.Break("", 1+int(y.chance.ExpFloat64()*3), fault)
}

// refuse makes the server refuse batches, a list, or all lists, for some time.
func (y *year) refuse() {
	fault := protocoltest.Fault{Status: http.StatusBadRequest}
	if y.chance.IntN(2) == 0 {
		fault.Status = http.StatusNotFound
	}
	switch y.chance.IntN(3) {
	case 0:
		fault.Batch = true
	case 1:
		fault.List = y.list()
	}
	y.server.Break("update", 1+y.chance.IntN(30), fault)
}
