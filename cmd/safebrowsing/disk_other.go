//go:build !linux

package main

// fileSystem is not implemented for this system.
func fileSystem(string) (kind string, volatile bool) { return "", false }

// freeSpace is not implemented for this system.
func freeSpace(string) (bytes uint64, ok bool) { return 0, false }

// availableMemory is not implemented for this system.
func availableMemory() (bytes uint64, ok bool) { return 0, false }
