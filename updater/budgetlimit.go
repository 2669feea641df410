package updater

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

// Limit returns a Searcher that asks s, but at most perDay times a day, 0 for no limit:
// then it sends nothing and returns an error that is lookup.ErrBudget. A search that
// fails counts, since it may have been charged for, unless its error is
// lookup.ErrBackoff or lookup.ErrLimited, which say that nothing was sent. So s is
// usually a Searcher from Pace. It must send one request for a search.
//
// report may be called from another goroutine. The Searcher is safe for concurrent use
// if s is.
func (l *Ledger) Limit(s lookup.Searcher, perDay int, report func(Event)) lookup.Searcher {
	return &budgetedSearcher{searcher: s, ledger: l, perDay: perDay, report: report}
}

// budgetedSearcher is a Searcher with a budget.
type budgetedSearcher struct {
	searcher lookup.Searcher
	ledger   *Ledger
	perDay   int
	report   func(Event)

	mu         sync.Mutex
	low, spent string    // dates when BudgetLow and BudgetSpent were reported last; guarded by mu
	paused     time.Time // when BudgetPaused was reported last; guarded by mu
}

// Search implements lookup.Searcher.
func (b *budgetedSearcher) Search(ctx context.Context, prefixes []lookup.Prefix) (lookup.Answer, error) {
	// Count first, send afterwards. A crash in between wastes one search. In the other
	// order a loop of crashes could spend more than the budget.
	t, err := b.ledger.take(ctx, b.perDay, b.report)
	if b.perDay > 0 && (err == nil || errors.Is(err, lookup.ErrBudget)) {
		b.tell(t, err)
	}
	if err != nil {
		return lookup.Answer{}, err
	}
	answer, err := b.searcher.Search(ctx, prefixes)
	if errors.Is(err, lookup.ErrBackoff) || errors.Is(err, lookup.ErrLimited) || errors.Is(err, lookup.ErrBudget) || isNotSent(err) { // a relay sends the last one
		b.ledger.giveBack(t)
	}
	return answer, err
}

// tell reports what changes for the budget with a search that was granted or, with
// err, refused: each once a day.
func (b *budgetedSearcher) tell(t taken, err error) {
	// mu stays locked during the reports, so that a day's reports keep their order. So report
	// must not search with b.
	e := Event{Spent: t.spent, Budget: b.perDay, Due: NextDay(time.Now())}
	b.mu.Lock()
	defer b.mu.Unlock()
	if err == nil && b.spent != "" && b.spent != t.date {
		b.spent = ""
		e.Kind = BudgetRenewed
		b.report(e)
	}
	if err == nil && b.low != t.date && float64(t.spent) >= lowBudget*float64(b.perDay) {
		b.low = t.date
		e.Kind = BudgetLow
		b.report(e)
	}
	refused, _ := errors.AsType[*SpentError](err)
	if refused != nil && (refused.Hold.Portion == AnHour || refused.Hold.Portion == OneAlone) {
		b.pause(e, refused.Hold)
		return
	}
	if (err != nil || t.spent >= b.perDay) && b.spent != t.date {
		b.spent = t.date
		e.Kind = BudgetSpent
		if errors.Is(err, errUnknownCount) {
			e.Err = err
		}
		b.report(e)
	}
}

// pause reports that a portion of the budget is spent, once an hour. The caller holds mu.
func (b *budgetedSearcher) pause(e Event, hold Hold) {
	if now := time.Now(); b.paused.IsZero() || now.Sub(b.paused) >= time.Hour || now.Before(b.paused) {
		b.paused = now
		e.Kind, e.Due, e.Hold = BudgetPaused, hold.Until, hold
		b.report(e)
	}
}

// lowBudget is the part of a budget whose spending is reported.
const lowBudget = 0.8
