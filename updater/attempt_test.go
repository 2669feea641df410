package updater

import (
	"errors"
	"fmt"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
)

const mw = "mw-4b"

var errStatus = map[int]error{
	400: &StatusError{Code: 400}, 401: &StatusError{Code: 401}, 404: &StatusError{Code: 404}, 500: &StatusError{Code: 500},
}

// The clocks of all fetches and of two lists, whole, while one is under way, from 0 to a second, and after each of its ends.
func TestEachEndOfAFetchLeavesTheseClocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		at := func(d time.Duration) time.Time { return begun.Add(d) }
		now := at(time.Second)
		both := []string{se, mw}
		fetch := Clock{NotBefore: begun, Failures: 1, Wait: 20 * time.Minute, Cause: "before", Failed: begun}
		of := Clock{NotBefore: begun, Failures: 2, Wait: 2 * time.Hour, Cause: "list"}
		list := ListClock{Clock: of, AtOnce: 3, Rejected: true, Updated: begun}
		type clocks = map[string]ListClock
		with := func(change func(c *ListClock)) (c ListClock) {
			c = list
			change(&c)
			return c
		}
		answered := func(wait time.Duration) func(attempt) error {
			return func(a attempt) error { return a.answered(now, wait, nil) }
		}
		// failed is all fetches after a second failure with a cause.
		failed := func(until time.Duration, err error) Clock {
			return Clock{NotBefore: at(until), Failures: 2, Wait: fetch.Wait, Failed: now}.because(now, err)
		}
		for name, test := range map[string]struct {
			end   func(a attempt) error
			fetch Clock
			lists clocks
		}{
			"under way": {nil, Clock{NotBefore: at(of.Wait), Failures: 2, Wait: fetch.Wait, Asking: true, Failed: begun}, clocks{se: list, mw: {}}},
			"cancelled": {
				func(a attempt) error { return a.cancelled(both, now, time.Minute) },
				Clock{NotBefore: now.Add(fetch.Wait), Failures: 1, Wait: fetch.Wait, Cause: "before", Failed: begun},
				clocks{se: with(func(c *ListClock) { c.NotBefore = now.Add(2 * time.Hour) }), mw: {Clock: Clock{NotBefore: now.Add(time.Minute)}}},
			},
			"cancelled after a longer wait was read": {
				func(a attempt) error { return a.cancelled([]string{mw}, now, 3*time.Hour) },
				Clock{NotBefore: now.Add(3 * time.Hour), Failures: 1, Wait: fetch.Wait, Cause: "before", Failed: begun},
				clocks{se: list, mw: {Clock: Clock{NotBefore: now.Add(time.Minute)}}},
			},
			"failed": {
				func(a attempt) error { return a.failed(now, time.Hour, nil, both, errStatus[500]) },
				failed(time.Hour+time.Second, errStatus[500]), clocks{se: list, mw: {}},
			},
			"failed with a wait that is shorter than the back-off": {
				func(a attempt) error { return a.failed(now, time.Minute, nil, both, errStatus[401]) },
				failed(30*time.Minute+time.Second, errStatus[401]), clocks{se: list, mw: {}},
			},
			"the batch was refused": {
				func(a attempt) error { return a.failed(now, 0, []string{mw}, both, errStatus[404]) },
				failed(30*time.Minute+time.Second, errStatus[404]),
				clocks{se: with(func(c *ListClock) { c.Alone, c.Failed = true, now }), mw: {Clock: Clock{Failed: now}, Alone: true, Rejected: true}},
			},
			"failed alone": {
				func(a attempt) error { return a.failed(now, 0, []string{mw}, []string{mw}, errStatus[500]) },
				failed(30*time.Minute+time.Second, errStatus[500]), clocks{se: list, mw: {Clock: Clock{Failed: now}, Rejected: true}},
			},
			"refused alone": {
				func(a attempt) error { return a.refused(se, now, 3*time.Hour, nil, errStatus[404]) },
				fetch, clocks{se: with(func(c *ListClock) {
					c.Clock = Clock{NotBefore: now.Add(3 * time.Hour), Failures: 3, Wait: 2 * time.Hour}.because(now, errStatus[404])
					c.Alone, c.AtOnce = true, 0
				}), mw: {}},
			},
			"refused alone, maybe for its version": {
				func(a attempt) error { return a.refused(mw, now, 0, []string{mw}, errStatus[400]) },
				fetch, clocks{se: list, mw: {Clock: Clock{NotBefore: now.Add(15 * time.Minute), Failures: 1}.because(now, errStatus[400]), Alone: true, Rejected: true}},
			},
			"answered": {func(a attempt) error { return a.answered(now, 0, clocks{mw: {AtOnce: 7}}) }, Clock{}, clocks{se: list, mw: {AtOnce: 7}}},
			"answered, but another process took it for dead and failed": {
				func(a attempt) error {
					return errors.Join(a.schedule.change(func(state *scheduleState) {
						state.Fetch.Clock = state.Fetch.failed(now, time.Hour, 0).because(now, errStatus[500])
					}), a.answered(now, time.Minute, nil))
				},
				Clock{NotBefore: now.Add(time.Hour), Failures: 2, Wait: time.Minute}.because(now, errStatus[500]), clocks{se: list, mw: {}},
			},
			"answered with the longest wait there is": {
				answered(math.MaxInt64), Clock{NotBefore: now.Add(math.MaxInt64), Wait: math.MaxInt64}, clocks{se: list, mw: {}},
			},
			"answered with a wait":          {answered(time.Hour), Clock{NotBefore: now.Add(time.Hour), Wait: time.Hour}, clocks{se: list, mw: {}}},
			"answered with next to no wait": {answered(1), Clock{NotBefore: now.Add(time.Second), Wait: 1}, clocks{se: list, mw: {}}},
		} {
			s := newScheduleOf(t, nil)
			s.state.Fetch.Clock, s.state.Lists[se] = fetch, list
			a, err := s.begin(both, begun)
			must(t, err)
			if test.end != nil {
				must(t, test.end(a))
			}
			testkit.Equal(t, name+": all fetches have", plain(s.state.Fetch.held()), test.fetch)
			s.state.change(both, func(c *ListClock) { c.Clock = plain(c.Clock) })
			testkit.Equal(t, name+": the lists have", s.state.Lists, test.lists)
		}
	})
}

