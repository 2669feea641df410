package updater

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

// script is a searcher that answers with one error, or one minimum wait, after the other, at last always with the last.
type script struct {
	errs  []error
	waits []time.Duration // none: never one
	sent  int
}

func (s *script) Search(context.Context, []lookup.Prefix) (lookup.Answer, error) {
	err := s.errs[min(s.sent, len(s.errs)-1)]
	answer := lookup.Answer{TTL: time.Minute}
	if len(s.waits) > 0 && err == nil {
		answer.MinimumWait = s.waits[min(s.sent, len(s.waits)-1)]
	}
	s.sent++
	return answer, err
}

var (
	errDown    = errors.New("connection refused")
	errLimited = fmt.Errorf("searching: %w", &StatusError{Code: http.StatusTooManyRequests})
	errRefused = &StatusError{Code: http.StatusForbidden}
	errServer  = &StatusError{Code: http.StatusServiceUnavailable}
)

func TestPauseAfterFailedSearches(t *testing.T) {
	type wait = time.Duration
	tests := []struct {
		name string
		rule SearchBackoff
		errs []error
		want []wait // after each search
	}{
		{"no failure", Strikes, []error{nil, nil}, []wait{0, 0}},
		{"status 429, as list updates", Strikes, []error{errLimited, errLimited, errLimited, errLimited}, []wait{15 * time.Minute, 30 * time.Minute, time.Hour, 2 * time.Hour}},
		{"status 403, as list updates", Strikes, []error{errRefused, errRefused}, []wait{15 * time.Minute, 30 * time.Minute}},
		{"others, from the third on", Strikes, []error{errDown, errServer, errDown, errDown, errServer, errDown, errDown},
			[]wait{0, 0, 5 * time.Minute, 10 * time.Minute, 20 * time.Minute, 30 * time.Minute, 30 * time.Minute}},
		{"a time-out is a failure", Strikes, []error{context.DeadlineExceeded, context.DeadlineExceeded, context.DeadlineExceeded}, []wait{0, 0, 5 * time.Minute}},
		{"a success ends it", Strikes, []error{errDown, errDown, nil, errDown, errDown, errDown, nil, errLimited, nil, errLimited},
			[]wait{0, 0, 0, 0, 0, 5 * time.Minute, 0, 15 * time.Minute, 0, 15 * time.Minute}},
		{"a cancelled search is no failure", Strikes, []error{errDown, errDown, context.Canceled, fmt.Errorf("searching: %w", context.Canceled), errDown}, []wait{0, 0, 0, 0, 5 * time.Minute}},
		{"failures of both kinds count together", Strikes, []error{errDown, errDown, errLimited}, []wait{0, 0, time.Hour}},
		{"a longer wait that the server asks for", Strikes, []error{&StatusError{Code: 503, RetryAfter: 20 * time.Minute}}, []wait{20 * time.Minute}},
		{"a longer wait after status 429", Strikes, []error{&StatusError{Code: 429, RetryAfter: 20 * time.Minute}}, []wait{20 * time.Minute}},
		{"a shorter wait after status 429", Strikes, []error{&StatusError{Code: 429, RetryAfter: time.Minute}}, []wait{15 * time.Minute}},
		{"strictly: every failure counts, until a day", Strict, []error{errDown, errLimited, errServer, errRefused, errDown, errServer, errServer, errLimited, errDown, errDown},
			[]wait{15 * time.Minute, 30 * time.Minute, time.Hour, 2 * time.Hour, 4 * time.Hour, 8 * time.Hour, 16 * time.Hour, 24 * time.Hour, 24 * time.Hour, 24 * time.Hour}},
		{"strictly: a success ends it", Strict, []error{errDown, errDown, nil, errDown}, []wait{15 * time.Minute, 30 * time.Minute, 0, 15 * time.Minute}},
	}
	for _, test := range tests {
		inBubble(t, test.name, func(t *testing.T) {
			p := newProcess(t, t.TempDir(), SearchRules{Backoff: test.rule}, &script{errs: test.errs})
			for i, wait := range test.want {
				testkit.Equal(t, fmt.Sprint("search ", i+1), p.search(t), test.errs[i])
				p.pauses(t, wait)
			}
		})
	}
	inBubble(t, "they are reported", func(t *testing.T) {
		p := newProcess(t, t.TempDir(), v5Rules, &script{errs: []error{nil, context.Canceled, errLimited}})
		for range 5 {
			p.search(t)
		}
		testkit.Equal(t, "sent", p.script.sent, 3)
		testkit.Equal(t, "told", p.events, []Event{{Kind: Searched}, {Kind: Searched, Err: errLimited}})
	})
	// A search that is cancelled may have been answered with a wait that was not read.
	inBubble(t, "a cancelled one", func(t *testing.T) {
		p := newProcess(t, t.TempDir(), v5Rules, &script{errs: []error{nil, context.Canceled}, waits: []time.Duration{time.Hour}})
		p.search(t)
		time.Sleep(2 * time.Hour)
		p.search(t) // cancelled
		p.backsOff(t, "after it", time.Hour)
	})
	inBubble(t, "a minimum wait above a day is told", func(t *testing.T) {
		p := newProcess(t, t.TempDir(), v4Rules, &script{errs: []error{nil}, waits: []time.Duration{24 * time.Hour, 24*time.Hour + 1}})
		must(t, p.search(t))
		time.Sleep(24 * time.Hour)
		must(t, p.search(t))
		p.backsOff(t, "in the wait", 24*time.Hour+1)
		told := slices.DeleteFunc(p.events, func(e Event) bool { return e.Kind != LongWait })
		testkit.Equal(t, "told", told, []Event{{Kind: LongWait, Wait: 24*time.Hour + 1, Due: time.Now().Add(24*time.Hour + 1)}})
	})
}

