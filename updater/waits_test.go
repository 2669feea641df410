package updater

import (
	"context"
	"errors"
	"fmt"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

// answeredForAll answers an attempt for se-4b with a minimum wait for all lists,
// and one of its own, which is no longer.
func answeredForAll(t *testing.T, s *Schedule, a attempt, all, own time.Duration) {
	t.Helper()
	now := time.Now()
	results := []result{{list: List{Name: se}, kind: ListUpdated, wait: max(own, all)}}
	must(t, a.answered(now, all, clocks(results, now, s)))
}

// checkAllDue fails unless se-4b, and a list that was never asked for, are due in a
// while, after a restart too.
func checkAllDue(t *testing.T, s *Schedule, in time.Duration) {
	t.Helper()
	checkDue(t, s, in)
	again, err := NewSchedule(openStore(t, s.store.dir))
	must(t, err)
	for name, schedule := range map[string]*Schedule{"": s, "after a restart ": again} {
		if due := schedule.due([]string{"mw-4b"}); !due.Equal(time.Now().Add(in)) {
			t.Errorf("%sanother list is due in %s, want %s", name, time.Until(due), in)
		}
	}
}

func TestAMinimumWaitForAllLists(t *testing.T) {
	inBubble(t, "no list is due before", func(t *testing.T) {
		s := ownedSchedule(t, t.TempDir(), 0)
		answeredForAll(t, s, begin(t, s, se), 6*time.Hour, 0)
		checkAllDue(t, s, 6*time.Hour)
		if c := s.list(se); c.AtOnce != 0 || c.Wait != 6*time.Hour {
			t.Errorf("the list's own clock is %+v", c)
		}
	})
	inBubble(t, "a list's own may be longer", func(t *testing.T) {
		s := ownedSchedule(t, t.TempDir(), 0)
		answeredForAll(t, s, begin(t, s, se), time.Hour, 2*time.Hour)
		checkDue(t, s, 2*time.Hour)
		if due := s.due([]string{"mw-4b"}); !due.Equal(time.Now().Add(time.Hour)) {
			t.Errorf("another list is due in %s, want an hour", time.Until(due))
		}
	})
	inBubble(t, "one that is next to none", func(t *testing.T) {
		s := ownedSchedule(t, t.TempDir(), 0)
		answeredForAll(t, s, begin(t, s, se), 1, 0)
		checkAllDue(t, s, time.Second)
	})
	inBubble(t, "the longest there is", func(t *testing.T) {
		s := ownedSchedule(t, t.TempDir(), 0)
		answeredForAll(t, s, begin(t, s, se), math.MaxInt64, 0)
		if due := s.dueNow([]string{se, "mw-4b"}, time.Now().Add(200*365*24*time.Hour)); due != nil {
			t.Errorf("due after two hundred years: %q", due)
		}
	})
	inBubble(t, "the next answer without one ends it", func(t *testing.T) {
		s := ownedSchedule(t, t.TempDir(), 0)
		answeredForAll(t, s, begin(t, s, se), 6*time.Hour, 0)
		time.Sleep(6 * time.Hour)
		answeredForAll(t, s, begin(t, s, se), 0, time.Hour)
		checkDue(t, s, time.Hour)
		if s.dueNow([]string{"mw-4b"}, time.Now()) == nil {
			t.Error("another list is not due")
		}
		time.Sleep(time.Hour)
		begin(t, s, "mw-4b")
		checkAllDue(t, s, 15*time.Minute)
	})
	inBubble(t, "failures before it are over", func(t *testing.T) {
		s := ownedSchedule(t, t.TempDir(), 0)
		must(t, begin(t, s, se).failed(time.Now(), 0, nil, nil, errTest))
		time.Sleep(15 * time.Minute)
		answeredForAll(t, s, begin(t, s, se), time.Minute, 0)
		checkAllDue(t, s, time.Minute)
		time.Sleep(time.Minute)
		must(t, begin(t, s, se).failed(time.Now(), 0, nil, nil, errTest))
		checkAllDue(t, s, 15*time.Minute)
	})
}

func TestAMinimumWaitForAllListsHoldsForAnAnswerThatWasNotRead(t *testing.T) {
	after := func(t *testing.T, wait time.Duration) *Schedule {
		s := ownedSchedule(t, t.TempDir(), 0)
		answeredForAll(t, s, begin(t, s, se), wait, 0)
		time.Sleep(wait)
		return s
	}
	inBubble(t, "a crash", func(t *testing.T) {
		s := after(t, 6*time.Hour)
		begin(t, s, "mw-4b") // which knows no wait of its own
		checkAllDue(t, s, 6*time.Hour)
	})
	inBubble(t, "a crash, the back-off is longer", func(t *testing.T) {
		s := after(t, time.Minute)
		begin(t, s, "mw-4b")
		checkAllDue(t, s, 15*time.Minute)
	})
	inBubble(t, "a shutdown", func(t *testing.T) {
		s := after(t, 6*time.Hour)
		must(t, begin(t, s, se).cancelled([]string{se}, time.Now()))
		checkAllDue(t, s, 6*time.Hour)
	})
	inBubble(t, "a shutdown of another list's fetch", func(t *testing.T) {
		s := after(t, 6*time.Hour)
		must(t, begin(t, s, "mw-4b").cancelled([]string{"mw-4b"}, time.Now()))
		checkAllDue(t, s, 6*time.Hour)
	})
	inBubble(t, "a crash after a failure", func(t *testing.T) {
		s := after(t, 6*time.Hour)
		must(t, begin(t, s, se).failed(time.Now(), 0, nil, nil, errTest))
		checkAllDue(t, s, 15*time.Minute) // an answer that failed gives no wait
		time.Sleep(15 * time.Minute)
		begin(t, s, "mw-4b")
		checkAllDue(t, s, 6*time.Hour)
	})
	inBubble(t, "a shutdown after a restart", func(t *testing.T) {
		s := ownedSchedule(t, after(t, 6*time.Hour).store.dir, 0)
		must(t, begin(t, s, "mw-4b").cancelled([]string{"mw-4b"}, time.Now()))
		checkAllDue(t, s, 6*time.Hour)
	})
}

// strictly is a paced searcher by the strict rule at random numbers r.
func strictly(t *testing.T, dir string, r float64, s *script) lookup.Searcher {
	return Pace(s, ownedSchedule(t, dir, r), SearchRules{Backoff: Strict}, func(Event) {})
}

// Every failure counts from the first on, as in list updates. The pauses are those
// of page "Request Frequency", written out.
func TestStrictPausesAreThoseOfTheRule(t *testing.T) {
	quarters := map[float64][]float64{ // of an hour, after each failure
		0:                    {1, 2, 4, 8, 16, 32, 64, 96, 96, 96},
		0.5:                  {1.5, 3, 6, 12, 24, 48, 96, 96, 96, 96},
		math.Nextafter(1, 0): {2, 4, 8, 16, 32, 64, 96, 96, 96, 96},
	}
	failures := []error{errDown, errLimited, errServer, errRefused, errDown, errServer, errServer, errLimited, errDown, errDown}
	for r, pauses := range quarters {
		inBubble(t, fmt.Sprint(r), func(t *testing.T) {
			s := &script{errs: failures}
			p := strictly(t, t.TempDir(), r, s)
			for i, quarters := range pauses {
				if _, err := p.Search(t.Context(), nil); err != failures[i] {
					t.Fatalf("search %d: %v, want %v", i+1, err, failures[i])
				}
				want := time.Duration(quarters * float64(15*time.Minute))
				if got := p.(*pacedSearcher).schedule.searchWait(time.Now()); want-got < 0 || want-got > time.Millisecond {
					t.Errorf("after %d failures: a pause of %s, want %s", i+1, got, want)
				}
				checkPause(t, p, s, Backoff(i+1, r))
			}
		})
	}
	inBubble(t, "a success ends it", func(t *testing.T) {
		s := &script{errs: []error{errDown, errDown, nil, errDown}}
		p := strictly(t, t.TempDir(), 0, s)
		for _, want := range []time.Duration{15 * time.Minute, 30 * time.Minute, 0, 15 * time.Minute} {
			p.Search(t.Context(), nil)
			checkPause(t, p, s, want)
		}
	})
	inBubble(t, "a longer wait that the server asks for", func(t *testing.T) {
		s := &script{errs: []error{&StatusError{Code: 503, RetryAfter: 2 * time.Hour}}}
		p := strictly(t, t.TempDir(), 0, s)
		p.Search(t.Context(), nil)
		checkPause(t, p, s, 30*time.Minute)
	})
}

// One answer of a server that is down, or of a proxy before it, must not end all confirmations
// of a day. A refusal is not that.
func TestASearchObeysTheRetryAfterOfAServerThatIsDownForHalfAnHour(t *testing.T) {
	for code, want := range map[int]time.Duration{429: 24 * time.Hour, 403: 24 * time.Hour, 500: 30 * time.Minute, 503: 30 * time.Minute, 599: 30 * time.Minute} {
		for name, rule := range map[string]SearchBackoff{"strict": Strict, "strikes": Strikes} {
			inBubble(t, fmt.Sprint(name, ", status ", code), func(t *testing.T) {
				s := &script{errs: []error{&StatusError{Code: code, RetryAfter: math.MaxInt32 * time.Second}}}
				p := Pace(s, ownedSchedule(t, t.TempDir(), 0), SearchRules{Backoff: rule}, func(Event) {})
				p.Search(t.Context(), nil)
				checkPause(t, p, s, want)
			})
		}
	}
}

func TestAMinimumWaitForSearches(t *testing.T) {
	rules := map[string]SearchBackoff{"strict": Strict, "strikes": Strikes}
	for name, rule := range rules {
		inBubble(t, name+": nothing is sent during it", func(t *testing.T) {
			s := &script{errs: []error{nil}, waits: []time.Duration{10 * time.Minute, 0, 1, time.Hour}}
			p := Pace(s, ownedSchedule(t, t.TempDir(), 0), SearchRules{Backoff: rule}, func(Event) {})
			for _, want := range s.waits {
				if answer, err := p.Search(t.Context(), nil); err != nil || answer.TTL != time.Minute {
					t.Errorf("got %+v, %v", answer, err)
				}
				checkPause(t, p, s, want)
			}
		})
		inBubble(t, name+": it is honoured after a restart", func(t *testing.T) {
			dir := t.TempDir()
			s := &script{errs: []error{nil}, waits: []time.Duration{time.Hour}}
			Pace(s, ownedSchedule(t, dir, 0), SearchRules{Backoff: rule}, func(Event) {}).Search(t.Context(), nil)
			synctest.Wait()
			time.Sleep(20 * time.Minute)
			again := &script{errs: []error{nil}}
			p := Pace(again, ownedSchedule(t, dir, 0), SearchRules{Backoff: rule}, func(Event) {})
			checkPause(t, p, again, 40*time.Minute)
			if _, err := p.Search(t.Context(), nil); err != nil || again.sent != 1 {
				t.Errorf("after it: %v, %d sent", err, again.sent)
			}
		})
		inBubble(t, name+": it ends with failures", func(t *testing.T) {
			dir := t.TempDir()
			s := &script{errs: []error{errLimited, errLimited, nil, errLimited}, waits: []time.Duration{0, 0, 5 * time.Minute, 0}}
			p := Pace(s, ownedSchedule(t, dir, 0), SearchRules{Backoff: rule}, func(Event) {})
			for i, want := range []time.Duration{15 * time.Minute, 30 * time.Minute, 5 * time.Minute, 15 * time.Minute} {
				p.Search(t.Context(), nil)
				synctest.Wait()
				if got := heldSearch(ownedSchedule(t, dir, 0)).Failures; got != []int{1, 2, 0, 1}[i] {
					t.Errorf("search %d: %d failures are saved", i+1, got)
				}
				checkPause(t, p, s, want)
			}
		})
	}
}

// Of answers that come together the longest wait holds, also with a failure among them.
func TestOfWaitsThatComeTogetherTheLongestHolds(t *testing.T) {
	type end struct {
		wait time.Duration
		err  error
	}
	hour := end{time.Hour, nil}
	for name, test := range map[string]struct {
		ends     []end
		want     time.Duration
		failures int
	}{
		"the longest first": {[]end{hour, {time.Minute, nil}}, time.Hour, 0},
		"the longest last":  {[]end{{time.Minute, nil}, hour}, time.Hour, 0},
		"before a failure":  {[]end{hour, {0, errServer}}, time.Hour, 1},
		"after a failure":   {[]end{{0, errServer}, hour}, time.Hour, 1},
		"none, after one":   {[]end{hour, {}}, time.Hour, 0},
		"a longer back-off": {[]end{{0, errServer}, {time.Minute, nil}}, 15 * time.Minute, 1},
	} {
		inBubble(t, name, func(t *testing.T) {
			s, err := NewSchedule(nil)
			must(t, err)
			s.random = func() float64 { return 0 }
			p := &pacedSearcher{schedule: s, rules: SearchRules{Backoff: Strict}}
			sent := time.Now()
			time.Sleep(time.Second)
			for _, e := range test.ends {
				p.searched(sentSearch{at: sent}, time.Now(), e.wait, e.err)
			}
			if got := s.searchWait(time.Now()); got != test.want || s.state.Search.Failures != test.failures {
				t.Errorf("%s to wait after %d failures, want %s after %d", got, s.state.Search.Failures, test.want, test.failures)
			}
		})
	}
}

// A wait holds for everyone who asks through the schedule.
func TestAMinimumWaitHoldsForOtherSearchers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		schedule := ownedSchedule(t, t.TempDir(), 0)
		first := Pace(&script{errs: []error{nil}, waits: []time.Duration{time.Hour}}, schedule, SearchRules{Backoff: Strict}, func(Event) {})
		other := &script{errs: []error{nil}}
		second := Pace(other, schedule, SearchRules{Backoff: Strict}, func(Event) {})
		first.Search(t.Context(), nil)
		if _, err := second.Search(t.Context(), nil); !errors.Is(err, lookup.ErrBackoff) || other.sent != 0 {
			t.Errorf("%v, %d sent", err, other.sent)
		}
	})
}

