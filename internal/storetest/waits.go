package storetest

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
	"github.com/coredns-safebrowsing/safebrowsing/updater"
)

// minimumWait checks that other processes keep the wait of a success.
func minimumWait(t *testing.T, m Medium) {
	s := &source{wait: time.Hour, answer: 1}
	a := Start(t, m.Process(1), s)
	testkit.Until(t, "a list", func() bool { return a.entries() == 1 })
	a.end()
	b := Start(t, m.Process(2), s)
	testkit.Until(t, "that the second process may fetch", b.leads)
	h := b.schedule.FetchHold([]string{List})
	if wait := time.Until(h.Until); wait < 50*time.Minute || wait > time.Hour+time.Minute || h.Failures != 0 {
		t.Errorf("Expected the wait of an hour and no failure, got %s and %+v", wait, h)
	}
	if asked := s.requests(); len(asked) != 1 {
		t.Errorf("Expected 1 request, got %d", len(asked))
	}
}

// backOff checks that other processes keep the wait of a failure, and know its cause.
func backOff(t *testing.T, m Medium) {
	s := &source{err: &updater.StatusError{Code: http.StatusServiceUnavailable}}
	a := Start(t, m.Process(1), s)
	testkit.Until(t, "the failure", func() bool { return strings.Contains(a.schedule.FetchHold([]string{List}).Cause, "503") })
	a.end()
	b := Start(t, m.Process(2), s)
	testkit.Until(t, "that the second process knows it", func() bool {
		h := b.schedule.FetchHold([]string{List})
		return h.Failures == 1 && strings.Contains(h.Cause, "503") && time.Until(h.Until) > 10*time.Minute
	})
	if asked := s.requests(); len(asked) != 1 {
		t.Errorf("Expected 1 request, got %d", len(asked))
	}
}

// damagedSchedule checks that a restart does not ask early, though what all share is garbage.
func damagedSchedule(t *testing.T, m Medium) {
	s := &source{wait: time.Hour, answer: 1}
	a := Start(t, m.Process(1), s)
	testkit.Until(t, "a list", func() bool { return a.entries() == 1 })
	a.end()
	m.Damage(Origin.Documents()[0])
	again := Start(t, m.Process(1), s)
	testkit.Until(t, "that it may fetch after a restart", again.leads)
	if wait := time.Until(again.schedule.FetchHold([]string{List}).Until); wait < 25*time.Minute {
		t.Errorf("Expected a wait of half an hour at least, got %s", wait)
	}
	if asked := s.requests(); len(asked) != 1 {
		t.Errorf("Expected 1 request, got %d", len(asked))
	}
	again.end() // it has written what can be read
	if _, err := updater.NewSchedule(again.store); err != nil {
		t.Errorf("Expected that the schedule is replaced, got %v", err)
	}
}

// lost checks that the processes that run keep their lists and waits, and give them to the next one.
func lost(t *testing.T, m Medium) {
	s := &source{wait: time.Hour, answer: 200}
	held := func(p *Process) bool {
		return p.entries() == 200 && time.Until(p.schedule.FetchHold([]string{List}).Until) > 50*time.Minute
	}
	a := Start(t, m.Process(1), s)
	testkit.Until(t, "the list and its wait", func() bool { return held(a) })
	b := Start(t, m.Process(2), s)
	testkit.Until(t, "both on another machine", func() bool { return held(b) })
	m.Lose()
	a.end()
	testkit.Until(t, "that the other one may fetch", b.leads)
	c := Start(t, m.Process(3), s)
	testkit.Until(t, "that a third one knows the wait", func() bool { return time.Until(c.schedule.FetchHold([]string{List}).Until) > 50*time.Minute })
	if asked := s.requests(); len(asked) != 1 || !held(b) {
		t.Errorf("Expected 1 request, got %d; %d entries", len(asked), b.entries())
	}
}

// searcher answers with err.
type searcher struct{ err error }

// Search implements lookup.Searcher.
func (s *searcher) Search(context.Context, []lookup.Prefix) (lookup.Answer, error) {
	return lookup.Answer{}, s.err
}

// waitOfSearches checks that all processes wait that run, and one that starts later.
func waitOfSearches(t *testing.T, m Medium) {
	quiet := &source{wait: time.Hour, answer: 1}
	a, b := Start(t, m.Process(1), quiet), Start(t, m.Process(2), quiet)
	rules := updater.SearchRules{Backoff: updater.Strikes}
	refused := &searcher{&updater.StatusError{Code: http.StatusTooManyRequests, RetryAfter: time.Hour}}
	if _, err := updater.Pace(refused, a.schedule, rules, func(updater.Event) {}).Search(t.Context(), nil); err == nil {
		t.Fatal("Expected an error")
	}
	other := updater.Pace(&searcher{}, b.schedule, rules, func(updater.Event) {})
	testkit.Until(t, "that the second process waits", func() bool {
		_, err := other.Search(t.Context(), nil)
		return errors.Is(err, lookup.ErrBackoff)
	})
	if wait := time.Until(b.schedule.SearchHold().Until); wait < 50*time.Minute || wait > time.Hour+time.Minute {
		t.Errorf("Expected the wait of an hour, got %s", wait)
	}
	c := Start(t, m.Process(3), quiet)
	testkit.Until(t, "that the third process waits", func() bool { return c.schedule.SearchHold().Active(time.Now()) })
}
