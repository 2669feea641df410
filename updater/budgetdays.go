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
//
// Each writer has a part of its own, which nobody else changes. So two copies that were written
// apart are joined without losing a search of either, or counting one twice. What no part explains
// comes from an earlier version, or an operator wrote it.
type budgetDays struct {
	Day   string         `json:"day"`   // the date that is counted now, see dateOf; "": none yet
	Spent map[string]int `json:"spent"` // searches on that date, and on at most maxDates-1 others

	Recent recent                     `json:"recent,omitempty"` // of the last hour on the current date, with reservations
	Uses   []lookup.Use               `json:"uses,omitempty"`   // of the last days
	Parts  map[string]map[string]part `json:"parts,omitempty"`  // of Spent and Recent, by date and writer
}

// part is what one writer has spent or reserved on a date. It is a value.
type part struct {
	Change uint64 `json:"change"` // grows with each change by the writer
	Spent  int    `json:"spent"`
	Hour   recent `json:"hour,omitempty"`
}

// join returns the later one of two copies of a part.
func (p part) join(other part) part {
	switch {
	case p.Change > other.Change:
		return p
	case p.Change < other.Change:
		return other
	}
	return part{p.Change, max(p.Spent, other.Spent), p.Hour.merged(other.Hour)}
}

// maxDates is the number of dates that are remembered. More than one is needed only
// if the clock jumps.
const maxDates = 4

// dateOf returns the operator's date: budgets are for a day of local time.
func dateOf(now time.Time) string { return now.Local().Format(time.DateOnly) }

// on returns the count on another date. It is fresh, and starts with what others have spent, if that date is
// later and was not counted before.
//
// Where days begin apart, as on machines in two time zones, others count the next date already. It is fresh for a
// writer who was not there before: what belongs to the date of before is not carried into it. No writer, "", is on
// one machine only.
//
// Otherwise the clock was set back, or returns to a date that it has left. Then the
// higher count of the two dates applies: a router without a clock of its own starts in
// 1970 again and again, and must not get a new budget each time.
func (d budgetDays) on(date, writer string) (next budgetDays, fresh bool) {
	next = budgetDays{Day: date, Spent: copied(d.Spent), Recent: d.Recent, Uses: d.Uses, Parts: copied(d.Parts)}
	if date == d.Day {
		next.forget()
		return next, false
	}
	known, counted := d.Spent[date]
	if day, err := time.Parse(time.DateOnly, d.Day); writer != "" && err == nil && day.AddDate(0, 0, 1).Format(time.DateOnly) == date {
		_, counted = d.Parts[date][writer]
	}
	if fresh = date > d.Day && !counted; fresh {
		next.Recent = nil
		// A later date can only be a past mistake of the clock.
		maps.DeleteFunc(next.Spent, func(other string, _ int) bool { return other > date })
		maps.DeleteFunc(next.Parts, func(other string, _ map[string]part) bool { return other > date })
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
			delete(d.Parts, date)
		}
	}
}

// spent returns the searches of the current date.
func (d budgetDays) spent() int { return d.Spent[d.Day] }

// part returns the part of a writer on the current date.
func (d budgetDays) part(writer string) part { return d.Parts[d.Day][writer] }

// with returns the count with another part of a writer on the current date, as its next change. A
// part of the same size stays.
func (d budgetDays) with(writer string, spent int, hour recent) budgetDays {
	before := d.part(writer)
	if before.Spent == spent {
		return d
	}
	d.Spent, d.Parts = copied(d.Spent), copied(d.Parts)
	d.Parts[d.Day] = copied(d.Parts[d.Day])
	d.Parts[d.Day][writer] = part{before.Change + 1, spent, maps.Clone(hour)}
	d.Spent[d.Day] += spent - before.Spent
	d.Recent = d.Recent.less(before.Hour).and(hour)
	return d
}

// same reports whether both count the same. What has expired makes no difference.
func (d budgetDays) same(other budgetDays) bool {
	return d.Day == other.Day && maps.Equal(d.Spent, other.Spent) && slices.Equal(d.Uses, other.Uses) &&
		maps.EqualFunc(d.Parts, other.Parts, func(a, b map[string]part) bool {
			return maps.EqualFunc(a, b, func(a, b part) bool { return a.Change == b.Change && a.Spent == b.Spent })
		})
}

// join returns what both copies know: the later part of each writer, the higher count of what no
// part explains, and the later current date. It is commutative, associative and idempotent. A
// count that is too high costs confirmations, one that is too low costs money.
func (d budgetDays) join(other budgetDays) budgetDays {
	all := budgetDays{Day: max(d.Day, other.Day), Spent: make(map[string]int), Uses: lookup.JoinUses(d.Uses, other.Uses),
		Parts: joined(d.Parts, other.Parts, func(a, b map[string]part) map[string]part { return joined(a, b, part.join) })}
	for date := range joined(d.Spent, other.Spent, func(a, b int) int { return max(a, b) }) {
		spent, hour := max(d.rest(date), other.rest(date)), recent(nil)
		for _, p := range all.Parts[date] {
			spent, hour = spent+p.Spent, hour.and(p.Hour)
		}
		all.Spent[date] = spent
		if date == all.Day {
			all.Recent = d.restHour(date).merged(other.restHour(date)).and(hour)
		}
	}
	return all
}

