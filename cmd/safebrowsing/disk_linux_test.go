package main

import (
	"strings"
	"testing"
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
	if n, ok := readAvailable(strings.NewReader("MemTotal:  16 kB\nMemFree: 1 kB\nMemAvailable:    8 kB\n")); n != 8192 || !ok {
		t.Errorf("got %d, %t", n, ok)
	}
	if _, ok := readAvailable(strings.NewReader("MemTotal: 16 kB\n")); ok {
		t.Error("read what is not there")
	}
}