// Retry-After is no rule of Safe Browsing, and anything between client and
// server can send it: it counts for no longer than a back-off can last. A minimum
// wait is a rule, and counts whatever it is.
func TestRetryAfterIsObeyedForADayAtMost(t *testing.T) {
	const year = 365 * 24 * time.Hour
	for retryAfter, want := range map[time.Duration]time.Duration{
		-time.Hour: 15 * time.Minute, 0: 15 * time.Minute, time.Hour: time.Hour, 24*time.Hour - 1: 24*time.Hour - 1,
		24*time.Hour + 1: 24 * time.Hour, 10 * year: 24 * time.Hour, math.MaxInt64: 24 * time.Hour,
	} {
		err := fmt.Errorf("fetching: %w", &StatusError{Code: 503, RetryAfter: retryAfter})
		inBubble(t, fmt.Sprint("lists, ", retryAfter), func(t *testing.T) {
			dir := t.TempDir()
			store := openStore(t, dir)
			schedule, scheduleErr := NewSchedule(store)
			must(t, scheduleErr)
			schedule.random = func() float64 { return 0 }
			source := failingSource{err}
			u, newErr := New(Config{
				Source: source, Database: new(lookup.Database), Schedule: schedule, Store: store, Lists: []string{se},
				FirstContact: func() time.Duration { return 0 },
			})
			must(t, newErr)
			must(t, u.Once(t.Context()))
			checkDue(t, schedule, want)
		})
		for name, rule := range map[string]SearchBackoff{"strict": Strict, "strikes, refused": Strikes} {
			inBubble(t, fmt.Sprint("searches, ", name, ", ", retryAfter), func(t *testing.T) {
				s := &script{errs: []error{&StatusError{Code: 429, RetryAfter: retryAfter}}}
				p := Pace(s, ownedSchedule(t, t.TempDir(), 0), SearchRules{Backoff: rule}, func(Event) {})
				p.Search(t.Context(), nil)
				checkPause(t, p, s, want)
			})
		}
	}
	inBubble(t, "a minimum wait of a year", func(t *testing.T) {
		s := ownedSchedule(t, t.TempDir(), 0)
		answeredForAll(t, s, begin(t, s, se), year, 0)
		checkAllDue(t, s, year)
	})
}

// failingSource is a source that always fails.
type failingSource struct{ err error }

func (f failingSource) Fetch(context.Context, []Want, func(int, *Update)) (time.Duration, error) {
	return 0, f.err
}
