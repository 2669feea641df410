package updater

import (
	"context"
	"fmt"
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
	updates, err := u.fetch(ctx, due)
	now := time.Now()
	if err != nil && ctx.Err() != nil { // shutting down, which is no failure
		u.saved("", attempt.cancelled(due, now))
		return
	}
	var results []result
	if err != nil {
		u.saved("", attempt.failed(now, retryAfter(err)))
	} else {
		results = u.apply(due, updates)
		u.saved("", attempt.answered(clocks(results, now, u.cfg.Schedule)))
	}
	u.cfg.Report(Event{Kind: Fetched, List: strings.Join(due, ", "), Err: err, Took: now.Sub(begun), Due: u.cfg.Schedule.due(u.cfg.Lists)})
	for _, r := range results {
		u.report(r.kind, r.name, r.err)
	}
	if err != nil {
		for _, name := range due {
			u.report(ListWaiting, name, nil)
		}
	}
}

// saved reports that something could not be saved. That is no reason to stop:
// what is in memory is in force.
func (u *Updater) saved(name string, err error) {
	if err != nil {
		u.cfg.Report(Event{Kind: StoreFailed, List: name, Err: err})
	}
}

// fetch asks the Source, within the time-out. A Source that panics has failed:
// it must not take the name server down.
func (u *Updater) fetch(ctx context.Context, names []string) (updates []Update, err error) {
	defer catch(&err)
	ctx, cancel := context.WithTimeout(ctx, u.cfg.Timeout)
	defer cancel()
	wanted := make([]Want, 0, len(names))
	for _, name := range names {
		wanted = append(wanted, Want{List: name, Version: u.base(name).Version})
	}
	updates, err = u.cfg.Source.Fetch(ctx, wanted)
	if err == nil && len(updates) != len(wanted) {
		err = fmt.Errorf("%w: %d lists in the answer, asked for %d", ErrMalformed, len(updates), len(wanted))
	}
	return updates, err
}

// base returns what an update of the list may build upon: what is held, unless
// the last update failed its checks. Then nothing is, so that a full update is
// asked for and nothing else is taken.
func (u *Updater) base(name string) List {
	if u.cfg.Schedule.list(name).Rejected {
		return List{Name: name}
	}
	return u.lists[name]
}

func catch(err *error) {
	if r := recover(); r != nil {
		*err = fmt.Errorf("panic: %v", r)
	}
}

// result is what became of one list of an answer.
type result struct {
	name string
	kind Kind
	wait time.Duration // minimum wait that the server gave; 0: none
	err  error         // of ListRejected
}

// apply applies each update to its list and publishes the lists that result. A
// list that is rejected stays as it was and does not keep the others back.
func (u *Updater) apply(names []string, updates []Update) []result {
	results := make([]result, len(names))
	for i, name := range names {
		r := result{name: name, kind: ListUnchanged, wait: max(0, updates[i].MinimumWait)}
		l, changed, err := applyCaught(u.base(name), updates[i], u.cfg.MaxEntries)
		switch {
		case err != nil:
			r.kind, r.err = ListRejected, err
		case changed:
			r.kind = ListUpdated
			u.lists[name] = l
			u.saved(name, u.save(l))
		default:
			u.lists[name] = l
		}
		u.cfg.Schedule.remember(u.lists[name])
		results[i] = r
	}
	u.publish()
	return results
}

func applyCaught(old List, update Update, maxEntries int) (l List, changed bool, err error) {
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
		clock := schedule.list(r.name)
		if r.kind == ListRejected {
			all[r.name] = clock.rejected(now, r.wait, schedule.random())
		} else {
			all[r.name] = clock.next(now, r.wait, r.kind == ListUpdated)
		}
	}
	return all
}
