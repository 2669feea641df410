package storetest

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
	"github.com/coredns-safebrowsing/safebrowsing/updater"
)

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

// oneBudget has three processes spend one budget.
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