// plain is a clock without the numbers of its attempts.
func plain(c Clock) Clock {
	c.Attempt, c.FailedIn = 0, 0
	return c
}

// Lists to be asked for alone come first, the one that failed longest ago at the head; after two failures in a row the others.
func TestWhichListsAreAskedForTogether(t *testing.T) {
	all := []string{"a", "b", "c", "d"}
	longAgo := time.Now()
	s := newScheduleOf(t, nil)
	for _, test := range []struct {
		name     string
		alone    []string // the later, the longer ago it failed
		failures int
		oneByOne bool
		want     []string
	}{
		{"none alone", nil, 0, false, all},
		{"none alone, after failures", nil, 9, false, all},
		{"one alone", []string{"c"}, 0, false, []string{"c"}},
		{"two alone", []string{"b", "d"}, 1, false, []string{"d"}},
		{"two alone, after two failures", []string{"b", "d"}, 2, false, []string{"a", "c"}},
		{"two alone, after three failures", []string{"b", "d"}, 3, false, []string{"a", "c"}},
		{"all alone, after failures", []string{"a", "d", "c", "b"}, 2, false, []string{"b"}},
		{"one by one", []string{"b"}, 0, true, []string{"a"}}, // which never failed
		{"one by one, after failures", nil, 5, true, []string{"a"}},
	} {
		clear(s.state.Lists)
		for i, name := range test.alone {
			s.state.Lists[name] = ListClock{Clock: Clock{Failed: longAgo.Add(-time.Duration(i) * time.Hour)}, Alone: true}
		}
		s.state.Fetch.Failures = test.failures
		testkit.Equal(t, test.name, s.together(all, test.oneByOne), test.want)
	}
}

// The schedule is due with the first of its lists, and each list with itself and with all fetches.
func TestWhenListsAreDue(t *testing.T) {
	s := newScheduleOf(t, nil)
	now := time.Now()
	s.state.Fetch.NotBefore = now.Add(2 * time.Hour)
	for i, name := range []string{"c", "a", "b"} {
		s.state.Lists[name] = ListClock{Clock: Clock{NotBefore: now.Add(time.Duration(1+2*i) * time.Hour)}}
	}
	for _, test := range []struct {
		lists []string
		want  time.Duration
	}{
		{[]string{"c"}, 2 * time.Hour}, {[]string{"b"}, 5 * time.Hour}, {[]string{"b", "a", "b"}, 3 * time.Hour}, {[]string{"a", "b"}, 3 * time.Hour},
		{[]string{"never asked for"}, 2 * time.Hour},
	} {
		testkit.Equal(t, fmt.Sprint(test.lists, " are due in"), s.due(test.lists).Sub(now), test.want)
		testkit.Equal(t, fmt.Sprint(test.lists, " are held for"), s.FetchHold(test.lists).Until.Sub(now), test.want)
	}
	for in, want := range map[time.Duration]string{
		2*time.Hour - 1: "[]", 2 * time.Hour: "[c]", 3*time.Hour - 1: "[c]", 3 * time.Hour: "[c a]", 5 * time.Hour: "[b c a]",
	} {
		testkit.Equal(t, fmt.Sprint("due after ", in), fmt.Sprint(s.dueNow([]string{"b", "c", "a"}, now.Add(in))), want)
	}
	testkit.Equal(t, "no list is due at", s.due(nil), time.Time{})
}

// The table of page "Request Frequency": from the least wait, drawn at 0, to the greatest, drawn just below 1.
func TestBackoffFollowsTheTable(t *testing.T) {
	const day = 24 * time.Hour
	almostOne := math.Nextafter(1, 0)
	for n, want := range map[int][2]time.Duration{
		0: {}, -1: {}, 1: {15 * time.Minute, 30 * time.Minute}, 2: {30 * time.Minute, time.Hour}, 3: {time.Hour, 2 * time.Hour},
		4: {2 * time.Hour, 4 * time.Hour}, 5: {4 * time.Hour, 8 * time.Hour}, 6: {8 * time.Hour, 16 * time.Hour},
		7: {16 * time.Hour, day}, 8: {day, day}, 9: {day, day}, 64: {day, day}, math.MaxInt: {day, day},
	} {
		testkit.Equal(t, fmt.Sprint(n, " failures, at 0"), Backoff(n, 0), want[0])
		testkit.Between(t, fmt.Sprint(n, " failures, below 1"), Backoff(n, almostOne), want[1]-time.Millisecond, want[1])
		testkit.Equal(t, fmt.Sprint(n, " failures, at 0.5"), Backoff(n, 0.5), min(want[0]*3/2, day))
		testkit.Between(t, fmt.Sprint("searches pause after ", n, " failures for"), Strikes(n, 0, almostOne), 0, 30*time.Minute)
	}
}
