package updater

import (
	"testing"
	"time"
)

// waiting is the state of an asker with one clock of a list for each wait.
func waiting(asker string, now time.Time, waits map[string]time.Duration) scheduleState {
	s := scheduleState{Asker: asker, clockSet: clockSet{Lists: make(map[string]ListClock)}}
	for name, wait := range waits {
		s.Lists[name] = ListClock{Clock: Clock{NotBefore: now.Add(wait)}}
	}
	return s
}

func TestTheHoldOfSeveralListsIsThatWhichEndsFirst(t *testing.T) {
	now := time.Now()
	s := waiting("a", now, map[string]time.Duration{"x-4b": 3 * time.Hour, "y-4b": time.Hour, "z-4b": 2 * time.Hour})
	for _, names := range [][]string{{"x-4b", "y-4b", "z-4b"}, {"y-4b", "z-4b", "x-4b"}, {"z-4b", "x-4b", "y-4b"}} {
		if got := s.fetchHold(names).Until.Sub(now); got != time.Hour {
			t.Errorf("%v: the hold ends after %s, want 1h", names, got)
		}
	}
}

// An asker that comes back continues with its clocks of all lists, and is no other any more.
func TestAnAskerThatComesBackHasItsClocksOfLists(t *testing.T) {
	now := time.Now()
	s := waiting("a", now, map[string]time.Duration{"x-4b": 3 * time.Hour})
	s.askedBy("b", now)
	if due := s.listDue("x-4b"); due.After(now) {
		t.Errorf("the second asker waits for %s", due.Sub(now))
	}
	s.Lists["y-4b"] = ListClock{Clock: Clock{NotBefore: now.Add(time.Hour)}}
	s.askedBy("a", now)
	if got := s.listDue("x-4b").Sub(now); got != 3*time.Hour {
		t.Errorf("the first asker waits for %s when it is back, want 3h", got)
	}
	if _, other := s.Others["a"]; other || len(s.Others) != 1 {
		t.Errorf("the others are %v, want b only", s.Others)
	}
}

// A wait of another asker is moved to the clock of this start, as the own ones are.
func TestTheClocksOfOtherAskersMoveWithTheWallClock(t *testing.T) {
	now := time.Now()
	before := now.Round(0).Add(1000 * time.Hour) // the clock is set back after that
	s := waiting("a", before, map[string]time.Duration{"x-4b": 3 * time.Hour})
	s.Fetch.NotBefore = before.Add(2 * time.Hour)
	s.askedBy("b", before)
	raw, err := encodeSchedule(s, before, moment{Saved: before})
	must(t, err)
	again, err := parseSchedule(raw, now, moment{Saved: now})
	must(t, err)
	again.askedBy("a", now)
	if fetch, list := again.Fetch.NotBefore.Sub(now), again.listDue("x-4b").Sub(now); fetch != 2*time.Hour || list != 3*time.Hour {
		t.Errorf("waits of %s and %s, want 2h and 3h", fetch, list)
	}
}

func TestAStateAndItsCloneShareNoClock(t *testing.T) {
	now := time.Now()
	s := waiting("a", now, map[string]time.Duration{"x-4b": time.Hour})
	s.Others = map[string]clockSet{"b": waiting("b", now, map[string]time.Duration{"x-4b": time.Hour}).clockSet}
	kept := s.clone()
	s.move(func(at time.Time) time.Time { return at.Add(time.Hour) })
	if own, other := kept.Lists["x-4b"].NotBefore.Sub(now), kept.Others["b"].Lists["x-4b"].NotBefore.Sub(now); own != time.Hour || other != time.Hour {
		t.Errorf("the clone has waits of %s and %s, want 1h", own, other)
	}
}

func TestASuccessEndsARefusalOfSearches(t *testing.T) {
	c := Clock{Failures: 3, Denied: true, Cause: "status 403", Failed: time.Now()}
	c.succeeded(time.Now(), 0, false)
	if c.Failures != 0 || c.Denied || c.Cause != "" || !c.Failed.IsZero() || !c.NotBefore.IsZero() {
		t.Errorf("the clock is %+v after a success", c)
	}
}
