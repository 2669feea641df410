//go:build !linux

package programtest

// InMemory does nothing: only Linux has /dev/shm.
func InMemory() {}
