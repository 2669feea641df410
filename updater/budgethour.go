package updater

import (
	"maps"
	"slices"
	"time"
)

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
// slots that have expired, and those of the future, which a clock that was ahead has left.
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
	for _, at := range slices.Backward(slices.Sorted(maps.Keys(kept))) { // those that are taken back are of a moment ago
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
