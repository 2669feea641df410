package main

import (
	"context"
	"path/filepath"
	"runtime/debug"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
)

func TestFileSystemsWithoutADisk(t *testing.T) {
	kind, volatile := fileSystem("/proc")
	expect(t, "/proc is "+kind, volatile, false)
	if kind, volatile := fileSystem("/dev/shm"); volatile {
		testkit.WantParts(t, "tmpfs ramfs", kind)
	}
	_, ok := freeSpace("/no/such/folder")
	expect(t, "there is space in no folder", ok, false)
}

func TestAvailableMemory(t *testing.T) {
	for text, want := range map[string]uint64{"MemTotal:  16 kB\nMemFree: 1 kB\nMemAvailable:    8 kB\n": 8192, "MemTotal: 16 kB\n": 0} {
		n, ok := readAvailable(strings.NewReader(text))
		expect(t, text, n, want)
		expect(t, text, ok, want > 0)
	}
	const limit = 1 << 20 // as a container may have, which the machine's memory does not show
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(limit))
	if n, ok := availableMemory(); ok {
		testkit.Between(t, "available", n, 0, limit)
	}
}

func TestCoverageOfAPipeThatNobodyWritesCanBeInterrupted(t *testing.T) {
	path := filepath.Join(t.TempDir(), "feed")
	testkit.Must(t, syscall.Mkfifo(path, 0o600))
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(10*time.Millisecond, cancel)
	runIn(ctx, t, nil, "coverage", path).want(2)
}
