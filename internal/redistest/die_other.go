//go:build !linux

package redistest

import "syscall"

// dieWithTest can do nothing here.
func dieWithTest() *syscall.SysProcAttr { return nil }
