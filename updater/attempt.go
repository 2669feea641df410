package updater

import (
	"errors"
	"fmt"
	"maps"
	"time"
)

// A fetch changes the schedule twice. begin notes it as failed before it is sent. When it has
// ended, exactly one of the others replaces that by what really happened. All of them run in the
// goroutine of the Updater, one attempt at a time.

// attempt is a fetch of lists that has been sent and is not answered yet.
type attempt struct {
	schedule *Schedule
	begun    uint64 // the attempt of the clock of all fetches
	number   uint64 // of the note
}

// begin notes a fetch as failed before it is sent, so that a process that crashes
// on the answer backs off after its restart. An error that is errNotHeld says that the fetch
// must not be sent; then nothing is recorded.
func (s *Schedule) begin(lists []string, now time.Time) (a attempt, err error) {
	a.schedule = s
	err = s.change(func(state *scheduleState) {
		// A crash loses the answer, and with it a minimum wait that it may have had. The last
		// known waits stand in for it.
		wait := state.Fetch.Wait
		state.change(lists, func(list *ListClock) { wait = max(wait, list.Wait) })
		s.asks++
		state.Fetch = state.Fetch.noting(s.writer, s.asks, now, func(failures int) time.Duration { return max(Backoff(failures, s.random()), wait) })
		a.begun, a.number = state.Fetch.Attempt, s.asks
	})
	if notHeld := s.confirmed(lists, now); notHeld != nil {
		_ = a.takenBack()
		return a, notHeld
	}
	return a, err
}

// confirmed returns an error unless the note is in the shared document, if there is one, which has no
// later clocks; or this process may fetch without it.
func (s *Schedule) confirmed(lists []string, now time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sharer() == nil {
		return nil
	}
	if err := s.fetches.away; err != nil && !errors.Is(err, ErrAlone) {
		return fmt.Errorf("%w: %w", errNotHeld, err)
	}
	others := s.state
	others.Fetch = others.Fetch.apart(s.writer)
	for _, name := range lists {
		if now.Before(others.listDue(name)) {
			return fmt.Errorf("%w: it has later clocks", errNotHeld)
		}
	}
	return nil
}

// end replaces the note by what alter makes of the clocks.
func (a attempt) end(alter func(state *scheduleState)) error {
	return a.schedule.change(func(state *scheduleState) {
		state.Fetch, _ = state.Fetch.answered(a.schedule.writer, a.number)
		alter(state)
	})
}

// cancelled takes the attempt back: a fetch that ends in a shutdown is not a failure.
// The server may have answered already, with a wait that was not read. So the last
// known wait is kept once more, or wait, which was read, if that is longer.
func (a attempt) cancelled(lists []string, now time.Time, wait time.Duration) error {
	return a.end(func(state *scheduleState) {
		if until := now.Add(max(state.Fetch.Wait, wait)); until.After(state.Fetch.NotBefore) {
			state.Fetch.NotBefore = until
		}
		// The request may have reached the server. Without a floor, each reload could send
		// another one.
		state.change(lists, func(list *ListClock) { list.NotBefore = now.Add(max(list.Wait, changedFloor)) })
	})
}

// notSent takes the attempt back after a try at now that was not sent.
func (a attempt) notSent(now time.Time, err error) error {
	return a.end(func(state *scheduleState) { state.Fetch.Clock = state.Fetch.notSent(now, a.schedule.random(), err) })
}

// takenBack takes the attempt back after a shutdown before it was sent.
func (a attempt) takenBack() error { return a.end(func(*scheduleState) {}) }

// failed records that the whole fetch failed at now with err. wait is the one that the
// server asked for, 0 if none. The next update of the doubtful lists must be full. If
// the server refused the batch, each list of it is asked for alone from now on.
func (a attempt) failed(now time.Time, wait time.Duration, doubtful, lists []string, err error) error {
	return a.end(func(state *scheduleState) {
		state.Fetch.Clock = state.Fetch.failed(now, Backoff(state.Fetch.Failures+1, a.schedule.random()), wait).because(now, err)
		state.change(lists, func(list *ListClock) {
			list.Alone = list.Alone || refusesLists(err)
			if list.Alone || len(lists) == 1 {
				list.Failed = now // after lists that failed before
			}
		})
		state.change(doubtful, func(list *ListClock) { list.Rejected = true })
	})
}

// refused records that the server refused, at now with err, a list that was asked for
// alone. Only this list has failed: it waits in a back-off of its own, or longer if
// the server asked for a longer wait (0: it did not).
func (a attempt) refused(name string, now time.Time, wait time.Duration, doubtful []string, err error) error {
	return a.end(func(state *scheduleState) {
		state.Fetch.Away = away{} // it was sent
		state.change([]string{name}, func(list *ListClock) {
			list.Clock = list.failed(now, Backoff(list.Failures+1, a.schedule.random()), wait).because(now, err)
			list.Alone, list.AtOnce = true, 0
		})
		state.change(doubtful, func(list *ListClock) { list.Rejected = true })
	})
}

// split records that a relay refused a batch because of one
// list that it lacks. No list has failed: each is asked for alone now.
func (a attempt) split(lists []string) error {
	return a.end(func(state *scheduleState) {
		state.Fetch.Away = away{} // it was sent
		state.change(lists, func(list *ListClock) { list.Alone = true })
	})
}

// answered records that the fetch was answered at now. wait is the minimum wait for
// all lists, 0 if there is none; clocks has the new clock of each list fetched.
func (a attempt) answered(now time.Time, wait time.Duration, clocks map[string]ListClock) error {
	return a.end(func(state *scheduleState) {
		// A success ends the back-off ("Request Frequency"), but not one that began meanwhile, in
		// another process that took this one for dead.
		next := Clock{Wait: wait}
		if state.Fetch.FailedIn > a.begun {
			next = state.Fetch.Clock
			next.Wait = wait
		}
		if wait > 0 {
			next.NotBefore = latest(next.NotBefore, now.Add(max(wait, waitFloor)))
		}
		state.Fetch.Clock = next
		maps.Copy(state.Lists, clocks)
	})
}
