package updater

import (
	"maps"
	"time"
)

// attempt is a fetch that has been sent and not yet been answered.
type attempt struct {
	schedule *Schedule
	before   Clock // of all fetches
}

// begin notes, before a fetch of lists is sent, that it has failed, so that a
// process that dies of the answer does not ask again when it is started anew.
func (s *Schedule) begin(lists []string, now time.Time) (a attempt, err error) {
	a.schedule = s
	err = s.change(func(state *scheduleState) {
		a.before = state.Fetch
		wait := max(Backoff(state.Fetch.Failures+1, s.random()), state.Fetch.Wait)
		for _, name := range lists {
			list := state.Lists[name]
			wait = max(wait, list.Wait)
			state.Lists[name] = list // known from now on, whatever comes of it
		}
		state.Fetch = state.Fetch.failed(now, wait, 0)
		state.Fetch.Asking, state.Fetch.Failed = true, now
	})
	return a, err
}

// cancelled takes the attempt back: a fetch of lists that ends because the server
// is shutting down is no failure. But it may have been answered already, with a
// wait that was not read any more, so that the last one is kept once more.
func (a attempt) cancelled(lists []string, now time.Time) error {
	return a.schedule.change(func(state *scheduleState) {
		state.Fetch = a.before
		if until := now.Add(a.before.Wait); until.After(state.Fetch.NotBefore) {
			state.Fetch.NotBefore = until
		}
		for _, name := range lists {
			list := state.Lists[name]
			list.NotBefore = now.Add(max(list.Wait, changedFloor))
			state.Lists[name] = list
		}
	})
}

// failed notes that the whole fetch failed at now with err, with a wait that the
// server asked for (0: none). The next update of the doubtful lists must be full.
func (a attempt) failed(now time.Time, wait time.Duration, doubtful []string, err error) error {
	return a.schedule.change(func(state *scheduleState) {
		state.Fetch = a.before.failed(now, Backoff(a.before.Failures+1, a.schedule.random()), wait).because(now, err)
		for _, name := range doubtful {
			list := state.Lists[name]
			list.Rejected = true
			state.Lists[name] = list
		}
	})
}

// answered notes that the fetch was answered at now, with a minimum wait for all
// lists (0: none); clocks has the new clock of each list of it.
func (a attempt) answered(now time.Time, wait time.Duration, clocks map[string]ListClock) error {
	return a.schedule.change(func(state *scheduleState) {
		state.Fetch = Clock{Wait: wait}
		if wait > 0 {
			state.Fetch.NotBefore = now.Add(max(wait, waitFloor))
		}
		maps.Copy(state.Lists, clocks)
	})
}

// rejected is the clock of a list whose part of an answer, with the minimum wait
// that it gave, failed its checks with err. r is uniform in [0, 1).
func (c ListClock) rejected(now time.Time, wait time.Duration, r float64, err error) ListClock {
	c.Clock = c.failed(now, Backoff(c.Failures+1, r), wait).because(now, err)
	c.Rejected, c.AtOnce = true, 0
	return c
}
