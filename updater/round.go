package updater

import (
	"bytes"
	"context"
	"fmt"
	"runtime/debug"
	"slices"
	"strings"
	"time"
)

// update does one round: it fetches all lists that are due, in one request but for
// those that must be asked for by themselves.
func (u *Updater) update(ctx context.Context) {
	waiting := u.cfg.Schedule.dueNow(u.cfg.Lists, time.Now())
	for len(waiting) > 0 {
		names := u.cfg.Schedule.together(waiting)
		if !u.request(ctx, names) {
			return
		}
		waiting = slices.DeleteFunc(waiting, func(name string) bool { return slices.Contains(names, name) })
		waiting = u.cfg.Schedule.dueNow(waiting, time.Now()) // an answer may ask that nothing is fetched for a while
	}
}

// request fetches lists in one request, applies, saves and publishes what came, sets
// the schedule, and reports. It returns whether other lists may be asked for now.
func (u *Updater) request(ctx context.Context, names []string) bool {
	begun := time.Now()
	attempt, err := u.cfg.Schedule.begin(names, begun)
	u.reportSave("", err)
	results, wait, err := u.fetch(ctx, names)
	now := time.Now()
	refused := err != nil && len(names) == 1 && refusesLists(err)
	switch {
	case err == nil:
		u.accept(results)
		u.reportSave("", attempt.answered(now, wait, clocks(results, now, u.cfg.Schedule)))
	case ctx.Err() != nil: // shutting down, which is no failure
		u.reportSave("", attempt.cancelled(names, now))
		return false
	case refused:
		u.reportSave("", attempt.refused(names[0], now, max(wait, retryAfter(err)), u.doubtful(names, err), err))
	default:
		u.reportSave("", attempt.failed(now, max(wait, retryAfter(err)), u.doubtful(names, err), names, err))
	}
	u.told(names, results, refused, Event{Err: err, Took: now.Sub(begun)})
	u.tellLongWaits(names, results, wait)
	return err == nil || refused
}

// told reports what became of a request; e has its error and how long it took.
func (u *Updater) told(names []string, results []result, refused bool, e Event) {
	if refused {
		refusal := u.event(ListRefused, names[0], e.Err)
		refusal.Took = e.Took
		u.cfg.Report(refusal)
		return
	}
	e.Kind, e.List, e.Due = Fetched, strings.Join(names, ", "), u.cfg.Schedule.due(u.cfg.Lists)
	u.cfg.Report(e)
	for _, r := range results {
		u.report(r.kind, r.list.Name, r.err)
	}
	if e.Err != nil {
		for _, name := range names {
			u.report(ListWaiting, name, nil)
		}
	}
}

// tellLongWaits reports minimum waits that are longer than any back-off: they are
// obeyed, but are probably a mistake. Wait is that for all lists.
func (u *Updater) tellLongWaits(names []string, results []result, wait time.Duration) {
	if wait > maxBackoff {
		u.cfg.Report(Event{Kind: LongWait, List: strings.Join(names, ", "), Wait: wait, Due: u.cfg.Schedule.due(names)})
		return
	}
	for _, r := range results {
		if r.wait > maxBackoff {
			e := u.event(LongWait, r.list.Name, nil)
			e.Wait = r.wait
			u.cfg.Report(e)
		}
	}
}

// saved reports whether something could be saved. If not that is no reason to
// stop: what is in memory is in force.
func (u *Updater) reportSave(name string, err error) {
	switch {
	case err != nil:
		u.cfg.Report(Event{Kind: StoreFailed, List: name, Err: err})
	case u.cfg.Store != nil:
		u.cfg.Report(Event{Kind: Stored, List: name})
	}
}

