//go:build unix

package prefixset

import "golang.org/x/sys/unix"

// mapBytes returns size zero bytes. A page takes memory only after the first write. The bytes
// do not come from a file: another process could truncate a file, and a read would then fault.
func mapBytes(size int) ([]byte, error) {
	return unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
}

// dropPages releases the pages of bytes of mapBytes, which must begin with a page. If that fails,
// unmapBytes releases them.
func dropPages(b []byte) { _ = unix.Madvise(b, unix.MADV_DONTNEED) }

// unmapBytes releases the bytes of mapBytes. The system may have joined the mapping with its
// neighbours. It must then be split, which fails if the process has too many mappings.
func unmapBytes(b []byte) error { return unix.Munmap(b) }
