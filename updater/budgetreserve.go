package updater

import (
	"context"
	"fmt"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

// How a search gets from memory into the file. While a process has a reservation it counts in
// memory, under mu. When it has none, one goroutine exchanges its count with the file, and
// the searches wait for it. mu is free during that, so Spent and Remaining never wait for
// the disk.
//
// A search that was spent is counted either in file or in unsaved. A reservation is counted
// in file and in reserved. So the searches spent are file + unsaved - reserved.

// taken is one search that was counted.
type taken struct {
	date  string
	spent int // of that date, with this search
}

// take counts a search that is about to be sent. It returns an error that is
// lookup.ErrBudget if perDay, above 0, does not allow it, and the error of ctx if that
// ends first. It waits for the disk for at most searchLockTimeout.
func (l *Ledger) take(ctx context.Context, perDay int, report func(Event)) (taken, error) {
	for {
		// The loop ends also if the disk hangs: isLate has the next try decide in memory.
		saved, t, err := l.tryTake(perDay, report)
		if saved == nil {
			return t, err
		}
		timeout := time.NewTimer(searchLockTimeout)
		select {
		case <-saved:
		case <-timeout.C:
			l.isLate(saved, report)
		case <-ctx.Done():
			err = ctx.Err()
		}
		timeout.Stop()
		if err != nil {
			return t, err
		}
	}
}

// tryTake is take without waiting: if saved is not nil, try again when it is closed.
func (l *Ledger) tryTake(perDay int, report func(Event)) (saved <-chan struct{}, t taken, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.clock()
	l.turn(dateOf(now))
	due, may := !now.Before(l.lookAgain), l.may(perDay, now)
	// With trouble the disk is tried again once per lookAgainAfter, not for each search.
	inMemory := l.store == nil || perDay <= 0 || l.late || l.trouble && !due
	switch {
	// The file can change the decision: another process may have returned searches to
	// a spent budget, or this process needs a reservation.
	case !inMemory && (!may && due || may && l.reserved == 0):
		return l.save(perDay, report), t, nil
	case !may:
		return nil, taken{l.file.Day, l.spent()}, l.refusal(perDay, now)
	case l.reserved > 0:
		l.reserved--
	default:
		l.count(1)
	}
	l.own++
	l.hour = l.hour.plus(1, now)
	// Without a budget no search waits for the disk. The count is saved in batches, at
	// most one per lookAgainAfter.
	if l.store != nil && perDay <= 0 && l.unsaved >= maxReserved && due && !l.late {
		l.save(perDay, report)
	}
	return nil, taken{l.file.Day, l.spent()}, nil
}

// count adds searches to those that no file counts yet. The caller holds mu.
func (l *Ledger) count(n int) {
	if l.store == nil {
		l.file = l.file.with(l.file.spent() + n)
		return
	}
	l.unsaved += n
}

// giveBack takes back a search that was not sent.
func (l *Ledger) giveBack(t taken) {
	l.mu.Lock()
	defer l.mu.Unlock()
	// The count of that date is closed.
	if t.date != l.file.Day {
		return
	}
	l.own, l.hour = max(0, l.own-1), l.hour.plus(-1, l.clock())
	if l.store == nil || l.unsaved > 0 {
		l.count(-1)
		return
	}
	// The file counts the search already. It is a reservation again.
	l.reserved++
}

func hungDisk(limit time.Duration) error {
	return fmt.Errorf("the disk has not answered within %s", limit)
}

// isLate makes searches count in memory until a save that takes too long has ended.
func (l *Ledger) isLate(saving <-chan struct{}, report func(Event)) {
	l.mu.Lock()
	began := l.saving == saving && !l.trouble
	if l.saving == saving {
		l.late, l.trouble = true, true
	}
	l.mu.Unlock()
	if began {
		report(Event{Kind: StoreFailed, List: BudgetFile, Err: hungDisk(searchLockTimeout)})
	}
}

// save begins to save the count, and to reserve searches for perDay, unless a save is
// under way already. The channel is closed when it has ended. The caller holds mu.
func (l *Ledger) save(perDay int, report func(Event)) <-chan struct{} {
	if l.saving != nil {
		return l.saving
	}
	l.saving = make(chan struct{})
	go func() { // ends when the disk answers; Flush waits for it
		events, _ := l.update(perDay, true)
		for _, e := range events {
			report(e)
		}
		l.saved()
	}()
	return l.saving
}

// update writes the count with what is not saved yet. It reserves searches, or returns
// the reserved ones. It returns what there is to report, and the error of writing even
// if that is no news.
func (l *Ledger) update(perDay int, reserve bool) (events []Event, err error) {
	l.mu.Lock()
	// Move may replace l.store during the update. settle compares it with this one.
	c, uses := budgetChange{store: l.store}, l.uses
	l.mu.Unlock()
	if uses != nil { // without the lock: it asks what is left
		c.uses = uses()
	}
	saved := false
	if c.store != nil { // not moved meanwhile
		events, saved, err = l.exchange(&c, perDay, reserve)
	}
	return append(events, l.settle(c, saved, err)...), err
}

// exchange reads the file and replaces it, under its lock. It reports whether the new
// count is saved, perhaps in a spare folder: then err is that of the folder.
func (l *Ledger) exchange(c *budgetChange, perDay int, reserve bool) (events []Event, saved bool, err error) {
	// The lock is held from reading to writing: what another process counted in between
	// would be lost.
	unlock, err := c.store.lockBudget()
	if err != nil {
		return nil, false, err
	}
	defer unlock()
	found, damaged, readErr := c.store.readBudget(dateOf(l.clock()))
	if damaged != "" {
		keepDamaged(damaged)
	}
	if l.newDamage(damaged) {
		events = []Event{{Kind: LoadFailed, List: BudgetFile, Err: readErr}}
	}
	unknown := onlyUnknown(readErr)
	if unknown != nil && perDay <= 0 { // a count to replace it needs a budget
		return events, false, unknown
	}
	if err := l.share(c, found, unknown, perDay, reserve); err != nil {
		l.plan(c, found, unknown, perDay, reserve)
	}
	if damaged == "" && c.next.same(found) {
		return events, true, nil
	}
	c.store.cleanBudget()
	saved, err = c.store.writeBudget(c.next)
	return events, saved, err
}

// newDamage reports whether damaged is a path that was not reported yet.
func (l *Ledger) newDamage(damaged string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	before := l.damaged
	l.damaged = damaged
	return damaged != "" && damaged != before
}

// budgetChange is what an update changes in the file.
type budgetChange struct {
	store   *Store
	uses    []lookup.Use
	next    budgetDays
	granted int // searches that it reserves
	unsaved int // searches that it counts for the first time
	back    int // reservations that it returns
}

// plan says what to write after found was read. The caller has the lock of the file.
func (l *Ledger) plan(c *budgetChange, found budgetDays, unknown error, perDay int, reserve bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.clock()
	l.turn(dateOf(now)) // under the lock of the file: no process goes back to a date that has ended
	next, _ := found.on(l.file.Day)
	// The file may have been removed or edited. Then the searches of this process are
	// the least that was spent.
	spent := max(next.spent()+l.unsaved, l.own+l.reserved)
	if unknown != nil {
		// Money first: anything up to the budget may be spent. An error costs at most
		// the confirmations of one day, and is reported.
		l.unknown = unknown
		spent = max(spent, perDay)
	}
	c.unsaved = l.unsaved
	if !reserve { // if the file cannot be written, they count as spent
		c.back += l.reserved // plan may be called again
		l.reserved = 0
		spent -= c.back
	} else if perDay > 0 {
		c.granted = chunk(allowedOf(perDay, l.common, l.alone), spent)
		if l.spread {
			c.granted = min(c.granted, max(0, HourOf(perDay)-next.Recent.plus(l.unsaved, now).sum(now)))
		}
		spent += c.granted
	}
	c.next = next.with(spent)
	c.next.Uses = lookup.JoinUses(next.Uses, c.uses)
	c.next.Recent = next.Recent.plus(l.unsaved+c.granted-c.back, now)
}

// chunk returns how many searches to reserve: a hundredth of the budget, and less near
// its end, so that several processes share the rest.
func chunk(perDay, spent int) int {
	left := max(0, perDay-spent)
	return min(left, max(1, min(perDay/100, left/4, maxReserved)))
}

// settle ends an update and returns what there is to report. saved and err are those of
// exchange.
func (l *Ledger) settle(c budgetChange, saved bool, err error) (events []Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if saved && c.store == l.store && c.next.Day == l.file.Day {
		l.file, l.unknown = c.next, nil
		l.unsaved -= c.unsaved
		l.reserved += c.granted
		// Searches that were counted in memory meanwhile use the reservation.
		n := min(l.unsaved, l.reserved) // below 0 if some were given back
		l.unsaved, l.reserved = l.unsaved-n, l.reserved-n
	}
	if c.store == l.store && (!saved || c.granted == 0) {
		l.lookAgain = l.clock().Add(lookAgainAfter)
	}
	switch {
	case err != nil && !l.trouble:
		events = []Event{{Kind: StoreFailed, List: BudgetFile, Err: err}}
	case err == nil && l.trouble:
		events = []Event{{Kind: Stored, List: BudgetFile}}
	}
	l.trouble = err != nil
	return events
}

// saved wakes those who wait for a save. It forgets the channel under the same lock, so
// that the next search begins a save of its own. Only now is no save late: isLate may be
// called between settle and saved.
func (l *Ledger) saved() {
	l.mu.Lock()
	defer l.mu.Unlock()
	close(l.saving)
	l.saving, l.late = nil, false
}
