package updater

import (
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

// Shares returns the Shares of a budget of perDay searches a day, at least 1, of each of which a
// client may have percent, and what the others do not need. They know the last days from the file.
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
