package storetest

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
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

// spender spends the budget of a machine.
type spender struct {
	ledger *updater.Ledger
	search func() error
	late   atomic.Bool // the disk did not answer in time
}

// newSpender starts a process with a budget. Its ledger may find a damaged count.
func newSpender(t *testing.T, m Medium, machine, budget int) *spender {
	t.Helper()
	store := m.Process(machine)
	Start(t, store, &source{wait: time.Hour, answer: 1})
	s := new(spender)
	s.ledger, _ = updater.NewLedger(store)
	limited := s.ledger.Limit(&searcher{}, budget, func(e updater.Event) {
		if e.Kind == updater.StoreFailed {
			s.late.Store(true)
		}
	})
	s.search = func() error { _, err := limited.Search(t.Context(), nil); return err }
	return s
}

// drain returns how many of n searches are allowed.
func (s *spender) drain(n int) (allowed int) {
	for range n {
		if s.search() == nil {
			allowed++
		}
	}
	return allowed
}

// In oneBudget three processes spend one budget.
func oneBudget(t *testing.T, m Medium) {
	const budget, processes = 100, 3
	sent := make(chan int, processes)
	var all []*spender
	for i := range processes {
		all = append(all, newSpender(t, m, i, budget))
	}
	for _, s := range all {
		go func() { sent <- s.drain(budget) }() // ends with its searches
	}
	total, late := 0, false
	for range all {
		total += <-sent
	}
	for _, s := range all {
		late = late || s.late.Load()
	}
	late = late || m.Late != nil && m.Late()
	if late { // then a process continues with what it knows, by design
		t.Logf("The machine is too busy: %d searches were made while the disk or Redis was late", total)
	}
	if !late && (total > budget || total < budget*9/10) || total > processes*budget {
		t.Errorf("Expected at most %d searches and nearly as many, got %d", budget, total)
	}
}

// lostCount checks that a process that runs knows what it has spent.
func lostCount(t *testing.T, m Medium) {
	const budget = 20
	s := newSpender(t, m, 1, budget)
	before := s.drain(budget * 3 / 4)
	m.Lose()
	if after := s.drain(budget); before == 0 || before+after > budget {
		t.Errorf("Expected at most %d searches, got %d and %d", budget, before, after)
	}
}

// damagedCount checks that a restart does not begin to count at 0.
func damagedCount(t *testing.T, m Medium) {
	const budget = 20
	s := newSpender(t, m, 1, budget)
	before := s.drain(budget * 3 / 4)
	testkit.Until(t, "that the count is saved", func() bool { return s.ledger.Flush() == nil })
	m.Damage(Origin.Documents()[2])
	if after := newSpender(t, m, 1, budget).drain(budget); before == 0 || before+after > budget {
		t.Errorf("Expected at most %d searches, got %d and %d", budget, before, after)
	}
}
