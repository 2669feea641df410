package redistest

import "syscall"

// dieWithTest has the kernel end a server whose test was killed, as by a timeout.
func dieWithTest() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
