package testkit

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestSameDayWaitsForMidnightIfItIsNear(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now := time.Now()
		midnight := time.Date(now.Year(), now.Month(), now.Day()+1, 0, 0, 0, 0, time.Local)
		for _, c := range []struct {
			left time.Duration
			ends time.Time
		}{{time.Hour, midnight.Add(-time.Hour)}, {time.Minute, midnight.Add(-time.Minute)}, {time.Second, midnight}} {
			time.Sleep(time.Until(midnight.Add(-c.left)))
			if SameDay(t); !time.Now().Equal(c.ends) {
				t.Errorf("%s before midnight: it is %s", c.left, time.Now())
			}
		}
	})
}

func TestAClockThatIsSetLeavesTheMonotonicOneAlone(t *testing.T) {
	now := time.Now()
	for _, by := range []time.Duration{-3 * time.Hour, 40 * time.Minute} {
		if set := ClockSet(now, by); set.Sub(now) != 0 || set.Round(0).Sub(now.Round(0)) != by {
			t.Errorf("%s was set by %s: %s", now, by, set)
		}
	}
}
