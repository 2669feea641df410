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
	if kind, volatile := fileSystem("/proc"); volatile {
		t.Errorf("/proc is %s", kind)
	}
	if kind, volatile := fileSystem("/dev/shm"); volatile && kind != "tmpfs" && kind != "ramfs" {
		t.Errorf("/dev/shm is %q", kind)
	}
	if _, ok := freeSpace("/no/such/folder"); ok {
		t.Error("there is space in no folder")
	}
}

func TestAvailableMemory(t *testing.T) {
	for text, want := range map[string]uint64{"MemTotal:  16 kB\nMemFree: 1 kB\nMemAvailable:    8 kB\n": 8192, "MemTotal: 16 kB\n": 0} {
		n, ok := readAvailable(strings.NewReader(text))
		expect(t, text, n, want)
		expect(t, text, ok, want > 0)
	}
	const limit = 1 << 20 // as a container may have, which the machine's memory does not show
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(limit))
	if n, ok := availableMemory(); ok && n > limit {
		t.Errorf("%d bytes are available of %d", n, limit)
	}
}

func TestCoverageOfAPipeThatNobodyWritesCanBeInterrupted(t *testing.T) {
	path := filepath.Join(t.TempDir(), "feed")
	testkit.Must(t, syscall.Mkfifo(path, 0o600))
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(10*time.Millisecond, cancel)
	runIn(ctx, t, nil, "coverage", path).want(2)
}
