package test

import (
	"bytes"
	"flag"
	"fmt"
	"maps"
	"net"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol"
	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol/pb/sbv5"
	"github.com/coredns-safebrowsing/safebrowsing/internal/protocoltest"
	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
)

var wholeMatrix = flag.Bool("matrix.all", false, "try each fault in each protocol and with a relay; without it each fault in one cell")

const (
	firstLoad     = "first load"
	partialUpdate = "partial update"
	inSearch      = "search"
)

// columns are the ways to a server. A relay speaks version 5 to both sides.
var columns = append(protocol.DialectNames(), throughRelay)

const throughRelay = "relay"

// matrixParts is how many processes share the faults.
const matrixParts = 4

// Each fault of names, connections, HTTP, content and clocks, in each phase: the last good lists and what was confirmed
// stay in force, all other names are answered at once, never with SERVFAIL, the log says what happened and until when,
// a metric counts it, the next request comes neither before the back-off has ended nor more than a day later, and
// memory is bounded.
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
		for _, key := range faults[name].cells(i) {
			c := &cell{column: key.column, phase: key.phase, fault: faults[name], lines: lines}
			t.Run(fmt.Sprintf("%s/%s/%s", name, key.phase, key.column), func(t *testing.T) { t.Log(c.run(t)) })
			cells, queries = cells+1, queries+c.seen.queries
		}
	}
	t.Logf("%d faults in %d cells, %d queries for clean names", rows, cells, queries)
}

// place is a cell of the matrix in the row of a fault.
type place struct{ phase, column string }

// cells returns the cells in which the fault of a row can be seen: all with -matrix.all, and else one, another one in each row.
func (f fault) cells(row int) (all []place) {
	for _, phase := range []string{firstLoad, partialUpdate, inSearch} {
		for _, column := range columns {
			if f.seen(phase, column) {
				all = append(all, place{phase, column})
			}
		}
	}
	if *wholeMatrix || len(all) == 0 {
		return all
	}
	return all[row*5%len(all):][:1]
}

// What a cell may add: an answer takes at most 150 MiB in addition to the lists, see docs/reliability.md. CoreDNS, the
// relay, the server and the client of a cell are all in this process. The race detector takes several times as much.
const (
	mostPeak = 250 * raceFactor
	mostLeft = 32
)

