package updater

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime/debug"
	"strings"
	"time"
)

// update fetches all lists that are due in one request, applies, saves and
// publishes what came, sets the schedule, and reports.
func (u *Updater) update(ctx context.Context) {
	begun := time.Now()
	due := u.cfg.Schedule.dueNow(u.cfg.Lists, begun)
	if len(due) == 0 {
		return
	}
	attempt, err := u.cfg.Schedule.begin(due, begun)
	u.saved("", err)
	results, wait, err := u.fetch(ctx, due)
	now := time.Now()
	if err != nil && ctx.Err() != nil { // shutting down, which is no failure
		u.saved("", attempt.cancelled(due, now))
		return
	}
	if err != nil {
		u.saved("", attempt.failed(now, max(wait, retryAfter(err)), u.doubtful(due, err), err))
	} else {
		u.accept(results)
		u.saved("", attempt.answered(now, wait, clocks(results, now, u.cfg.Schedule)))
	}
	u.cfg.Report(Event{Kind: Fetched, List: strings.Join(due, ", "), Err: err, Took: now.Sub(begun), Due: u.cfg.Schedule.due(u.cfg.Lists)})
	if err != nil {
		for _, name := range due {
			u.report(ListWaiting, name, nil)
		}
		return
	}
	for _, r := range results {
		u.report(r.kind, r.list.Name, r.err)
	}
}

// saved reports whether something could be saved. If not that is no reason to
// stop: what is in memory is in force.
func (u *Updater) saved(name string, err error) {
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

// doubtful returns those of the lists whose versions may be why a server refused a
// request: it may not know those of its predecessor. They are asked for in full.
func (u *Updater) doubtful(names []string, err error) (lists []string) {
	status, ok := errors.AsType[*StatusError](err)
	if !ok || status.Code != http.StatusBadRequest {
		return nil
	}
	for _, name := range names {
		if u.base(name).TakenOver {
			lists = append(lists, name)
		}
	}
	return lists
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
				u.saved(name, u.save(r.list))
			}
		}
		u.cfg.Schedule.remember(u.lists[name])
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
