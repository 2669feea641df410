package testkit

import (
	"testing"
	"time"
)

func TestAClockThatIsSetLeavesTheMonotonicOneAlone(t *testing.T) {
	now := time.Now()
	for _, by := range []time.Duration{-3 * time.Hour, 40 * time.Minute} {
		if set := ClockSet(now, by); set.Sub(now) != 0 || set.Round(0).Sub(now.Round(0)) != by {
			t.Errorf("%s was set by %s: %s", now, by, set)
		}
	}
}
