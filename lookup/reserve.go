package lookup

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// How much of a budget is reserved for others, as values without a clock or a lock.

// Budget is what is left of a budget of searches at a time. It is a value.
type Budget struct {
	Day, Left int // searches a day, and those of them that are left
	Hour, Now int // searches of an hour at most, and those of them that may be sent now, at most Left
}

// Least returns the lower numbers of both.
func (b Budget) Least(other Budget) Budget {
	return Budget{min(b.Day, other.Day), min(b.Left, other.Left), min(b.Hour, other.Hour), min(b.Now, other.Now)}
}

// Stale returns the budget once what is left is known no more: one search may be made, to learn it.
func (b Budget) Stale() Budget { return Budget{b.Day, 2 * b.Day, b.Hour, b.forLater() + 1} }

// forLater returns the searches of an hour that are for those who come later in it.
func (b Budget) forLater() int {
	if b.Hour >= b.Day {
		return 0
	}
	return max(1, b.Hour/hourlyPart)
}

// share returns the searches of a day that are a client's own, at least 1.
func (b Budget) share(percent int) int { return max(1, percentOf(b.Day, percent)) }

// any reports whether a search is left.
func (b Budget) any() bool { return b.Left > 0 && b.Now > 0 }

// percentOf returns a percentage of n, rounded down. On 32 bits the product needs 64.
func percentOf(n, percent int) int { return int(int64(n) * int64(percent) / 100) }

// Use is what the clients used of a budget on one day. It names no client.
type Use struct {
	Date    string `json:"date"`              // of local time
	Clients int    `json:"clients"`           // that caused a search
	Kept    int    `json:"kept"`              // their searches, of each client no more than its share
	Refused int    `json:"refused,omitempty"` // clients that were refused one more, because it is kept for others
}

const (
	maxUses    = 7 // days that are remembered
	hourlyPart = 5 // an hour has one search of so many for those who come later in it
)

// JoinUses returns the last days of both, the earliest first: of the same date the higher numbers.
func JoinUses(a, b []Use) []Use {
	days := make(map[string]Use)
	for _, u := range slices.Concat(a, b) {
		other := days[u.Date]
		days[u.Date] = Use{u.Date, max(u.Clients, other.Clients), max(u.Kept, other.Kept), max(u.Refused, other.Refused)}
	}
	var all []Use
	for _, u := range days {
		all = append(all, u)
	}
	slices.SortFunc(all, func(a, b Use) int { return cmp.Compare(a.Date, b.Date) })
	return all[max(0, len(all)-maxUses):]
}

// asker is what is known of a client that asks for one search more.
type asker struct {
	own   int  // searches that it has taken on the date of now
	usual int  // the most of its own share that it took on one of the last days
	new   bool // usual is not known: the process has not lived through a day
}

// reservedFor returns how many of the searches that are left are for the others of a client. A
// client needs its share at most: more is nobody's own. It is a pure function.
//
// The others need what all used on the busiest of the last days, without what the client itself
// used, less what they have had today. So a lone client, as a forwarder is, leaves nothing to
// nobody. Where the last days are not known, each client that was seen today needs its share, and
// so does one that may still come: less the later in the day.
func reservedFor(b Budget, percent int, past []Use, today Use, a asker, now time.Time) int {
	share := b.share(percent)
	had := max(0, today.Kept-min(a.own, share))
	date, since := dateOf(now), dateOf(now.AddDate(0, 0, -maxUses))
	need, known, others := 0, false, today.Clients
	if a.own > 0 {
		others--
	}
	for _, u := range past {
		if u.Clients <= 0 || u.Date < since || u.Date > date { // a later date is a past mistake of the clock
			continue
		}
		known = known || u.Date < date
		if a.new && u.Clients == 1 && others == 0 { // it is that client, as far as one can know
			continue
		}
		need = max(need, u.Kept-a.usual)
	}
	if known {
		return max(0, need-had)
	}
	local := now.Local()
	passed := time.Duration(local.Hour())*time.Hour + time.Duration(local.Minute())*time.Minute
	rest := float64(max(0, (others+1)*share-had)) * (1 - passed.Hours()/24)
	return max(int(math.Ceil(rest)), need-had)
}
