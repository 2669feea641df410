package updater

import (
	"maps"
	"slices"
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

// failed notes that the whole fetch of lists failed at now with err, with a wait that
// the server asked for (0: none). The next update of the doubtful lists must be
// full. Lists of a batch that was refused are asked for by themselves from now on.
func (a attempt) failed(now time.Time, wait time.Duration, doubtful, lists []string, err error) error {
	return a.schedule.change(func(state *scheduleState) {
		state.Fetch = a.before.failed(now, Backoff(a.before.Failures+1, a.schedule.random()), wait).because(now, err)
		for _, name := range lists {
			list := state.Lists[name]
			list.Alone = list.Alone || refusesLists(err)
			if list.Alone {
				list.Failed = now // it comes after those that have not failed
			}
			list.Rejected = list.Rejected || slices.Contains(doubtful, name)
			state.Lists[name] = list
		}
	})
}

// refused notes that a list that was asked for by itself was refused at now with err.
// That is a failure of this list only, which waits as the server asked (0: it did
// not) or in a back-off of its own.
func (a attempt) refused(name string, now time.Time, wait time.Duration, doubtful []string, err error) error {
	return a.schedule.change(func(state *scheduleState) {
		state.Fetch = a.before
		list := state.Lists[name]
		list.Clock = list.failed(now, Backoff(list.Failures+1, a.schedule.random()), wait).because(now, err)
		list.Alone, list.AtOnce = true, 0
		list.Rejected = list.Rejected || slices.Contains(doubtful, name)
		state.Lists[name] = list
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
