package test

import (
	"bytes"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"testing"
)

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
	return memory{t: t, resident: resident("VmHWM:"), heap: heap()}
}

// grown returns how much more memory the process had for a time, and how much its heap
// still has. The peak is 0 on systems that do not tell it.
func (m memory) grown() (peak, left int) {
	peak = max(0, resident("VmHWM:")-m.resident)
	runtime.GC()
	left = max(0, heap()-m.heap)
	if peak > mostPeak || left > mostLeft {
		m.t.Errorf("Expected at most %d MiB more for a time and %d MiB after, got %d and %d", mostPeak, mostLeft, peak, left)
	}
	return peak, left
}

func resident(field string) int { return residentOf(os.Getpid(), field) }

// residentOf returns a value of /proc/PID/status in MiB, 0 if there is none.
func residentOf(pid int, field string) int {
	raw, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	_, rest, _ := bytes.Cut(raw, []byte("\n"+field))
	line, _, _ := bytes.Cut(rest, []byte(" kB"))
	kB, _ := strconv.Atoi(string(bytes.TrimSpace(line)))
	return kB >> 10
}

func heap() int {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc >> 20)
}
