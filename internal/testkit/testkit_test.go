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
