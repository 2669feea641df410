package fleet

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// mebibytes returns a size from the status of a process, such as VmHWM (proc_pid_status(5)).
// It skips the test on systems that do not tell.
func mebibytes(t testing.TB, pid int, name string) float64 {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Skip(err)
	}
	_, rest, _ := strings.Cut(string(text), name+":")
	var kib float64
	if _, err := fmt.Sscan(rest, &kib); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return kib / 1024
}

// openFiles returns how many files a process has open, sockets included.
func openFiles(t testing.TB, pid int) int {
	t.Helper()
	files, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		t.Skip(err)
	}
	return len(files)
}
