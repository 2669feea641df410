package updater

import (
	"cmp"
	"maps"
	"strings"
	"time"
)

// Copies of a clock are joined by pure functions, wherever they come from. "The later time wins" is
// wrong after a success, which ends a back-off. So a clock counts its attempts: each change of it
// is one more. Of two copies the one with the later attempt wins, and of the same attempt the
// stricter one. Only the time before which nothing may be sent is the later one of both: a request
// is begun when that has passed, so no success of it needs to make that earlier. What a success does
// make earlier is the back-off that was saved before its own request was sent. That is apart, as a
// note of its writer, which only the answer to that very request ends.

// asked is a clock with the requests that have been sent and may not be answered yet. The clock
// itself knows of requests that have ended only. It is a value, but for the map.
type asked struct {
	Clock
	Notes map[string]note `json:"notes,omitempty"` // by writer
	// Settled is the clock itself in a file, where the other fields count the notes, for versions
	// that do not know them.
	Settled *Clock `json:"settled,omitempty"`
}

// note is a request that one writer has sent. Until it is answered it counts as failed, so that a
// process that crashes on the answer backs off after its restart. It is a value.
type note struct {
	Number   uint64    `json:"number"`          // of the writer's requests
	Ended    bool      `json:"ended,omitempty"` // kept for a while: a copy may not know it
	Until    time.Time `json:"until"`           // no other request before
	Failures int       `json:"failures"`        // in a row, with this one
	Sent     time.Time `json:"sent"`
}

// join returns the later one of two copies of a note.
func (n note) join(other note) note {
	switch {
	case n.Number > other.Number, n.Number == other.Number && n.Ended && !other.Ended:
		return n
	case n.Number < other.Number, n.Ended != other.Ended:
		return other
	}
	return note{n.Number, n.Ended, latest(n.Until, other.Until), max(n.Failures, other.Failures), latest(n.Sent, other.Sent)}
}

// join returns what both copies know. It is commutative, associative and idempotent.
func (c Clock) join(other Clock) Clock {
	end, gone := latest(c.floor(), other.floor()), c.Away
	if cmp.Or(cmp.Compare(c.Attempt, other.Attempt), gone.compare(other.Away)) < 0 {
		gone = other.Away
	}
	switch order := c.compare(other); {
	case order < 0:
		c = other
	case order == 0:
		c.NotBefore = latest(c.NotBefore, other.NotBefore)
	}
	if c.Away = gone; c.Denied {
		c.NotBefore, c.Besides = latest(c.NotBefore, end), end
	} else {
		c.NotBefore = end
	}
	return c
}

// floor is the time before which nothing may be sent, whatever attempts come later. A denial is no
// part of it: it belongs to a token, which another process may have renewed.
func (c Clock) floor() time.Time {
	if c.Denied {
		return c.Besides
	}
	return c.NotBefore
}

// compare compares the attempts of two clocks, and then which one is stricter.
func (c Clock) compare(o Clock) int {
	return cmp.Or(cmp.Compare(c.Attempt, o.Attempt), cmp.Compare(c.Failures, o.Failures), cmp.Compare(c.Refusals, o.Refusals), cmp.Compare(c.Wait, o.Wait),
		c.Failed.Compare(o.Failed), cmp.Compare(c.FailedIn, o.FailedIn), compareBool(o.Denied, c.Denied), strings.Compare(c.Cause, o.Cause), compareBool(c.Asking, o.Asking))
}

// compare compares the ends of two waits for a server that cannot be reached.
func (a away) compare(o away) int {
	return cmp.Or(a.Until.Compare(o.Until), cmp.Compare(a.Tries, o.Tries), a.Tried.Compare(o.Tried), strings.Compare(a.Cause, o.Cause), compareBool(a.Reached, o.Reached))
}

// compareBool says that false comes before true.
func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

// join joins the clocks of a list. The last success is the later attempt's, not the later time: that may be by a
// clock that was ahead. Versions that do not count attempts have no other order.
func (c ListClock) join(other ListClock) ListClock {
	clock, updated := c.Clock.join(other.Clock), c.Updated
	if cmp.Or(cmp.Compare(c.Attempt, other.Attempt), updated.Compare(other.Updated)) < 0 {
		updated = other.Updated
	}
	if cmp.Or(c.Clock.compare(other.Clock), cmp.Compare(c.AtOnce, other.AtOnce), compareBool(c.Rejected, other.Rejected), compareBool(c.Alone, other.Alone)) < 0 {
		c = other
	}
	c.Clock, c.Updated = clock, updated
	return c
}

// join joins the clocks, and keeps the notes of both.
func (a asked) join(other asked) asked {
	return asked{Clock: a.Clock.join(other.Clock), Notes: joined(a.Notes, other.Notes, note.join)}
}

// join joins clock by clock.
func (c clockSet) join(other clockSet) clockSet {
	return clockSet{c.Fetch.join(other.Fetch), c.Search.join(other.Search), joined(c.Lists, other.Lists, ListClock.join)}
}

// join joins the clocks of each asker, for two states of one asker, see askedBy. What the
// server said comes from the later fetch.
func (s scheduleState) join(other scheduleState) scheduleState {
	advice := s.Advice
	if c := cmp.Or(cmp.Compare(s.Fetch.Attempt, other.Fetch.Attempt), strings.Compare(advice.Origin, other.Advice.Origin), strings.Compare(advice.Text, other.Advice.Text)); c < 0 {
		advice = other.Advice
	}
	return scheduleState{Asker: max(s.Asker, other.Asker), Token: max(s.Token, other.Token), Advice: advice,
		clockSet: s.clockSet.join(other.clockSet), Others: joined(s.Others, other.Others, clockSet.join)}
}

