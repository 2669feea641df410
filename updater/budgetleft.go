package updater

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

// What is left of a budget, and until when nothing is, comes from one function for all who ask:
// those who spend, those who tell people, and those who tell clients when to ask again.

// Allowance is what a budget of perDay searches allows at a time. It is a value.
type Allowance struct {
	Left int  // searches that may still be spent on the date, at least 0
	Now  int  // the part of Left that may be spent at once
	Hold Hold // why and until when Now is 0; zero: it is not
}

// partAlone is the part of the rest of a budget that a process may spend while it cannot reach
// the others: they may do the same. The relays of a network are few.
const partAlone = 4

// allowedOf returns how many searches of a day this process may know to be spent and still spend
// another one, at least one more than common. common are those that all processes had spent when the others were last reached.
func allowedOf(perDay, common int, alone bool) int {
	if !alone {
		return perDay
	}
	return common + (max(0, perDay-common)+partAlone-1)/partAlone
}

// Spread makes the Ledger allow no hour more than HourOf a budget, from now on. At midnight an hour begins anew.
func (l *Ledger) Spread() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.spread = true
}

// Allowance returns what a budget of perDay searches, at least 1, allows at now. See Spent.
func (l *Ledger) Allowance(perDay int, now time.Time) Allowance {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.allowance(perDay, now)
}

// allowance is Allowance for callers that hold mu.
func (l *Ledger) allowance(perDay int, now time.Time) Allowance {
	midnight := NextDay(now)
	spent, common, hour, unknown := l.spentOn(now), l.common, recent(nil), l.unknown != nil
	if l.spread {
		hour = l.days.Recent.less(l.days.part(l.writer).Hour).and(l.hour)
	}
	if date := dateOf(now); date != l.days.Day {
		unknown = false
		if _, fresh := l.days.on(date, l.apart()); fresh {
			common, hour = 0, nil
		}
	}
	left, portion := allowedOf(perDay, common, l.alone())-spent, WholeDay
	switch {
	case unknown:
		left, portion = 0, Unknown
	case left <= 0 && spent < perDay:
		portion = OneAlone
	}
	if left <= 0 {
		return Allowance{Hold: Hold{Until: midnight, Budget: perDay, Portion: portion}}
	}
	if !l.spread {
		return Allowance{Left: left, Now: left}
	}
	most := HourOf(perDay)
	if now := most - hour.sum(now); now > 0 {
		return Allowance{Left: left, Now: min(left, now)}
	}
	until := hour.frees(most, now)
	if until.After(midnight) {
		until = midnight
	}
	return Allowance{Left: left, Hold: Hold{Until: until, Budget: perDay, Portion: AnHour}}
}

// may reports whether a budget allows one more search. The caller holds mu.
func (l *Ledger) may(perDay int, now time.Time) bool {
	return perDay <= 0 || l.allowance(perDay, now).Now > 0
}

// Remaining returns how many of perDay searches may still be spent on the date of now;
// at least 0. See Spent.
func (l *Ledger) Remaining(perDay int, now time.Time) int { return l.Allowance(perDay, now).Left }

// Hold returns until when a budget of perDay searches allows none, or the zero Hold.
// perDay 0 is no budget.
func (l *Ledger) Hold(perDay int, now time.Time) Hold {
	if perDay <= 0 {
		return Hold{}
	}
	return l.Allowance(perDay, now).Hold
}

// SpentError says that a budget allows no search now, and why. It is lookup.ErrBudget.
type SpentError struct {
	Hold Hold
	why  error // an error of the file; may be nil
}

// Error implements error.
func (e *SpentError) Error() string {
	if e.why != nil {
		return fmt.Sprintf("%v (%v)", lookup.ErrBudget, e.why)
	}
	return e.Hold.String()
}

// Unwrap makes it lookup.ErrBudget, and the error of the file.
func (e *SpentError) Unwrap() []error {
	if e.why == nil {
		return []error{lookup.ErrBudget}
	}
	return []error{lookup.ErrBudget, e.why}
}

// Shares returns the Shares of a budget of perDay searches a day, at least 1. Each client may have
// percent of it, and beyond that what the others do not need. They know the last days from the file.
// From now on the file of the count tells later processes what the clients of this one used,
// without who they are. also, which may be nil, returns what else bounds the searches, if it is
// known.
func (l *Ledger) Shares(perDay, percent int, also func(now time.Time) (b lookup.Budget, known bool)) *lookup.Shares {
	shares := lookup.NewShares(percent, func(now time.Time) (lookup.Budget, bool) {
		a := l.Allowance(perDay, now)
		b := lookup.Budget{Day: perDay, Left: a.Left, Hour: HourOf(perDay), Now: a.Now}
		if also != nil {
			if other, known := also(now); known {
				b = b.Least(other)
			}
		}
		return b, true
	}, l.noteUses)
	shares.Remember(l.Uses())
	l.TellOf(shares, nil)
	return shares
}

// TellOf saves, with the count, what clients use of these Shares from now on. Errors in saving it go to
// report, unless report is nil.
func (l *Ledger) TellOf(shares *lookup.Shares, report func(Event)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.uses = func() []lookup.Use { return shares.Uses(l.clock()) }
	if report != nil {
		l.report = report
	}
}

// Uses returns what is known to have been used on the last days.
func (l *Ledger) Uses() []lookup.Use {
	l.mu.Lock()
	uses, past := l.uses, l.days.Uses
	l.mu.Unlock()
	if uses == nil {
		return past
	}
	return lookup.JoinUses(past, uses())
}

// noteUses saves the uses without waiting for it, so that other programs can tell of them.
func (l *Ledger) noteUses() {
	l.mu.Lock()
	l.changed = true
	report := l.report
	l.mu.Unlock()
	l.flush(report)
}

// Limit returns a Searcher that asks s, but at most perDay times a day, 0 for no limit:
// then it sends nothing and returns an error that is lookup.ErrBudget. A search that
// fails counts, since it may have been charged for, unless its error is
// lookup.ErrBackoff or lookup.ErrLimited, which say that nothing was sent. So s is
// usually a Searcher from Pace. It must send one request for a search.
//
// report may be called from another goroutine. The Searcher is safe for concurrent use
// if s is.
func (l *Ledger) Limit(s lookup.Searcher, perDay int, report func(Event)) lookup.Searcher {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.report = report
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
	if err != nil {
		if errors.Is(err, lookup.ErrBudget) {
			b.tell(t, err)
		}
		return lookup.Answer{}, err
	}
	answer, err := b.searcher.Search(ctx, prefixes)
	if errors.Is(err, lookup.ErrBackoff) || errors.Is(err, lookup.ErrLimited) || errors.Is(err, lookup.ErrBudget) || isNotSent(err) { // a relay sends the last one
		b.ledger.giveBack(t)
	} else if b.perDay > 0 && t.date == dateOf(b.ledger.clock()) { // else a later search may have told of the next day
		b.tell(t, nil)
	}
	return answer, err
}

// tell reports what changes for the budget with a search that was sent or, with
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
	if err == nil && b.low != t.date && float64(t.spent) >= lowBudget*float64(b.perDay) && t.spent < b.perDay {
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
