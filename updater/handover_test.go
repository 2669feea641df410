package updater

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// A reload while a fetch is under way, which succeeds or is cancelled.
func TestAReloadDuringAFetchIsNoFailure(t *testing.T) {
	for name, end := range map[string]func(t *testing.T, s *Schedule, a attempt){
		"answered":  func(t *testing.T, s *Schedule, a attempt) { success(t, s, a, 5*time.Minute) },
		"cancelled": func(t *testing.T, s *Schedule, a attempt) { must(t, a.cancelled([]string{se}, time.Now())) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				first, err := NewSchedule(nil)
				must(t, err)
				for range 8 { // the next wait is a day
					must(t, begin(t, first, se).failed(time.Now(), 0, nil, nil, errTest))
				}
				time.Sleep(24 * time.Hour)
				a := begin(t, first, se)
				second, err := NewSchedule(nil)
				must(t, err)
				second.Follow(first)
				end(t, first, a)
				second.resume()
				if got, want := second.due([]string{se}), first.due([]string{se}); !got.Equal(want) {
					t.Errorf("due in %s with %d failures, the one before in %s with %d", time.Until(got), second.state.Fetch.Failures, time.Until(want), first.state.Fetch.Failures)
				}
			})
		})
	}
}

// While two engines of one identity live, in a reload, the wait that the old one was
// given holds for the new one too.
func TestTheWaitOfASearchHoldsInTheOverlapOfAReload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first, err := NewSchedule(nil)
		must(t, err)
		second, err := NewSchedule(nil)
		must(t, err)
		second.Follow(first)
		old := &pacedSearcher{schedule: first, rules: SearchRules{Backoff: Strict}}
		old.searched(sentSearch{at: time.Now()}, time.Now(), time.Hour, nil)
		if wait := second.searchWait(time.Now()); wait != time.Hour {
			t.Errorf("the new engine may search in %s, want an hour", wait)
		}
	})
}

// A search that is cancelled may have been answered with a wait that was not read.
func TestACancelledSearchKeepsTheLastWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		schedule, err := NewSchedule(nil)
		must(t, err)
		searcher := &script{errs: []error{nil, context.Canceled}, waits: []time.Duration{time.Hour}}
		p := Pace(searcher, schedule, SearchRules{Backoff: Strict}, func(Event) {})
		p.Search(t.Context(), nil)
		time.Sleep(2 * time.Hour)
		p.Search(t.Context(), nil) // cancelled
		if wait := schedule.searchWait(time.Now()); wait != time.Hour {
			t.Errorf("the next search may be sent in %s, want an hour", wait)
		}
	})
}
