package updater

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

// script is a searcher that answers with one error, or one minimum wait, after the
// other, at last always with the last.
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

// paced is a paced searcher over a script, at random numbers that are all zero.
func paced(t *testing.T, dir string, errs ...error) (*script, lookup.Searcher, *[]Event) {
	schedule := ownedSchedule(t, dir, 0)
	s := &script{errs: errs}
	events := new([]Event)
	return s, Pace(s, schedule, SearchRules{Backoff: Strikes}, func(e Event) { *events = append(*events, e) }), events
}

func TestPauseAfterFailedSearches(t *testing.T) {
	type wait = time.Duration
	tests := []struct {
		name string
		errs []error
		want []wait // after each search
	}{
		{"no failure", []error{nil, nil}, []wait{0, 0}},
		{"status 429, as list updates", []error{errLimited, errLimited, errLimited, errLimited}, []wait{15 * time.Minute, 30 * time.Minute, time.Hour, 2 * time.Hour}},
		{"status 403, as list updates", []error{errRefused, errRefused}, []wait{15 * time.Minute, 30 * time.Minute}},
		{"others, from the third on", []error{errDown, errServer, errDown, errDown, errServer, errDown, errDown},
			[]wait{0, 0, 5 * time.Minute, 10 * time.Minute, 20 * time.Minute, 30 * time.Minute, 30 * time.Minute}},
		{"a time-out is a failure", []error{context.DeadlineExceeded, context.DeadlineExceeded, context.DeadlineExceeded}, []wait{0, 0, 5 * time.Minute}},
		{"a success ends it", []error{errDown, errDown, nil, errDown, errDown, errDown, nil, errLimited, nil, errLimited},
			[]wait{0, 0, 0, 0, 0, 5 * time.Minute, 0, 15 * time.Minute, 0, 15 * time.Minute}},
		{"a cancelled search is no failure", []error{errDown, errDown, context.Canceled, fmt.Errorf("searching: %w", context.Canceled), errDown}, []wait{0, 0, 0, 0, 5 * time.Minute}},
		{"failures of both kinds count together", []error{errDown, errDown, errLimited}, []wait{0, 0, time.Hour}},
		{"a longer wait that the server asks for", []error{&StatusError{Code: 503, RetryAfter: 20 * time.Minute}}, []wait{20 * time.Minute}},
		{"a longer wait after status 429", []error{&StatusError{Code: 429, RetryAfter: 20 * time.Minute}}, []wait{20 * time.Minute}},
		{"a shorter wait after status 429", []error{&StatusError{Code: 429, RetryAfter: time.Minute}}, []wait{15 * time.Minute}},
	}
	for _, test := range tests {
		inBubble(t, test.name, func(t *testing.T) {
			s, p, _ := paced(t, t.TempDir(), test.errs...)
			for i, wait := range test.want {
				if _, err := p.Search(t.Context(), nil); err != test.errs[i] {
					t.Fatalf("search %d: %v, want %v", i+1, err, test.errs[i])
				}
				checkPause(t, p, s, wait)
			}
		})
	}
}

// checkPause fails unless nothing is sent for exactly so long.
func checkPause(t *testing.T, p lookup.Searcher, s *script, wait time.Duration) {
	t.Helper()
	p.(*pacedSearcher).schedule.Flush()
	if got := p.(*pacedSearcher).schedule.searchWait(time.Now()); max(0, got) != wait {
		t.Fatalf("after search %d: a pause of %s, want %s", s.sent, got, wait)
	}
	if wait == 0 {
		return
	}
	before, until := s.sent, time.Now().Add(wait)
	for range 3 {
		_, err := p.Search(t.Context(), nil)
		if held, ok := errors.AsType[*HeldError](err); !ok || !held.Until.Equal(until) || !errors.Is(err, lookup.ErrBackoff) {
			t.Errorf("in the pause: %#v, want one until %s", err, until)
		}
		time.Sleep((wait - 1) / 3)
	}
	time.Sleep(wait - 1 - (wait-1)/3*3)
	if _, err := p.Search(t.Context(), nil); !errors.Is(err, lookup.ErrBackoff) || s.sent != before {
		t.Errorf("just before its end: %v, %d sent", err, s.sent-before)
	}
	time.Sleep(1 * time.Nanosecond)
}

func TestSearchPauseIsSavedOverRestarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		_, p, _ := paced(t, dir, errLimited)
		p.Search(t.Context(), nil)
		synctest.Wait()
		time.Sleep(5 * time.Minute)
		s, p, _ := paced(t, dir, errLimited)
		checkPause(t, p, s, 10*time.Minute)
		p.Search(t.Context(), nil)
		checkPause(t, p, s, 30*time.Minute) // the second failure in a row
	})
}

func TestSearchesAreReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, p, events := paced(t, t.TempDir(), nil, context.Canceled, errLimited)
		for range 5 {
			p.Search(t.Context(), nil)
		}
		if s.sent != 3 || len(*events) != 2 {
			t.Fatalf("%d sent, events %v", s.sent, *events)
		}
		for i, want := range []error{nil, errLimited} {
			if e := (*events)[i]; e.Kind != Searched || e.Err != want {
				t.Errorf("event %+v, want %v", e, want)
			}
		}
	})
}

func TestSearchesGoOnWithoutDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		schedule, _ := NewSchedule(unwritable(t))
		schedule.own()
		var mu sync.Mutex
		kinds := make(map[Kind]int)
		p := Pace(&script{errs: []error{errLimited, nil}}, schedule, SearchRules{Backoff: Strikes}, func(e Event) { // from the goroutine that saves, too
			mu.Lock()
			defer mu.Unlock()
			kinds[e.Kind]++
		})
		p.Search(t.Context(), nil)
		schedule.Flush()
		if _, err := p.Search(t.Context(), nil); !errors.Is(err, lookup.ErrBackoff) {
			t.Errorf("in the pause: %v", err)
		}
		time.Sleep(time.Hour)
		if _, err := p.Search(t.Context(), nil); err != nil {
			t.Errorf("after it: %v", err)
		}
		schedule.Flush()
		if want := map[Kind]int{Searched: 2, StoreFailed: 2}; !maps.Equal(kinds, want) {
			t.Errorf("events %v, want %v", kinds, want)
		}
	})
}

// slow is a searcher whose searches all fail, after a while.
type slow struct{}

func (slow) Search(context.Context, []lookup.Prefix) (lookup.Answer, error) {
	time.Sleep(time.Second)
	return lookup.Answer{}, errLimited
}

// Searches that were under way together say the same thing.
func TestOfSearchesThatFailTogetherOneCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		schedule := ownedSchedule(t, t.TempDir(), 0)
		p := Pace(slow{}, schedule, SearchRules{Backoff: Strikes}, func(Event) {})
		for range 10 {
			go p.Search(t.Context(), nil)
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if wait := schedule.searchWait(time.Now()); wait != 15*time.Minute-time.Second {
			t.Errorf("%s left, want 15 min less a second", wait)
		}
	})
}
