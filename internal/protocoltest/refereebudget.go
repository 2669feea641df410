package protocoltest

import "time"

// ruleBudget begins violations of the budget. It is the operator's, not Google's,
// which bills every search of Web Risk.
const ruleBudget = "budget of searches"

// budget is how many searches the client may send a day. The zero budget has no limit.
type budget struct {
	limit int
	start time.Time // of some day
	day   int64     // that the last search was sent in, counted from start
	spent int       // searches of that day
}

// SetBudget makes the referee judge the number of searches of a day, of any protocol
// and with any outcome: more than n are reported. A day has 24 hours; one begins at
// dayStart. With n below 1, as at the start, there is no limit. What was sent before
// does not count.
func (s *Server) SetBudget(n int, dayStart time.Time) {
	s.locked(func() { s.referee.budget = budget{limit: n, start: dayStart} })
}

// judgeBudget counts a search and judges whether the day had one left.
func (r *referee) judgeBudget(now time.Time) {
	b := &r.budget
	if b.limit < 1 {
		return
	}
	if day := b.dayOf(now); day != b.day {
		b.day, b.spent = day, 0
	}
	b.spent++
	if b.spent > b.limit {
		next := b.start.Add(time.Duration(b.day+1) * 24 * time.Hour)
		r.violation(ruleBudget, "search %d of a day that has %d, %s", b.spent, b.limit, tooEarly(now, next))
	}
}

// dayOf returns the number of the day that a time is in, negative before start.
func (b *budget) dayOf(t time.Time) int64 {
	since := t.Sub(b.start)
	day := int64(since / (24 * time.Hour))
	if since < 0 && since%(24*time.Hour) != 0 {
		day--
	}
	return day
}
