//go:build unix

package prefixset

import "golang.org/x/sys/unix"

// mapBytes returns size bytes, which are zero, and take no memory before they
// are written to. They are of no file, so that nobody can cut them off.
func mapBytes(size int) ([]byte, error) {
	return unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
}

// unmapBytes gives back what mapBytes returned. That fails where it would divide a
// mapping, which the system may have joined with its neighbours, and the process
// has as many as it may.
func unmapBytes(b []byte) error { return unix.Munmap(b) }
