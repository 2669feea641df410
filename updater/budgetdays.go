package updater

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

// Counts by date, as values without a lock, a file or a clock. Dates are compared as text:
// the form of dateOf sorts like the days do.

// budgetDays counts searches by local date. It is a value: its methods return a copy.
type budgetDays struct {
	Day   string         `json:"day"`   // the date that is counted now, see dateOf; "": none yet
	Spent map[string]int `json:"spent"` // searches on that date, and on at most maxDates-1 others

	Recent recent       `json:"recent,omitempty"` // of the last hour on the current date, with reservations
	Uses   []lookup.Use `json:"uses,omitempty"`   // of the last days
}

// maxDates is the number of dates that are remembered. More than one is needed only
// if the clock jumps.
const maxDates = 4

// dateOf returns the operator's date: budgets are for a day of local time.
func dateOf(now time.Time) string { return now.Local().Format(time.DateOnly) }

// on returns the count on another date. It is fresh, and starts at 0, if that date is
// later and was not counted before.
//
// Otherwise the clock was set back, or returns to a date that it has left. Then the
// higher count of the two dates applies: a router without a clock of its own starts in
// 1970 again and again, and must not get a new budget each time.
func (d budgetDays) on(date string) (next budgetDays, fresh bool) {
	next = budgetDays{Day: date, Spent: maps.Clone(d.Spent), Recent: d.Recent, Uses: d.Uses}
	if next.Spent == nil {
		next.Spent = make(map[string]int)
	}
	if date == d.Day {
		return next, false
	}
	known, counted := d.Spent[date]
	if fresh = date > d.Day && !counted; fresh {
		next.Recent = nil
		// A later date can only be a past mistake of the clock.
		maps.DeleteFunc(next.Spent, func(other string, _ int) bool { return other > date })
	} else {
		known = max(known, d.Spent[d.Day])
	}
	next.Spent[date] = known
	next.forget()
	return next, fresh
}

// forget forgets the earliest dates if there are too many.
func (d budgetDays) forget() {
	for _, date := range slices.Sorted(maps.Keys(d.Spent)) {
		if date != d.Day && len(d.Spent) > maxDates {
			delete(d.Spent, date)
		}
	}
}

// spent returns the searches of the current date.
func (d budgetDays) spent() int { return d.Spent[d.Day] }

// with returns the count with another number of searches on the current date.
func (d budgetDays) with(spent int) budgetDays {
	if d.Spent = maps.Clone(d.Spent); d.Spent == nil {
		d.Spent = make(map[string]int)
	}
	d.Spent[d.Day] = spent
	return d
}

// same reports whether both count the same. What has expired makes no difference.
func (d budgetDays) same(other budgetDays) bool {
	return d.Day == other.Day && maps.Equal(d.Spent, other.Spent) && slices.Equal(d.Uses, other.Uses)
}

// merged returns the higher count of both for each date, and the later current date. A
// count that is too high costs confirmations, one that is too low costs money.
func (d budgetDays) merged(other budgetDays) budgetDays {
	all := budgetDays{Day: max(d.Day, other.Day), Spent: make(map[string]int), Recent: d.Recent.merged(other.Recent), Uses: lookup.JoinUses(d.Uses, other.Uses)}
	maps.Copy(all.Spent, d.Spent)
	for date, n := range other.Spent {
		all.Spent[date] = max(all.Spent[date], n)
	}
	all.forget()
	return all
}

// parseBudget reads the content of the file. An operator may have edited it.
func parseBudget(raw []byte) (d budgetDays, err error) {
	if err := json.Unmarshal(raw, &d); err != nil {
		return budgetDays{}, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	if _, ok := d.Spent[d.Day]; !ok {
		return budgetDays{}, fmt.Errorf("%w: it does not say what was spent on the day %q", ErrDamaged, d.Day)
	}
	for at, n := range d.Recent { // what is no count of a slot holds nothing up
		if _, err := time.Parse(slotForm, at); err != nil || n < 0 {
			delete(d.Recent, at)
		}
	}
	d.Uses = slices.DeleteFunc(d.Uses, func(u lookup.Use) bool {
		_, err := time.Parse(time.DateOnly, u.Date)
		return err != nil || u.Clients < 0 || u.Kept < 0 || u.Refused < 0
	})
	for date, n := range d.Spent {
		if _, err := time.Parse(time.DateOnly, date); err != nil || n < 0 {
			return budgetDays{}, fmt.Errorf("%w: it says that %d searches were spent on the day %q", ErrDamaged, n, date)
		}
	}
	return d, nil
}

// NextDay returns when the next day begins for a budget, see Ledger.
func NextDay(now time.Time) time.Time { return midnightAfter(now.Local()) }

// midnightAfter returns when the next date begins at the place of now.
func midnightAfter(now time.Time) time.Time {
	year, month, day := now.Date()
	next := time.Date(year, month, day+1, 0, 0, 0, 0, now.Location())
	// Where the clock is set forward at midnight, that time does not exist, and Date
	// may return one before it.
	for next.Format(time.DateOnly) == now.Format(time.DateOnly) {
		next = next.Add(30 * time.Minute)
	}
	return next
}
