package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"syscall"

	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

// Types of file systems that are kept in memory (statfs(2)).
const (
	tmpfsMagic = 0x01021994
	ramfsMagic = 0x858458f6
)

// fileSystem returns the type of a folder's file system and true if a reboot empties it.
func fileSystem(dir string) (kind string, volatile bool) {
	var s syscall.Statfs_t
	if err := syscall.Statfs(dir, &s); err != nil {
		return "", false
	}
	switch uint32(s.Type) {
	case tmpfsMagic:
		return "tmpfs", true
	case ramfsMagic:
		return "ramfs", true
	}
	return "", false
}

// freeSpace returns the bytes that a user may still write to a folder.
func freeSpace(dir string) (bytes uint64, ok bool) {
	var s syscall.Statfs_t
	if err := syscall.Statfs(dir, &s); err != nil {
		return 0, false
	}
	return uint64(s.Bavail) * uint64(s.Bsize), true
}

// availableMemory returns the bytes of memory that programs can still allocate, in a container no more than it may have.
func availableMemory() (bytes uint64, ok bool) {
	f, err := os.Open("/proc/meminfo")
	if err != nil {
		return 0, false
	}
	defer f.Close()
	bytes, ok = readAvailable(f)
	if most := lookup.UsableMemory(); most > 0 {
		bytes = min(bytes, uint64(most))
	}
	return bytes, ok
}

// readAvailable returns the value of the line MemAvailable (proc_meminfo(5)).
func readAvailable(meminfo io.Reader) (bytes uint64, ok bool) {
	lines := bufio.NewScanner(meminfo)
	for lines.Scan() {
		var kilobytes uint64
		if n, _ := fmt.Sscanf(lines.Text(), "MemAvailable: %d kB", &kilobytes); n == 1 {
			return kilobytes << 10, true
		}
	}
	return 0, false
}
