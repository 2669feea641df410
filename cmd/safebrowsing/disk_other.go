//go:build !linux

package main

// fileSystem knows nothing about this system.
func fileSystem(string) (kind string, volatile bool) { return "", false }

// freeSpace knows nothing about this system.
func freeSpace(string) (bytes uint64, ok bool) { return 0, false }

// availableMemory knows nothing about this system.
func availableMemory() (bytes uint64, ok bool) { return 0, false }