// pauses fails unless the process sends nothing for exactly so long.
func (p *process) pauses(t *testing.T, wait time.Duration) {
	t.Helper()
	testkit.Equal(t, fmt.Sprintf("the pause after search %d", p.script.sent), max(0, p.schedule.searchWait(time.Now())), wait)
	if wait == 0 {
		return
	}
	until := time.Now().Add(wait)
	for _, left := range []time.Duration{wait, wait / 2, 1} {
		time.Sleep(time.Until(until) - left)
		p.backsOff(t, "in the pause", left)
		if held, ok := errors.AsType[*HeldError](p.search(t)); !ok || !held.Until.Equal(until) {
			t.Errorf("in the pause: %#v, want one until %s", held, until)
		}
	}
	time.Sleep(1 * time.Nanosecond)
}

// A restart knows the pause from the spare folder.
func TestSearchesGoOnWithoutDisk(t *testing.T) {
	t.Setenv("RUNTIME_DIRECTORY", t.TempDir())
	synctest.Test(t, func(t *testing.T) {
		store := unwritable(t)
		schedule := newScheduleOf(t, store)
		var mu sync.Mutex
		kinds := make(map[Kind]int)
		p := Pace(&script{errs: []error{errLimited, nil}}, schedule, v5Rules, func(e Event) { // from the goroutine that saves, too
			mu.Lock()
			defer mu.Unlock()
			kinds[e.Kind]++
		})
		searchOnce(t, p)
		schedule.Flush()
		testkit.Is(t, "in the pause", searchOnce(t, p), lookup.ErrBackoff)
		testkit.Equal(t, "the wait after a restart", newScheduleOf(t, openStoreOf(t, store.dir)).searchWait(time.Now()), 15*time.Minute)
		time.Sleep(time.Hour)
		testkit.Is(t, "after it", searchOnce(t, p), nil)
		schedule.Flush()
		testkit.Equal(t, "events", kinds, map[Kind]int{Searched: 2, StoreFailed: 2})
	})
}

