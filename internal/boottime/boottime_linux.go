package boottime

import (
	"time"

	"golang.org/x/sys/unix"
)

// Since returns the time since boot, suspends included, or 0 if the system does not
// know (clock_gettime(2), CLOCK_BOOTTIME).
func Since() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &t); err != nil {
		return 0
	}
	return time.Duration(t.Nano())
}