// joined returns the values of both maps; join those that are in both. It is never nil.
func joined[K comparable, V any](a, b map[K]V, join func(a, b V) V) map[K]V {
	all := copied(a)
	for k, v := range b {
		if own, both := all[k]; both {
			v = join(own, v)
		}
		all[k] = v
	}
	return all
}

// copied returns a copy of a map, which is never nil.
func copied[K comparable, V any](m map[K]V) map[K]V {
	all := make(map[K]V, len(m))
	maps.Copy(all, m)
	return all
}

// held is the clock as if the requests that are not answered had failed.
func (a asked) held() Clock {
	c := a.Clock
	for _, n := range a.Notes {
		if !n.Ended {
			c.NotBefore, c.Failures = latest(c.NotBefore, n.Until), max(c.Failures, n.Failures)
			c.Asking, c.Failed, c.Cause, c.Denied = true, latest(c.Failed, n.Sent), "", false
		}
	}
	return c
}

// apart is the clock without the note of a writer.
func (a asked) apart(writer string) asked {
	a.Notes = maps.Clone(a.Notes)
	delete(a.Notes, writer)
	return a
}

// noting is the clock with the request of that number that a writer sends at now, and with the notes
// of those that were never answered as failures.
func (a asked) noting(writer string, number uint64, now time.Time, backoff func(failures int) time.Duration) asked {
	a = a.settled(now, func(n note) bool { return !n.Until.After(now) })
	a.Notes[writer] = note{Number: number, Until: now.Add(backoff(a.Failures + 1)), Failures: a.Failures + 1, Sent: now}
	return a
}

// settled is the clock with the notes that which accepts as failures, and without those
// that make no difference any more.
func (a asked) settled(now time.Time, which func(note) bool) asked {
	held := a.Clock
	a.Notes = copied(a.Notes)
	for writer, n := range a.Notes {
		switch {
		case !n.Ended && which(n):
			held.NotBefore, held.Failures = latest(held.NotBefore, n.Until), max(held.Failures, n.Failures)
			held.Failed, held.Cause = latest(held.Failed, n.Sent), "the process ended before the answer came"
			n.Ended = true
			a.Notes[writer] = n
		case n.Ended && n.Until.Add(maxBackoff).Before(now):
			delete(a.Notes, writer)
		}
	}
	a.Clock = held.after(a.Clock, now)
	return a
}

// answered is the clock without the request of that number of a writer, and whether nobody has
// counted that as a failure.
func (a asked) answered(writer string, number uint64) (_ asked, noted bool) {
	n := a.Notes[writer]
	if noted = n.Number == number && number > 0 && !n.Ended; noted {
		n.Ended = true
		a.Notes = maps.Clone(a.Notes)
		a.Notes[writer] = n
	}
	return a, noted
}

// after is the clock after a change at now of the one before. A time that has not passed does not
// become earlier, unless it belonged to a token that the server has denied.
func (c Clock) after(before Clock, now time.Time) Clock {
	if c == before {
		return c
	}
	c.Besides = time.Time{}
	if floor := before.floor(); floor.After(now) {
		c.NotBefore = latest(c.NotBefore, floor)
		if c.Denied {
			c.Besides = floor
		}
	}
	if unsent := c; c.Away.Tries > 0 { // a try that is not sent is no attempt
		if unsent.Away = before.Away; unsent == before {
			return c
		}
	}
	c.Attempt = before.Attempt + 1
	if c.FailedIn = before.FailedIn; c.Failures > before.Failures || c.Failures > 0 && !c.Failed.Equal(before.Failed) {
		c.FailedIn = c.Attempt
	}
	return c
}

// stored is the clock as it is in a file.
func (a asked) stored() asked {
	if held := a.held(); held.Asking {
		settled := a.Clock
		a.Settled, a.Clock = &settled, held
	}
	return a
}

// restored is the clock from a file. Versions without notes counted a request that was under way in
// the clock itself: it may have failed.
func (a asked) restored() asked {
	if a.Settled != nil {
		a.Clock, a.Settled = *a.Settled, nil
	}
	return a
}

// lacks reports whether a state that was read does not have clocks of fetches that another one has.
func (s scheduleState) lacks(of scheduleState) bool {
	for name, list := range of.Lists {
		if s.Lists[name].Clock.lacks(list.Clock) {
			return true
		}
	}
	return s.Fetch.lacks(of.Fetch)
}

// lacks reports whether a clock that was read is older than another one, or does not have notes
// that this has.
func (a asked) lacks(of asked) bool {
	for writer, n := range of.Notes {
		if own := a.Notes[writer]; own.Number < n.Number || own.Number == n.Number && !own.Ended && n.Ended {
			return true
		}
	}
	return a.Clock.lacks(of.Clock)
}

// lacks reports whether a clock that was read is older than another one. Times that were read are a
// little later than they were written.
func (c Clock) lacks(of Clock) bool {
	return c.Attempt < of.Attempt || c.NotBefore.Add(2*shareSlack).Before(of.NotBefore)
}
