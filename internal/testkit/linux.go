//go:build linux

package testkit

import (
	"os"
	"syscall"
)

// InMemory lets t.TempDir make its folders in memory, where there is room for them: a gigabyte in
// /dev/shm. Otherwise they stay where they are. It is for TestMain of tests that sync files a lot.
func InMemory() {
	const folder, room = "/dev/shm", 1 << 30
	var fs syscall.Statfs_t
	if err := syscall.Statfs(folder, &fs); err != nil || fs.Bavail*uint64(fs.Bsize) < room {
		return
	}
	try, err := os.MkdirTemp(folder, "safebrowsing")
	if err != nil {
		return
	}
	_ = os.Remove(try) // it is empty
	_ = os.Setenv("TMPDIR", folder)
}

// dieWithTest tells the kernel to end a process whose test was killed, as by a timeout.
func dieWithTest() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