// measureMemory begins to measure. grown returns how much more memory the process had for a time, in MiB: 0 on systems
// that do not tell it, and where the peak cannot begin again, the peak of all cells before.
func measureMemory(t *testing.T) (grown func() int) {
	debug.FreeOSMemory()
	_ = os.WriteFile("/proc/self/clear_refs", []byte("5"), 0) // begins the peak again, see proc(5)
	before, heapBefore := resident(os.Getpid()), heap()
	return func() int {
		peak := max(0, resident(os.Getpid())-before)
		runtime.GC()
		testkit.Between(t, "MiB more for a time", peak, 0, mostPeak)
		testkit.Between(t, "MiB more after", max(0, heap()-heapBefore), 0, mostLeft)
		return peak
	}
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

// fault is a row of the matrix: a transportFault, or one of the next four fields.
type fault struct {
	transportFault

	spoils map[string]protocoltest.Fault // the content of answers, by column
	odd    func(*protocoltest.Server)    // gives the server unusual values
	name   func(*dns.Msg) *dns.Msg       // answers questions for the endpoint's name; a nil answer is none
	run    func(*cell)                   // runs a cell in a way of its own

	phases []string // in which it can be seen; nil: all
	good   bool     // the answer is unusual, and must be used
}

func (f fault) seen(phase, column string) bool {
	_, spoilt := f.spoils[column]
	return (f.phases == nil || slices.Contains(f.phases, phase)) && (f.spoils == nil || spoilt)
}

// sparesSearches reports whether searches still work while other requests have the fault.
func (f fault) sparesSearches() bool { return f.answer != nil || f.spoils != nil || f.odd != nil }

// clockFaults are the rows about clocks. They need a tracer, see faultclock_linux_amd64_test.go.
var clockFaults = make(map[string]fault)

var listPhases = []string{firstLoad, partialUpdate}

// listFaults and searchFaults are what answers can be wrong in, by the protocol.
var (
	listFaults   = map[string]map[string]protocoltest.Fault{"v5": protocoltest.ListFaults(), "webrisk": protocoltest.ListFaultsWebRisk()}
	searchFaults = map[string]map[string]protocoltest.Fault{"v5": protocoltest.SearchFaults(), "webrisk": protocoltest.SearchFaultsWebRisk()}
)

func matrixFaults(t *testing.T) map[string]fault {
	all := make(map[string]fault)
	for name, f := range transportFaults() {
		all[name] = fault{transportFault: f}
	}
	for name, rcode := range map[string]int{"name does not exist": dns.RcodeNameError, "name server fails": dns.RcodeServerFailure,
		"name server refuses": dns.RcodeRefused, "name has no address": dns.RcodeSuccess} {
		answer := func(q *dns.Msg) *dns.Msg { return new(dns.Msg).SetRcode(q, rcode) }
		all[name] = fault{transportFault: transportFault{outcome: "unreachable", unsent: true}, name: answer}
	}
	all["name server is silent"] = fault{transportFault: transportFault{outcome: "unreachable", unsent: true, endless: true}, name: func(*dns.Msg) *dns.Msg { return nil }}
	for column := range listFaults {
		addContent(all, column, listPhases, listFaults[column])
		addContent(all, column, []string{inSearch}, searchFaults[column])
	}
	maps.Copy(all, oddValues())
	maps.Copy(all, clockFaults)
	found(t, "faults", len(all), 60)
	return all
}

// addContent adds the faults of content of a protocol. Those of the transport are rows already. Those that
// have the same name spoil the same, each in its protocol.
func addContent(all map[string]fault, column string, phases []string, faults map[string]protocoltest.Fault) {
	for name, f := range faults {
		if isTransport(f) {
			continue
		}
		name = "content: " + name
		row, ok := all[name]
		if !ok {
			row = fault{spoils: make(map[string]protocoltest.Fault), phases: phases}
		}
		row.spoils[column] = f
		if column == "v5" {
			row.spoils[throughRelay] = f
		}
		all[name] = row
	}
}

// isTransport reports whether a fault replaces the whole answer.
func isTransport(f protocoltest.Fault) bool {
	return f.Delay > 0 || f.CloseConnection || f.Status != 0 || f.Redirect != "" || f.WrongContentType || f.Garbage || f.EndlessBody || f.CutBody
}

// oddValues are unusual values in answers that are otherwise good.
func oddValues() map[string]fault {
	const decade = 10 * 365 * 24 * time.Hour
	minimumWait := func(wait time.Duration) func(*protocoltest.Server) {
		return func(s *protocoltest.Server) { setMinimumWaits(s, wait) }
	}
	lifetime := func(d time.Duration) func(*protocoltest.Server) {
		return func(s *protocoltest.Server) { s.SetCacheDuration(d) }
	}
	faults := map[string]fault{
		"no minimum wait":            {odd: minimumWait(0), phases: listPhases, good: true},
		"minimum wait of 10 years":   {odd: minimumWait(decade), phases: listPhases, good: true, transportFault: transportFault{longest: 24 * time.Hour}},
		"cache duration of 0":        {odd: lifetime(0), phases: []string{inSearch}, good: true},
		"no cache duration":          {odd: lifetime(-1), phases: []string{inSearch}, good: true},
		"cache duration of 10 years": {odd: lifetime(decade), phases: []string{inSearch}, good: true},
		"unknown threats too": {phases: []string{inSearch}, good: true, odd: func(s *protocoltest.Server) {
			s.AddThreat("evil.example.com/", sbv5.ThreatType(999), sbv5.ThreatAttribute(999))
		}},
	}
	for name, f := range protocoltest.OddDiffTimes() {
		row := fault{spoils: map[string]protocoltest.Fault{"webrisk": f}, phases: listPhases, good: true}
		if f.FarNextDiff {
			row.longest = 24 * time.Hour
		}
		faults[name] = row
	}
	for name, f := range protocoltest.OddSearchTimes() {
		faults[name] = fault{spoils: map[string]protocoltest.Fault{"webrisk": f}, phases: []string{inSearch}, good: true}
	}
	return faults
}

func setMinimumWaits(s *protocoltest.Server, wait time.Duration) {
	for _, list := range []string{"se-4b", "mw-4b", "uws-4b"} {
		s.SetMinimumWait(list, wait)
	}
}

// nameServer knows the name of the endpoint, until it breaks.
type nameServer struct {
	address string
	broken  atomic.Pointer[func(*dns.Msg) *dns.Msg]
	asked   atomic.Int32 // questions since it broke
}

func newNameServer(t *testing.T) *nameServer {
	s := new(nameServer)
	s.address = startNameServer(t, s.answer)
	return s
}

func (s *nameServer) answer(w dns.ResponseWriter, q *dns.Msg) {
	if broken := s.broken.Load(); broken != nil {
		s.asked.Add(1)
		if m := (*broken)(q); m != nil {
			w.WriteMsg(m)
		}
		return
	}
	m := new(dns.Msg).SetReply(q)
	if question := q.Question[0]; question.Qtype == dns.TypeA {
		header := dns.RR_Header{Name: question.Name, Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: 1}
		m.Answer = []dns.RR{&dns.A{Hdr: header, A: net.IPv4(127, 0, 0, 1)}}
	}
	w.WriteMsg(m)
}

func (s *nameServer) breaks(answer func(*dns.Msg) *dns.Msg) { s.broken.Store(&answer) }
