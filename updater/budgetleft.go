package updater

import (
	"fmt"
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
		if _, fresh := l.days.on(date); fresh {
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
	l.mu.Lock()
	defer l.mu.Unlock()
	l.uses = func() []lookup.Use { return shares.Uses(l.clock()) }
	return shares
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
	l.mu.Unlock()
	l.flush()
}
