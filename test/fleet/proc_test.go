package fleet

import (
	"fmt"
	"os"
	"strconv"
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

// ticksPerSecond is the unit of times in /proc on Linux (proc_pid_stat(5), USER_HZ).
const ticksPerSecond = 100

// cpuSeconds returns the processor time of a process.
func cpuSeconds(t testing.TB, pid int) (seconds float64) {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Skip(err)
	}
	_, rest, _ := strings.Cut(string(text), ") ") // the name before it may have spaces
	fields := strings.Fields(rest)
	for _, i := range []int{14 - 3, 15 - 3} { // utime and stime; rest begins with field 3
		ticks, err := strconv.Atoi(fields[i])
		if err != nil {
			t.Fatal(err)
		}
		seconds += float64(ticks) / ticksPerSecond
	}
	return seconds
}
