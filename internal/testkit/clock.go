package testkit

import (
	"time"
	"unsafe"
)

// ClockSet returns what time.Now would have returned in place of now, had the wall clock been set by some seconds before: the
// monotonic clock goes on. No function of package time makes such a time. now has a reading of the monotonic clock, which it
// has not in synctest; the seconds of the wall clock are above 30 bits of nanoseconds in its first field, see time.Time.
func ClockSet(now time.Time, by time.Duration) time.Time {
	*(*uint64)(unsafe.Pointer(&now)) += uint64(by/time.Second) << 30
	return now
}
