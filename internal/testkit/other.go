//go:build !linux

package testkit

import "syscall"

// InMemory does nothing: only Linux has /dev/shm.
func InMemory() {}

// dieWithTest can do nothing here.
func dieWithTest() *syscall.SysProcAttr { return nil }