// answeredForAll answers an attempt for se-4b with a minimum wait for all lists.
func answeredForAll(t *testing.T, s *Schedule, a attempt, wait time.Duration) {
	t.Helper()
	now := time.Now()
	must(t, a.answered(now, wait, clocks([]result{{list: List{Name: se}, kind: ListUpdated, wait: wait}}, now, s)))
}

// checkAllDue fails unless se-4b, and a list that was never asked for, are due in a while, after a restart too.
func checkAllDue(t *testing.T, s *Schedule, in time.Duration) {
	t.Helper()
	checkDue(t, s, in)
	again := newScheduleOf(t, openStore(t, s.store.dir))
	for name, schedule := range map[string]*Schedule{"": s, "after a restart ": again} {
		testkit.Equal(t, name+"another list is due in", time.Until(schedule.due([]string{"mw-4b"})), in)
	}
}

func TestAMinimumWaitForAllListsHoldsForAnAnswerThatWasNotRead(t *testing.T) {
	crash := func(t *testing.T, s *Schedule) { begin(t, s, "mw-4b") } // which knows no wait of its own
	shutdown := func(list string) func(t *testing.T, s *Schedule) {
		return func(t *testing.T, s *Schedule) { must(t, begin(t, s, list).cancelled([]string{list}, time.Now(), 0)) }
	}
	for name, test := range map[string]struct {
		wait    time.Duration
		restart bool
		end     func(t *testing.T, s *Schedule)
		want    time.Duration
	}{
		"a crash":                            {6 * time.Hour, false, crash, 6 * time.Hour},
		"a crash, the back-off is longer":    {time.Minute, false, crash, 15 * time.Minute},
		"a shutdown":                         {6 * time.Hour, false, shutdown(se), 6 * time.Hour},
		"a shutdown of another list's fetch": {6 * time.Hour, false, shutdown("mw-4b"), 6 * time.Hour},
		"a shutdown after a restart":         {6 * time.Hour, true, shutdown("mw-4b"), 6 * time.Hour},
		"a crash after a failure": {6 * time.Hour, false, func(t *testing.T, s *Schedule) {
			must(t, begin(t, s, se).failed(time.Now(), 0, nil, nil, errTest))
			checkAllDue(t, s, 15*time.Minute) // an answer that failed gives no wait
			time.Sleep(15 * time.Minute)
			crash(t, s)
		}, 6 * time.Hour},
	} {
		inBubble(t, name, func(t *testing.T) {
			s := ownedSchedule(t, t.TempDir())
			answeredForAll(t, s, begin(t, s, se), test.wait)
			time.Sleep(test.wait)
			if test.restart {
				s = ownedSchedule(t, s.store.dir)
			}
			test.end(t, s)
			checkAllDue(t, s, test.want)
		})
	}
}

// Of answers that come together the longest wait holds, also with a failure among them.
func TestOfWaitsThatComeTogetherTheLongestHolds(t *testing.T) {
	const hour, minute = time.Hour, time.Minute
	for name, test := range map[string]struct {
		ends     []any // a wait, or an error
		want     time.Duration
		failures int
	}{
		"the longest first": {[]any{hour, minute}, hour, 0},
		"the longest last":  {[]any{minute, hour}, hour, 0},
		"before a failure":  {[]any{hour, errServer}, hour, 1},
		"after a failure":   {[]any{errServer, hour}, hour, 1},
		"none, after one":   {[]any{hour, nil}, hour, 0},
		"a Retry-After":     {[]any{errServer, &StatusError{Code: 503, RetryAfter: 20 * minute}}, 20 * minute, 1},
		"a longer back-off": {[]any{errServer, minute}, 15 * minute, 1},
		"all of these":      {append([]any{&StatusError{Code: 429, RetryAfter: hour}, nil}, slices.Repeat([]any{errDown}, 10)...), hour, 1},
	} {
		inBubble(t, name, func(t *testing.T) {
			s := newScheduleOf(t, nil)
			p := &pacedSearcher{schedule: s, rules: SearchRules{Backoff: Strict}}
			sent := time.Now()
			time.Sleep(time.Second)
			for _, end := range test.ends {
				wait, _ := end.(time.Duration)
				err, _ := end.(error)
				p.searched(sentSearch{at: sent}, time.Now(), wait, err)
			}
			testkit.Equal(t, "to wait", s.searchWait(time.Now()), test.want)
			testkit.Equal(t, "failures", s.state.Search.Failures, test.failures)
		})
	}
}

