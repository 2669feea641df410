package updater

import (
	"context"
	"errors"
	"slices"
	"time"
)

// Requests that were not sent, see NotSentError. They are no failures of the server and leave its
// rules as they are: NotBefore, Failures and the rest of a Clock. They have a wait of their own,
// which is short and only ever comes on top.

// away is how often in a row, and until when, a server that could not be reached is left alone. It
// is a value. The zero away is a server that can be reached. The JSON names are part of the format
// of the schedule; a version that does not know them asks when the rules of the server allow it.
type away struct {
	Tries   int       `json:"tries,omitzero"`
	Until   time.Time `json:"until,omitzero"` // no try before
	Tried   time.Time `json:"tried,omitzero"` // last
	Cause   string    `json:"cause,omitempty"`
	Reached bool      `json:"reached,omitempty"` // see NotSentError
}

const (
	awayUnit   = 15 * time.Second
	maxAway    = 5 * time.Minute
	cappedAway = 5 // 2^5 × 15 s is 8 min
)

// awayWait returns how long to wait after tries in a row that were not sent, at least one: 15
// seconds, 30, and so on, and up to a quarter more, to at most 5 minutes. r is uniform in [0, 1).
func awayWait(tries int, r float64) time.Duration {
	wait := awayUnit << min(max(tries, 1)-1, cappedAway)
	return min(wait+time.Duration(float64(wait)*r/4), maxAway)
}

// notSent is the clock after one more try at now that was not sent.
func (c Clock) notSent(now time.Time, r float64, err error) Clock {
	tries := c.Away.Tries + 1
	c.Away = away{Tries: tries, Until: now.Add(awayWait(tries, r)), Tried: now, Cause: causeOf(err)}
	if e, ok := errors.AsType[*NotSentError](err); ok {
		c.Away.Reached = e.Reached
	}
	return c
}

// end returns when something may be asked for again.
func (c Clock) end() time.Time { return latest(c.NotBefore, c.Away.Until) }

// hold returns a as a Hold.
func (a away) hold() Hold {
	return Hold{Until: a.Until, Failures: a.Tries, Unsent: true, Cause: a.Cause, Failed: a.Tried}
}

// isNotSent reports whether a request was not sent.
func isNotSent(err error) bool {
	_, ok := errors.AsType[*NotSentError](err)
	return ok
}

// seekEvery is how often a server is looked for whose answer is waited for: a look is a connection,
// without a request. A quarter at most is taken off.
const seekEvery = 15 * time.Second

// seekTimeout bounds a look.
const seekTimeout = 10 * time.Second

// seeks reports whether only the absence of the server keeps something from being asked for at now, so
// that a look may end the wait. Where a machine took the connection, a look tells nothing.
func (c Clock) seeks(now time.Time) bool {
	return c.Away.Until.After(now) && !c.Away.Reached && !c.NotBefore.After(now)
}

// seeks reports whether that holds for one of the lists.
func (s *Schedule) seeks(lists []string, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state.Fetch.held().seeks(now) && slices.ContainsFunc(lists, func(name string) bool { return !s.state.Lists[name].NotBefore.After(now) })
}

// wasAway reports whether the last try to fetch lists was not sent.
func (s *Schedule) wasAway() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state.Fetch.Away.Tries > 0
}

// await sleeps until the first of the lists is due, but not before contact. While no list is in
// force it looks for a server that could not be reached: names are not protected until then.
func (u *Updater) await(ctx context.Context, contact time.Time) (woke bool, err error) {
	for {
		due := latest(u.cfg.Schedule.due(u.cfg.Lists), contact)
		look := due
		if now := time.Now(); u.mayLook() && u.cfg.Schedule.seeks(u.cfg.Lists, now) {
			soon := seekEvery - time.Duration(u.cfg.Schedule.random()*float64(seekEvery/4))
			if at := latest(now.Add(soon), contact); at.Before(due) {
				look = at
			}
		}
		woke, err := u.sleepUntil(ctx, look)
		if woke || err != nil || !look.Before(due) {
			return woke, err
		}
		u.look(ctx)
	}
}

// look ends the wait for a server that can be reached now.
func (u *Updater) look(ctx context.Context) {
	if u.reacher != nil && u.reach(ctx) == nil {
		u.reportSave("", u.cfg.Schedule.change(func(state *scheduleState) { state.Fetch.Away = away{} }))
	}
}

// mayLook reports whether no list is in force, and the Source can look for its server.
func (u *Updater) mayLook() bool { return u.reacher != nil && len(u.inForce()) == 0 }

// reach returns an error if the server cannot be reached. A Source that cannot tell is asked.
func (u *Updater) reach(ctx context.Context) (err error) {
	if u.reacher == nil {
		return nil
	}
	defer catch(&err)
	ctx, cancel := context.WithTimeout(ctx, seekTimeout)
	defer cancel()
	return u.reacher.Reach(ctx)
}

// unreached reports whether the server cannot be reached, before a fetch is saved as failed: a
// process that dies while it looks for a connection has sent nothing. It looks only if there is
// doubt, since a fetch makes a connection of its own.
func (u *Updater) unreached(ctx context.Context, names []string, begun time.Time) bool {
	if !u.cfg.Schedule.wasAway() && !u.mayLook() {
		return false
	}
	err := u.reach(ctx)
	if err == nil {
		return false
	}
	if ctx.Err() != nil {
		return true
	}
	now, s := time.Now(), u.cfg.Schedule
	u.reportSave("", s.change(func(state *scheduleState) {
		state.Fetch.Clock = state.Fetch.notSent(now, s.random(), err)
		state.change(names, func(*ListClock) {})
	}))
	u.reportRequest(names, nil, false, Event{Err: err, Took: now.Sub(begun)})
	return true
}
