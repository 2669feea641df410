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
