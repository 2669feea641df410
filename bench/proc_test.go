package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"testing"
	"time"

	"github.com/prometheus/procfs"
)

// processOf makes a process with a file in a /proc of its own.
func processOf(t *testing.T, file, text string) procfs.Proc {
	t.Helper()
	const pid = 4711
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, fmt.Sprint(pid)), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, fmt.Sprint(pid), file), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	fs, err := procfs.NewFS(dir)
	if err != nil {
		t.Fatal(err)
	}
	p, err := fs.Proc(pid)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestCPUTimeIsReadFromStat(t *testing.T) {
	const all = "4711 (core) dns) S 1 4711 4711 0 -1 4194560 9000 0 12 0 345 67 0 0 20 0 9 0 123456 1300000000 12000 18446744073709551615" +
		" 1 1 0 0 0 0 0 0 2143420159 0 0 0 17 1 0 0 0 0 0"
	tests := []struct {
		name, stat string
		want       time.Duration // 0: an error
	}{
		{"user and system", all, 4120 * time.Millisecond},
		{"empty", "", 0},
		{"too few fields", "4711 (x) S 1 2", 0},
		{"not a number", "4711 (x) S 1 2 3 4 5 6 7 8 9 10 eleven 12", 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := cpuTime(processOf(t, "stat", tt.stat))
			if got != tt.want || (err != nil) != (tt.want == 0) {
				t.Errorf("got %s, %v, want %s", got, err, tt.want)
			}
		})
	}
}

func TestMemoryIsReadFromStatus(t *testing.T) {
	tests := []struct {
		name, status string
		want         memory // zero: an error
	}{
		{"both", "Name:\tcoredns\nVmPeak:\t 1300000 kB\nVmHWM:\t   61440 kB\nVmRSS:\t   51200 kB\nThreads:\t9\n", memory{now: 50, peak: 60}},
		{"of a process that has ended", "Name:\tcoredns\nState:\tZ (zombie)\nThreads:\t1\n", memory{}},
		{"no peak", "VmRSS:\t 1 kB\n", memory{}},
		{"not a size", "VmRSS:\t one kB\nVmHWM:\t 1 kB\n", memory{}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := memoryOf(processOf(t, "status", tt.status))
			if got != tt.want || (err != nil) != (tt.want == memory{}) {
				t.Errorf("got %v, %v, want %v", got, err, tt.want)
			}
		})
	}
}

// The peak is that since the last reset: not what the process held earlier.
func TestThePeakOfThisProcessIsReset(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("needs /proc")
	}
	self, err := procfs.NewProc(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	if cpu, err := cpuTime(self); err != nil || cpu < 0 || cpu > time.Hour {
		t.Errorf("CPU time: got %s, %v", cpu, err)
	}
	held := bytes.Repeat([]byte{1}, 200<<20)
	before, err := memoryOf(self)
	if err != nil || before.now < 200 || before.peak < before.now-1 {
		t.Fatalf("with 200 MiB: got %+v, %v", before, err)
	}
	runtime.KeepAlive(held)
	debug.FreeOSMemory()
	if err := resetPeak(self); err != nil {
		t.Skipf("This test needs /proc/self/clear_refs, which some containers forbid to write: %v", err)
	}
	after, err := memoryOf(self)
	if err != nil || after.peak > before.peak-100 {
		t.Errorf("without the 200 MiB: got %+v, %v; with them %+v", after, err, before)
	}
}
