package sharing

import (
	"time"
)

// clock is the last time that Redis told. It continues by clocks that nobody can set: a machine whose
// wall clock is set between two beats ends no wait early, neither its own nor another's.
type clock struct {
	told   time.Time     // by Redis; zero: never
	at     time.Time     // when, on the monotonic clock
	booted time.Duration // likewise since boot, suspends included; 0: unknown
}

// next returns the clock after a call that told the time of Redis. If it told none, that is c.
func (c clock) next(seconds, micros Value, sinceBoot time.Duration) clock {
	sec, ok := seconds.Int()
	usec, alsoOK := micros.Int()
	if !ok || !alsoOK {
		return c
	}
	return clock{told: time.Unix(sec, usec*1000), at: time.Now(), booted: sinceBoot}
}

// now returns the time of Redis, and whether it is known.
func (c clock) now(sinceBoot time.Duration) (time.Time, bool) {
	passed := time.Since(c.at)
	if c.booted > 0 {
		passed = max(passed, sinceBoot-c.booted) // the monotonic clock may stop during a suspend
	}
	return c.told.Add(passed), !c.told.IsZero()
}
