package updater

import (
	"time"

	"golang.org/x/sys/unix"
)

// SinceBoot returns the time since boot, suspends included, or 0 if the system does not
// know (clock_gettime(2), CLOCK_BOOTTIME). Nobody can set this clock. Package time has none like it:
// on Linux its monotonic clock stops during a suspend. It is safe for concurrent use.
func SinceBoot() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &t); err != nil {
		return 0
	}
	return time.Duration(t.Nano())
}