// Two searches are sent together. One fails, a later one works, and then the other one is refused.
func TestARefusalAfterASuccessBeginsABackoff(t *testing.T) {
	for name, backoff := range map[string]SearchBackoff{"version 4": Strict, "version 5": Strikes, "Web Risk": ServiceLevel} {
		inBubble(t, name, func(t *testing.T) {
			s := newScheduleOf(t, nil)
			p := &pacedSearcher{schedule: s, rules: SearchRules{Backoff: backoff}}
			sent := time.Now()
			time.Sleep(time.Second)
			p.searched(sentSearch{at: sent}, time.Now(), 0, errServer)
			time.Sleep(time.Hour)
			p.searched(sentSearch{at: time.Now(), attempt: s.searchClock().Attempt}, time.Now().Add(time.Second), 0, nil)
			time.Sleep(2 * time.Second)
			testkit.Between(t, "the wait after a success", s.searchWait(time.Now()), math.MinInt64, 0)
			p.searched(sentSearch{at: sent}, time.Now(), 0, errLimited)
			testkit.Between(t, "the wait after a refusal", s.searchWait(time.Now()), 15*time.Minute, time.Hour)
		})
	}
}

// Retry-After is no rule of Safe Browsing, and anything on the way can send it: it lasts no longer than a back-off, and one answer of a
// server that is down ends no confirmations of a day. A refusal may. A minimum wait is a rule, and counts whatever it is.
func TestRetryAfterIsObeyedForADayAtMost(t *testing.T) {
	const year, day = 365 * 24 * time.Hour, 24 * time.Hour
	for retryAfter, lists := range map[time.Duration]time.Duration{
		-time.Hour: 15 * time.Minute, 0: 15 * time.Minute, time.Hour: time.Hour,
		day - 1: day - 1, day + 1: day, 10 * year: day, math.MaxInt64: day,
	} {
		for _, code := range []int{429, 403, 500, 503, 599} {
			searches := lists
			if code >= 500 {
				searches = min(lists, 30*time.Minute)
			}
			script := &script{errs: []error{&StatusError{Code: code, RetryAfter: retryAfter}}}
			inBubble(t, fmt.Sprint(code, " and ", retryAfter), func(t *testing.T) {
				u := newUpdater(t, failingSource(fmt.Errorf("fetching: %w", script.errs[0])), newScheduleOf(t, openStore(t, t.TempDir())), se)
				must(t, u.Once(t.Context()))
				checkDue(t, u.cfg.Schedule, lists)
				p := newProcess(t, t.TempDir(), v4Rules, script)
				p.search(t)
				p.pauses(t, searches)
				if code >= 500 && retryAfter <= 0 { // no wait before the third failure
					searches = 0
				}
				p = newProcess(t, t.TempDir(), v5Rules, script)
				p.search(t)
				p.pauses(t, searches)
			})
		}
	}
	inBubble(t, "a minimum wait of a year", func(t *testing.T) {
		s := ownedSchedule(t, t.TempDir())
		answeredForAll(t, s, begin(t, s, se), year)
		checkAllDue(t, s, year)
	})
}

// failingSource is a source that always fails.
func failingSource(err error) Source { return single(func() (*Update, error) { return nil, err }) }
