package updater

import (
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// bootVariable has the identity of the boot where that cannot be read, as in a service with
// ProcSubset=pid (systemd.exec(5)). Empty, it hides the identity.
const bootVariable = "SAFEBROWSING_BOOT_ID"

// thisBoot returns the identity of this boot of the machine, and the time since boot. The
// identity is "" if it is not known. A container has its machine's, or one of its own for
// each of its starts.
func thisBoot() (id string, since time.Duration) {
	if since = SinceBoot(); since <= 0 {
		return "", 0
	}
	id, set := os.LookupEnv(bootVariable)
	if !set {
		raw, _ := os.ReadFile("/proc/sys/kernel/random/boot_id") // random(4)
		id = strings.TrimSpace(string(raw))
	}
	id = strings.ReplaceAll(id, "-", "") // systemd has none, see %b in systemd.unit(5)
	if id == "" {
		return "", 0
	}
	return id, since
}

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
