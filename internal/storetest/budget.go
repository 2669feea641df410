package storetest

import (
	"testing"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/updater"
)

// spender spends the budget of a machine.
type spender struct {
	ledger *updater.Ledger
	search func() error
}

// newSpender starts a process with a budget. Its ledger may find a damaged count.
func newSpender(t *testing.T, m Medium, machine, budget int) *spender {
	t.Helper()
	store := m.Process(machine)
	Start(t, store, &source{wait: time.Hour, answer: 1})
	ledger, _ := updater.NewLedger(store)
	limited := ledger.Limit(&searcher{}, budget, func(updater.Event) {})
	return &spender{ledger, func() error { _, err := limited.Search(t.Context(), nil); return err }}
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
	const budget = 100
	sent := make(chan int, 3)
	var all []*spender
	for i := range 3 {
		all = append(all, newSpender(t, m, i, budget))
	}
	for _, s := range all {
		go func() { sent <- s.drain(budget) }()
	}
	total := <-sent + <-sent + <-sent
	if total > budget || total < budget*9/10 {
		t.Errorf("Expected at most %d searches and nearly as many, got %d", budget, total)
	}
}

// lostCount has a process that runs know what it has spent.
func lostCount(t *testing.T, m Medium) {
	s := newSpender(t, m, 1, 20)
	if n := s.drain(15); n != 15 {
		t.Fatalf("Expected 15 searches, got %d", n)
	}
	m.Lose()
	if n := s.drain(20); n > 5 {
		t.Errorf("Expected at most 5 more searches, got %d", n)
	}
}

// damagedCount has a restart not begin to count at 0.
func damagedCount(t *testing.T, m Medium) {
	s := newSpender(t, m, 1, 20)
	if n := s.drain(15); n != 15 {
		t.Fatalf("Expected 15 searches, got %d", n)
	}
	if err := s.ledger.Flush(); err != nil {
		t.Fatal(err)
	}
	m.Damage(Origin.Documents()[2])
	if n := newSpender(t, m, 1, 20).drain(20); n > 5 {
		t.Errorf("Expected at most 5 more searches, got %d", n)
	}
}