// rest returns the searches of a date that no part explains.
func (d budgetDays) rest(date string) int {
	n := d.Spent[date]
	for _, p := range d.Parts[date] {
		n -= p.Spent
	}
	return max(0, n)
}

// restHour returns the searches of the last hour that no part explains, if date is the current one.
func (d budgetDays) restHour(date string) (left recent) {
	if date == d.Day {
		left = d.Recent
	}
	for _, p := range d.Parts[d.Day] {
		left = left.less(p.Hour)
	}
	return left
}

// parseBudget reads the content of the file. An operator may have edited it.
func parseBudget(raw []byte) (d budgetDays, err error) {
	if err := json.Unmarshal(raw, &d); err != nil {
		return budgetDays{}, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	if _, ok := d.Spent[d.Day]; !ok {
		return budgetDays{}, fmt.Errorf("%w: it does not say what was spent on the day %q", ErrDamaged, d.Day)
	}
	d.Recent.sane()
	maps.DeleteFunc(d.Parts, func(date string, parts map[string]part) bool {
		sum := 0
		for _, p := range parts {
			sum += max(0, p.Spent)
			p.Hour.sane()
		}
		maps.DeleteFunc(parts, func(_ string, p part) bool { return p.Spent < 0 })
		return sum > d.Spent[date] // an operator wants fewer, or this is no date
	})
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

// A budget lasts for a day: no hour takes more than HourOf it. So a client that asks for names
// that collide cannot spend in seconds what the others need until midnight.

// HourOf returns the most searches of one hour for a budget of perDay searches a day: a quarter,
// rounded up, but at least 20, which cost one US-$, and at most perDay.
func HourOf(perDay int) int { return min(perDay, max(leastHour, perDay/4+min(1, perDay%4))) }

const (
	leastHour = 20
	slot      = 5 * time.Minute // searches are counted by slot
	slotForm  = "2006-01-02T15:04Z"
)

// recent counts the searches of the last hour by the begin of their slot, in UTC and slotForm. It
// is a value: its methods return a copy. A slot counts for an hour after its end, so whatever the
// hour, no more than all slots together were spent in it.
type recent map[string]int

// slotOf returns the begin of the slot of a time.
func slotOf(now time.Time) string { return now.UTC().Truncate(slot).Format(slotForm) }

// plus returns the counts with n more searches at now, or with fewer if n is negative. It forgets
// slots that have expired, and future slots, which a clock that was ahead has left.
func (r recent) plus(n int, now time.Time) recent {
	kept := maps.Clone(r)
	maps.DeleteFunc(kept, func(at string, _ int) bool { return !counts(at, now) })
	if kept == nil {
		kept = make(recent)
	}
	if n > 0 {
		kept[slotOf(now)] += n
		return kept
	}
	for _, at := range slices.Backward(slices.Sorted(maps.Keys(kept))) { // those that are taken back are from a moment ago
		back := min(kept[at], -n)
		kept[at], n = kept[at]-back, n+back
	}
	maps.DeleteFunc(kept, func(_ string, n int) bool { return n == 0 })
	return kept
}

// counts reports whether the slot that begins at the text counts at now.
func counts(at string, now time.Time) bool {
	begin, err := time.Parse(slotForm, at)
	return err == nil && begin.Add(slot+time.Hour).After(now) && !begin.After(now)
}

// sum returns the searches of the last hour.
func (r recent) sum(now time.Time) (n int) {
	for at, of := range r {
		if counts(at, now) {
			n += of
		}
	}
	return n
}

// frees returns when fewer than limit searches, which is more than 0, count. That is now if they do already.
func (r recent) frees(limit int, now time.Time) time.Time {
	n, at := r.sum(now), now
	for _, begin := range slices.Sorted(maps.Keys(r)) {
		if n < limit {
			break
		}
		if counts(begin, now) {
			t, _ := time.Parse(slotForm, begin)
			n, at = n-r[begin], t.Add(slot+time.Hour)
		}
	}
	return at
}

// merged returns the higher count of both for each slot.
func (r recent) merged(other recent) recent {
	return r.combined(other, func(a, b int) int { return max(a, b) })
}

// and returns the sum of both for each slot.
func (r recent) and(other recent) recent {
	return r.combined(other, func(a, b int) int { return a + b })
}

// less returns what is left of each slot without other.
func (r recent) less(other recent) recent {
	return r.combined(other, func(a, b int) int { return max(0, a-b) })
}

// combined applies f to both counts of each slot.
func (r recent) combined(other recent, f func(a, b int) int) recent {
	all := make(recent)
	for at, n := range r {
		all[at] = f(n, other[at])
	}
	for at, n := range other {
		all[at] = f(r[at], n)
	}
	maps.DeleteFunc(all, func(_ string, n int) bool { return n == 0 })
	return all
}

// sane removes what is no count of a slot.
func (r recent) sane() {
	maps.DeleteFunc(r, func(at string, n int) bool {
		_, err := time.Parse(slotForm, at)
		return err != nil || n <= 0
	})
}
