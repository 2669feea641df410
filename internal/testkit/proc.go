package testkit

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
)

// ticksPerSecond is the unit of times in /proc on Linux (proc_pid_stat(5), USER_HZ).
const ticksPerSecond = 100

// CPUSeconds returns the processor time of a process. It skips the test on systems that do not tell.
func CPUSeconds(t testing.TB, pid int) (seconds float64) {
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
