package updater

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

// How a search gets from memory into the file. While a process has a reservation it counts in
// memory, under mu. When it has none, one goroutine joins its count with the file, and the
// searches wait for it. mu is free during that, so Spent and Remaining never wait for the disk.
//
// The file counts covered searches of this process, which has spent own. If own is less, the others
// are reserved; if it is more, the others are in memory only.

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
	case !inMemory && (!may && due || may && l.own >= l.covered):
		return l.save(perDay, report), t, nil
	case !may:
		return nil, taken{l.days.Day, l.spent()}, l.refusal(perDay, now)
	}
	l.own++
	l.hour = l.hour.plus(1, now)
	// Without a budget no search waits for the disk. The count is saved in batches, at
	// most one per lookAgainAfter.
	if l.store != nil && perDay <= 0 && l.own >= l.covered+maxReserved && due && !l.late {
		l.save(perDay, report)
	}
	return nil, taken{l.days.Day, l.spent()}, nil
}

// giveBack takes back a search that was not sent. If the file counts it already, it is a
// reservation again.
func (l *Ledger) giveBack(t taken) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if t.date == l.days.Day { // otherwise the count of that date is closed
		l.own, l.hour = max(0, l.own-1), l.hour.plus(-1, l.clock())
	}
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

// exchange brings the file up to date. It reports whether the new count is saved, perhaps in the
// spare folder: then err is that of the folder.
func (l *Ledger) exchange(c *budgetChange, perDay int, reserve bool) (events []Event, saved bool, err error) {
	saved, err = c.store.swap(c.store.origin.budgetFile(), func([]byte) ([]byte, error) {
		found, damaged, readErr := c.store.readBudget(dateOf(l.clock()))
		if damaged != "" {
			keepDamaged(damaged)
		}
		if l.newDamage(damaged) {
			events = []Event{{Kind: LoadFailed, List: BudgetFile, Err: readErr}}
		}
		unknown := onlyUnknown(readErr)
		if unknown != nil && perDay <= 0 { // a count to replace it needs a budget
			return nil, unknown
		}
		l.join(found)
		if err := l.share(c, found, unknown, perDay, reserve); err != nil {
			l.plan(c, unknown, perDay, reserve)
		}
		if damaged == "" && c.next.same(found) {
			return nil, nil
		}
		raw, err := json.Marshal(c.next)
		return append(raw, '\n'), err
	})
	return events, saved, err
}

// share plans an update on what the document knows too, and writes it there. If that cannot be
// reached it returns an error, and the process goes on with a part of the budget.
func (l *Ledger) share(c *budgetChange, found budgetDays, unknown error, perDay int, reserve bool) error {
	shared := c.store.shared
	if shared == nil {
		return errNotHeld
	}
	name := c.store.origin.budgetFile()
	last, _ := shared.Read(name)
	err := exchange(shared, name, func(raw []byte) ([]byte, error) {
		if common, err := parseBudget(raw); err == nil {
			l.join(common)
		}
		l.mu.Lock()
		l.alone = false
		l.mu.Unlock()
		l.plan(c, unknown, perDay, reserve)
		return json.Marshal(c.next)
	})
	if err == nil {
		return nil
	}
	spent := 0
	today, _ := found.on(dateOf(l.clock()))
	if common, err := parseBudget(last); err == nil {
		common, _ = common.on(today.Day)
		spent = common.spent()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.alone {
		l.alone, l.common = true, spent
	}
	return err
}

// join adds what a medium knows.
func (l *Ledger) join(found budgetDays) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.turn(dateOf(l.clock())) // no process goes back to a date that has ended
	all, _ := l.days.join(found).on(l.days.Day)
	l.days = all
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
	store *Store
	uses  []lookup.Use
	next  budgetDays
	part  int  // searches of this process, with reservations
	more  bool // it reserves some
}

// plan says what to write, after what is on the media was joined.
func (l *Ledger) plan(c *budgetChange, unknown error, perDay int, reserve bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.clock()
	if unknown != nil {
		// Money first: anything up to the budget may be spent. An error costs at most
		// the confirmations of one day, and is reported.
		l.unknown = unknown
		l.days = l.days.atLeast(perDay)
	}
	c.part, c.more = l.own, false
	switch {
	case !reserve:
		l.covered = min(l.covered, l.own) // from now on they are not reserved
	case perDay > 0:
		granted := chunk(allowedOf(perDay, l.common, l.alone), l.spent())
		if l.spread {
			granted = min(granted, max(0, HourOf(perDay)-l.exact().Recent.sum(now)))
		}
		c.part, c.more = max(l.covered, l.own+granted), granted > 0
	}
	l.days = l.days.with(l.writer, c.part, l.hour.plus(c.part-l.own, now))
	l.days.Uses = lookup.JoinUses(l.days.Uses, c.uses)
	c.next = l.days
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
	if saved && c.store == l.store && c.next.Day == l.days.Day {
		l.unknown, l.covered = nil, c.part
	}
	if c.store == l.store && (!saved || !c.more) {
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
