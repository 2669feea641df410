package testkit

import (
	"time"
	"unsafe"
)

// ClockSet returns what time.Now would have returned instead of now, had the wall clock been set by this much before: the
// monotonic clock runs on. No function of package time makes such a time. now has a reading of the monotonic clock, which it
// has not in synctest; the seconds of the wall clock are above 30 bits of nanoseconds in its first field, see time.Time.
func ClockSet(now time.Time, by time.Duration) time.Time {
	set := now.Round(0).Add(by)
	seconds, nanoseconds := set.Unix()-now.Unix(), set.Nanosecond()-now.Nanosecond()
	*(*uint64)(unsafe.Pointer(&now)) += uint64(seconds)<<30 + uint64(nanoseconds)
	return now
}
