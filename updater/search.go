package updater

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

// StatusError is an answer with another status than 200.
type StatusError struct {
	Code       int           // HTTP status
	Message    string        // what the server said of it, may be empty
	RetryAfter time.Duration // that the server asked for; 0: none
}

// Error implements error.
func (e *StatusError) Error() string {
	text := fmt.Sprintf("the server answered status %d %s", e.Code, http.StatusText(e.Code))
	if e.Message != "" {
		text += ": " + e.Message
	}
	return text
}

// retryAfter returns how long the server asked to be left alone.
func retryAfter(err error) time.Duration {
	if status, ok := errors.AsType[*StatusError](err); ok {
		return status.RetryAfter
	}
	return 0
}

// pacedSearcher is a Searcher that keeps the server's rules for searches.
type pacedSearcher struct {
	searcher lookup.Searcher
	schedule *Schedule
	report   func(Event)
}

// Pace returns a Searcher that asks s, unless the schedule says that the server
// must be left alone: then it returns lookup.ErrBackoff and sends nothing. Each
// search is reported. It is safe for concurrent use if s and report are.
func Pace(s lookup.Searcher, schedule *Schedule, report func(Event)) lookup.Searcher {
	return &pacedSearcher{searcher: s, schedule: schedule, report: report}
}

// Search implements lookup.Searcher.
func (p *pacedSearcher) Search(ctx context.Context, prefixes []lookup.Prefix) (lookup.Answer, error) {
	now := time.Now()
	if wait := p.schedule.searchWait(now); wait > 0 {
		return lookup.Answer{}, fmt.Errorf("%w: %s left", lookup.ErrBackoff, wait.Round(time.Second))
	}
	answer, err := p.searcher.Search(ctx, prefixes)
	if errors.Is(err, context.Canceled) {
		return answer, err // shutting down: no failure
	}
	saveErr := p.schedule.searched(now, time.Now(), err)
	p.report(Event{Kind: Searched, Err: err, Took: time.Since(now)})
	if saveErr != nil {
		p.report(Event{Kind: StoreFailed, Err: saveErr})
	}
	return answer, err
}

// searchWait returns how long no search may be sent.
func (s *Schedule) searchWait(now time.Time) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state.Search.NotBefore.Sub(now)
}

// searched notes the end, at now, of a search that was sent before. Searches that
// were under way together when one failed say nothing new: further failures do
// not count, and a success does not end the wait.
func (s *Schedule) searched(sent, now time.Time, err error) error {
	s.mu.Lock()
	together := !s.searchFailed.IsZero() && sent.Before(s.searchFailed)
	idle := err == nil && (together || s.state.Search == (Clock{}))
	s.mu.Unlock()
	if idle {
		return nil
	}
	return s.change(func(state *scheduleState) {
		if err == nil {
			state.Search = Clock{}
			return
		}
		failures := state.Search.Failures
		if together = !s.searchFailed.IsZero() && sent.Before(s.searchFailed); !together {
			failures++
			s.searchFailed = now
		}
		wait := max(searchBackoff(failures, refused(err), s.random()), retryAfter(err))
		if until := now.Add(wait); !together || until.After(state.Search.NotBefore) && refused(err) {
			state.Search.NotBefore = until
		}
		state.Search.Failures = failures
	})
}

// refused reports whether a server does not want to be asked.
func refused(err error) bool {
	status, ok := errors.AsType[*StatusError](err)
	return ok && (status.Code == http.StatusForbidden || status.Code == http.StatusTooManyRequests)
}
