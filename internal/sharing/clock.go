package sharing

import (
	"slices"
	"time"
)

// clock is what is known of the time of Redis. It advances by clocks that nobody can set: a machine whose
// wall clock is set between two beats ends no wait early, neither its own nor another's.
type clock struct {
	earliest, latest time.Time     // that Redis may show; zero: it has never told
	at               time.Time     // when, on the monotonic clock
	booted           time.Duration // likewise since boot, suspends included; 0: unknown
}

func (c clock) told() bool { return !c.at.IsZero() }

// next returns the clock after a call that told the time of Redis. Redis looked at its clock at some time
// between begun and now, which on a busy machine are far apart, so all calls together tell more than the
// last one. Where they contradict each other its clock was set, and the last one is right.
func (c clock) next(told, begun time.Time, sinceBoot time.Duration) clock {
	now := time.Now()
	next := clock{earliest: told, latest: told.Add(now.Sub(begun)), at: now, booted: sinceBoot}
	if before := c.now(sinceBoot); c.told() && !before.earliest.After(next.latest) && !before.latest.Before(next.earliest) {
		next.earliest = slices.MaxFunc([]time.Time{before.earliest, next.earliest}, time.Time.Compare)
		next.latest = slices.MinFunc([]time.Time{before.latest, next.latest}, time.Time.Compare)
	}
	return next
}

// now returns what the clock shows now.
func (c clock) now(sinceBoot time.Duration) clock {
	passed := time.Since(c.at)
	if c.booted > 0 {
		passed = max(passed, sinceBoot-c.booted) // the monotonic clock may stop during a suspend
	}
	c.earliest, c.latest = c.earliest.Add(passed), c.latest.Add(passed)
	return c
}

// timeOf returns the time that Redis told, and whether it did.
func timeOf(seconds, micros Value) (time.Time, bool) {
	sec, ok := seconds.Int()
	usec, alsoOK := micros.Int()
	return time.Unix(sec, usec*1000), ok && alsoOK
}
