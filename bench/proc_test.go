package main

import (
	"os"
	"runtime"
	"testing"
	"time"
)

func TestCPUTimeIsReadFromStat(t *testing.T) {
	const stat = "4711 (core) dns) S 1 4711 4711 0 -1 4194560 9000 0 12 0 345 67 0 0 20 0 9 0 123456 1300000000 12000 18446744073709551615"
	got, err := parseStat(stat)
	if want := 4120 * time.Millisecond; err != nil || got != want {
		t.Errorf("got %s, %v, want %s", got, err, want)
	}
	for _, bad := range []string{"", "1 (x) S 1 2", "1 (x) S 1 2 3 4 5 6 7 8 9 10 eleven 12"} {
		if _, err := parseStat(bad); err == nil {
			t.Errorf("no error about %q", bad)
		}
	}
}

func TestMemoryIsReadFromStatus(t *testing.T) {
	got, err := parseStatus("Name:\tcoredns\nVmPeak:\t 1300000 kB\nVmHWM:\t   61440 kB\nVmRSS:\t   51200 kB\nThreads:\t9\n")
	if want := (memory{now: 50, peak: 60}); err != nil || got != want {
		t.Errorf("got %v, %v, want %v", got, err, want)
	}
	for _, bad := range []string{"", "VmRSS:\t 1 kB\n", "VmRSS:\t 1 MB\nVmHWM:\t 1 kB\n"} {
		if _, err := parseStatus(bad); err == nil {
			t.Errorf("no error about %q", bad)
		}
	}
}

func TestThisProcessIsReadable(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("needs /proc")
	}
	if m, err := memoryOf(os.Getpid()); err != nil || m.now > m.peak+1 {
		t.Errorf("%v, %v", m, err)
	}
	if _, err := cpuTime(os.Getpid()); err != nil {
		t.Error(err)
	}
}
