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

// retryAfter returns how long the server asked to be left alone: at most as long as
// a back-off can last. The header is no rule of Safe Browsing, and anything between
// here and the server can send it.
func retryAfter(err error) time.Duration {
	if status, ok := errors.AsType[*StatusError](err); ok {
		return min(status.RetryAfter, maxBackoff)
	}
	return 0
}

// pacedSearcher is a Searcher that keeps the server's rules for searches.
type pacedSearcher struct {
	searcher lookup.Searcher
	schedule *Schedule
	backoff  SearchBackoff
	report   func(Event)
}

// Pace returns a Searcher that asks s, unless the schedule says that the server
// must be left alone: then it returns lookup.ErrBackoff and sends nothing. Each
// search is reported. It is safe for concurrent use if s and report are.
func Pace(s lookup.Searcher, schedule *Schedule, backoff SearchBackoff, report func(Event)) lookup.Searcher {
	return &pacedSearcher{searcher: s, schedule: schedule, backoff: backoff, report: report}
}

// Search implements lookup.Searcher.
func (p *pacedSearcher) Search(ctx context.Context, prefixes []lookup.Prefix) (lookup.Answer, error) {
	now := time.Now()
	if wait := p.schedule.searchWait(now); wait > 0 {
		return lookup.Answer{}, fmt.Errorf("%w: %s left", lookup.ErrBackoff, wait.Round(time.Second))
	}
	asker := p.schedule.askerNow()
	answer, err := p.searcher.Search(ctx, prefixes)
	if p.schedule.askerNow() != asker { // its clock is not that of the new one
		return answer, err
	}
	if errors.Is(err, context.Canceled) { // shutting down: no failure, but there may have been a wait
		saveErr := p.schedule.searchCut(time.Now())
		if saveErr != nil {
			p.report(Event{Kind: StoreFailed, Err: saveErr})
		}
		return answer, err
	}
	saveErr := p.searched(now, time.Now(), answer.MinimumWait, err)
	p.report(Event{Kind: Searched, Err: err, Took: time.Since(now)})
	if saveErr != nil {
		p.report(Event{Kind: StoreFailed, Err: saveErr})
	}
	return answer, err
}

// searched notes the end, at now, of a search that was sent before, with the
// minimum wait that its answer gave (0: none). Searches that were under way
// together when one failed say nothing new: further failures do not count, and a
// success does not end the wait.
func (p *pacedSearcher) searched(sent, now time.Time, wait time.Duration, err error) error {
	s := p.schedule
	if err == nil && wait <= 0 && !s.searchWaits(sent) {
		return nil
	}
	return s.change(func(state *scheduleState) {
		together := !s.searchFailed.IsZero() && sent.Before(s.searchFailed)
		clock := &state.Search
		if err == nil {
			if !together {
				clock.Failures, clock.Cause, clock.Failed = 0, "", time.Time{}
			}
			if clock.Wait = wait; wait > 0 && now.Add(wait).After(clock.NotBefore) {
				clock.NotBefore = now.Add(wait)
			}
			return
		}
		if !together {
			clock.Failures++
			s.searchFailed = now
		}
		*clock = clock.because(now, err)
		backoff := max(p.backoff(clock.Failures, refused(err), s.random()), retryAfter(err), wait)
		if until := now.Add(backoff); until.After(clock.NotBefore) && (!together || refused(err) || wait > 0) {
			clock.NotBefore = until
		}
	})
}

// searchCut notes that a search was cancelled, which may have been answered with a
// wait that was not read any more: the last one is kept once more.
func (s *Schedule) searchCut(now time.Time) error {
	s.mu.Lock()
	wait := s.state.Search.Wait
	s.mu.Unlock()
	if wait <= 0 {
		return nil
	}
	return s.change(func(state *scheduleState) {
		if until := now.Add(state.Search.Wait); until.After(state.Search.NotBefore) {
			state.Search.NotBefore = until
		}
	})
}

// searchWaits reports whether the success of a search that was sent then changes
// anything.
func (s *Schedule) searchWaits(sent time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	together := !s.searchFailed.IsZero() && sent.Before(s.searchFailed)
	return s.state.Search.Failures > 0 && !together || s.state.Search.Wait > 0
}

// searchWait returns how long no search may be sent.
func (s *Schedule) searchWait(now time.Time) time.Duration {
	s.mu.Lock()
	wait, last := s.state.Search.NotBefore.Sub(now), s.last
	if s.succeeds {
		last = nil
	}
	s.mu.Unlock()
	if last != nil { // it may still be in use, and told to wait
		wait = max(wait, last.searchWait(now))
	}
	return wait
}

// refused reports whether a server does not want to be asked.
func refused(err error) bool {
	status, ok := errors.AsType[*StatusError](err)
	return ok && (status.Code == http.StatusForbidden || status.Code == http.StatusTooManyRequests)
}
