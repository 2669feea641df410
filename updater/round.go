package updater

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/prefixset"
)

// The order in a round matters. The schedule is saved before the request is sent, so that a
// crash does not lead to another request at once. The lists are saved before they are
// published, so that what serves also serves after a restart. The schedule is saved after
// the lists: a crash in between leaves a fresh list that counts as failed, not an old list
// that counts as fresh.

// update does one round: it fetches all lists that are due in one request, except
// those that must be asked for alone, which are all of them for a OneByOne.
func (u *Updater) update(ctx context.Context) {
	_, oneByOne := u.cfg.Source.(OneByOne)
	waiting := u.cfg.Schedule.dueNow(u.cfg.Lists, time.Now())
	for len(waiting) > 0 {
		names := u.cfg.Schedule.together(waiting, oneByOne)
		switch u.request(ctx, names) {
		case askNoMore:
			return
		case askAlone: // the same lists
		case askOthers:
			waiting = slices.DeleteFunc(waiting, func(name string) bool { return slices.Contains(names, name) })
		}
		waiting = u.cfg.Schedule.dueNow(waiting, time.Now()) // the answer may have told all lists to wait
	}
}

// nextRequest is what may be asked for after a request.
type nextRequest uint8

const (
	askOthers nextRequest = iota // lists that were not asked for
	askAlone                     // these, too: each by itself
	askNoMore                    // nothing in this round
)

// request fetches lists in one request, applies the updates, saves and publishes the
// lists, then saves the schedule and reports.
func (u *Updater) request(ctx context.Context, names []string) nextRequest {
	begun := time.Now()
	if u.unreached(ctx, names, begun) {
		return askNoMore
	}
	attempt, err := u.cfg.Schedule.begin(names, begun)
	if errors.Is(err, errNotHeld) {
		_ = u.sleep(ctx, lockRetry) // the caller asks again, unless ctx has ended
		return askNoMore
	}
	// The request is sent even if that failed: fresh lists are worth more than a wait that a
	// crash may lose.
	u.reportSave("", err)
	results, wait, err := u.fetch(ctx, names)
	now := time.Now()
	refused := err != nil && len(names) == 1 && refusesLists(err)
	switch {
	case err == nil:
		u.accept(results)
		u.cfg.Schedule.advise(u.cfg.Source)
		u.reportSave("", attempt.answered(now, wait, clocks(results, now, u.cfg.Schedule)))
	// Before the others: after a shutdown only a status says something about the server.
	case ctx.Err() != nil && isNotSent(err):
		u.reportSave("", attempt.takenBack())
		return askNoMore
	case ctx.Err() != nil && statusOf(err).Code == 0: // a shutdown is not a failure
		u.reportSave("", attempt.cancelled(names, now, wait))
		return askNoMore
	// Google's server, whose rules demand a back-off, never says that.
	case len(names) > 1 && statusOf(err).LacksList:
		u.reportSave("", attempt.split(names))
		u.cfg.Report(Event{Kind: BatchRefused, List: strings.Join(names, ", "), Err: err, Took: now.Sub(begun)})
		return askAlone
	case isNotSent(err):
		u.reportSave("", attempt.notSent(now, err))
	case refused:
		u.reportSave("", attempt.refused(names[0], now, max(wait, retryAfter(err, false)), u.doubtful(names, err), err))
	default:
		u.reportSave("", attempt.failed(now, max(wait, retryAfter(err, false)), u.doubtful(names, err), names, err))
	}
	u.shareLists()
	u.reportRequest(names, results, refused, Event{Err: err, Took: now.Sub(begun)})
	u.reportLongWaits(names, results, wait)
	if err == nil || refused {
		return askOthers
	}
	return askNoMore
}

// reportRequest reports the outcome of a request. e has its error and duration.
func (u *Updater) reportRequest(names []string, results []result, refused bool, e Event) {
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

// reportLongWaits reports minimum waits longer than any back-off. They are obeyed, but
// are probably a mistake of the server. wait is the one for all lists.
func (u *Updater) reportLongWaits(names []string, results []result, wait time.Duration) {
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

// reportSave reports that the list, or the schedule if name is "", has been saved, or
// that saving failed with err. A failure stops nothing: memory has the new content.
func (u *Updater) reportSave(name string, err error) {
	switch {
	case err != nil:
		u.cfg.Report(Event{Kind: StoreFailed, List: name, Err: err})
	case u.cfg.Store != nil:
		u.cfg.Report(Event{Kind: Stored, List: name})
	}
}

// fetch asks the Source, within the timeout, and applies the update of each list as it
// arrives. It publishes nothing. A panic of the Source counts as a failure: it must not
// take the name server down.
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
			return nil, wait, fmt.Errorf("%w: the answer lacks list %s", ErrMalformed, names[i])
		}
		// Read the wait only here: an update may be rejected before its end, where the
		// wait can be.
		r.wait = max(updates[i].MinimumWait, wait)
	}
	return results, wait, nil
}

// base returns what an update of the list may build on: the content in memory, unless
// the last update failed its checks or the server does not know this version. Then it
// is empty: a full update is asked for, and a partial one is rejected.
func (u *Updater) base(name string) List {
	if l := u.lists[name]; !l.versionUnknown() && !u.cfg.Schedule.list(name).Rejected {
		return l
	}
	return List{Name: name}
}

// catch, when deferred, turns a panic into an error.
func catch(err *error) {
	if r := recover(); r != nil {
		*err = fmt.Errorf("panic: %v", r)
	}
}

// result is the outcome for one list of an answer.
type result struct {
	list List // the new content; only the name if kind is ListRejected
	kind Kind
	wait time.Duration // minimum wait of the server; 0: none
	err  error         // set if kind is ListRejected
}

// apply applies an update to its list. It publishes nothing.
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

// accept saves and publishes the lists of an answer. A rejected list keeps its content
// and does not delay the others.
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
			// The version can change while the content does not. Save it then too:
			// after our restart the server may not know the old one any more.
			if r.kind == ListUpdated || !before.unsaved.IsZero() || before.TakenOver || !bytes.Equal(before.Version, r.list.Version) {
				u.reportSave(name, u.save(r.list))
			}
		}
		u.cfg.Schedule.hand.remember(u.lists[name])
	}
	// All lists of an answer at once: a query sees all of it or nothing.
	u.publish()
	prefixset.GiveBack(replaced)
}

// applyCaught is Apply that returns a panic as an error.
func applyCaught(old List, update *Update, maxEntries int) (l List, changed bool, err error) {
	defer catch(&err)
	return Apply(old, update, maxEntries)
}

// save saves a list, if lists are kept on disk at all.
func (u *Updater) save(l List) error {
	if u.cfg.Store == nil {
		return nil
	}
	now := time.Now()
	if shared := u.cfg.Schedule.sharer(); shared != nil {
		now, _ = shared.Now()
	}
	return u.date(l.Name, now, u.cfg.Store.SaveList(l))
}

// clocks returns the new clock of each list of an answer that arrived at now.
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