// fetch asks the Source, within the time-out, and applies the update of each list
// as it comes. Nothing is in force yet. A Source that panics has failed: it must
// not take the name server down.
func (u *Updater) fetch(ctx context.Context, names []string) (results []result, wait time.Duration, err error) {
	defer catch(&err)
	ctx, cancel := context.WithTimeout(ctx, u.cfg.Timeout)
	defer cancel()
	wanted := make([]Want, 0, len(names))
	for _, name := range names {
		wanted = append(wanted, Want{List: name, Version: u.base(name).Version})
	}
	results = make([]result, len(names))
	updates := make([]*Update, len(names))
	wait, err = u.cfg.Source.Fetch(ctx, wanted, func(i int, update *Update) { results[i], updates[i] = u.apply(names[i], update), update })
	if err != nil {
		return nil, wait, err
	}
	for i := range results {
		r := &results[i]
		if r.list.Name == "" {
			return nil, wait, fmt.Errorf("%w: nothing is said of list %s", ErrMalformed, names[i])
		}
		r.wait = max(updates[i].MinimumWait, wait) // of an update that was refused early it has come after that
	}
	return results, wait, nil
}

// base returns what an update of the list may build upon: what is held, unless
// the last update failed its checks or the server knows nothing of it. Then nothing is, so that a full update is
// asked for and nothing else is taken.
func (u *Updater) base(name string) List {
	if l := u.lists[name]; !l.startsAnew() && !u.cfg.Schedule.list(name).Rejected {
		return l
	}
	return List{Name: name}
}

func catch(err *error) {
	if r := recover(); r != nil {
		*err = fmt.Errorf("panic: %v", r)
	}
}

// result is what became of one list of an answer.
type result struct {
	list List // the new content; of a ListRejected only the name
	kind Kind
	wait time.Duration // minimum wait that the server gave; 0: none
	err  error         // of ListRejected
}

// apply applies an update to its list.
func (u *Updater) apply(name string, update *Update) result {
	l, changed, err := applyCaught(u.base(name), update, u.cfg.MaxEntries)
	r := result{list: l, kind: ListUnchanged}
	switch {
	case err != nil:
		r.list, r.kind, r.err = List{Name: name}, ListRejected, err
	case changed:
		r.kind = ListUpdated
	}
	return r
}

// accept saves and publishes the lists of an answer. A list that is rejected
// stays as it was and does not keep the others back.
func (u *Updater) accept(results []result) {
	replaced := 0
	for _, r := range results {
		name := r.list.Name
		before := u.lists[name]
		if r.kind == ListUpdated && before.held() {
			replaced += before.Set.Bytes()
		}
		if r.kind != ListRejected {
			u.lists[name] = r.list
			// Of a list that is unchanged the version may be new: the server may
			// not know the old one any more after a restart.
			if r.kind == ListUpdated || before.TakenOver || !bytes.Equal(before.Version, r.list.Version) {
				u.reportSave(name, u.save(r.list))
			}
		}
		u.cfg.Schedule.hand.remember(u.lists[name])
	}
	u.publish()
	if replaced >= manyBytesOfLists {
		debug.FreeOSMemory()
	}
}

// manyBytesOfLists is from how many bytes of lists, that are not in force any more
// or have just been read, memory is given back at once, for the next update needs as
// much. The collector would not hurry: the lists are not in its heap.
const manyBytesOfLists = 1 << 20

func applyCaught(old List, update *Update, maxEntries int) (l List, changed bool, err error) {
	defer catch(&err)
	return Apply(old, update, maxEntries)
}

func (u *Updater) save(l List) error {
	if u.cfg.Store == nil {
		return nil
	}
	return u.cfg.Store.SaveList(l)
}

// clocks returns the new clock of each list of an answer that came at now.
func clocks(results []result, now time.Time, schedule *Schedule) map[string]ListClock {
	all := make(map[string]ListClock, len(results))
	for _, r := range results {
		clock := schedule.list(r.list.Name)
		if r.kind == ListRejected {
			all[r.list.Name] = clock.rejected(now, r.wait, schedule.random(), r.err)
		} else {
			all[r.list.Name] = clock.next(now, r.wait, r.kind == ListUpdated)
		}
	}
	return all
}
