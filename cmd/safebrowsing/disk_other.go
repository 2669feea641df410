//go:build !linux

package main

// What the doctor reads on Linux only. On other systems it skips the checks of space and memory,
// and takes no folder for one that a reboot empties.

func fileSystem(string) (kind string, volatile bool) { return "", false }

func freeSpace(string) (bytes uint64, ok bool) { return 0, false }

func availableMemory() (bytes uint64, ok bool) { return 0, false }
