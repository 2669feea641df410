package engine

import (
	"cmp"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
	"github.com/coredns-safebrowsing/safebrowsing/updater"
)

// Edge is what tests and relays replace of the world. The zero Edge is the one of a CoreDNS.
type Edge struct {
	FirstContact func() time.Duration // see updater.Config
	Transport    http.RoundTripper    // see protocol.Config
	// Searcher returns what stands between the engine and its server, as a cache that
	// relays share. Nil: nothing.
	Searcher func(lookup.Searcher) lookup.Searcher
	// Share returns what an engine shares with other machines' engines. Nil: nothing.
	Share func(updater.Origin) updater.Shared
}

// past is what engines leave to their successors.
type past struct {
	schedules schedules
	ledgers   ledgers
}

// schedules holds the engines' last schedules, each for its identity. They
// outlive an engine: a server's minimum wait is for the next one too.
type schedules map[Identity]*updater.Schedule

// next returns a schedule that continues where the last one of the same identity or with the same key
// stands, whatever folder that had.
func (all schedules) next(id Identity, origin updater.Origin, store *updater.Store, report func(updater.Event)) *updater.Schedule {
	schedule, err := updater.NewSchedule(store)
	if err != nil {
		report(updater.Event{Kind: updater.LoadFailed, Err: err})
	}
	last := all[id]
	if last == nil || last.Over() {
		last = cmp.Or(all.twin(id, origin), last)
	}
	other, continues := all.predecessor(id)
	switch {
	case other != nil && (last == nil || last.Over()):
		schedule.Succeed(other, last, continues)
	case last != nil:
		if schedule.Follow(last); last.Over() { // it has clocks only
			schedule.Borrow(all.kin(id))
		}
	default:
		schedule.Borrow(all.kin(id))
	}
	all[id] = schedule
	return schedule
}

// twin returns a schedule that has lists, of who asks the same server with the same key from somewhere else, as a file
// instead of the Corefile; or nil.
func (all schedules) twin(id Identity, origin updater.Origin) *updater.Schedule {
	for other, schedule := range all {
		if other != id && other.server() == id.server() && !schedule.Over() && schedule.AsksAs(origin) {
			return schedule
		}
	}
	return nil
}

// predecessor returns a schedule that has lists, of who asked the same server by another
// protocol, and whether the server knows their versions; or nil.
func (all schedules) predecessor(id Identity) (_ *updater.Schedule, continues bool) {
	for _, d := range protocol.Dialects() {
		if other := all[id.By(d)]; d != id.Protocol && other != nil && !other.Over() {
			return other, id.Protocol.Continues(d)
		}
	}
	return nil, false
}

// kin returns a schedule that has lists of the same server, asked with another key, at
// other endpoints too, or by another protocol, and whether by another protocol; or nil. One of the same protocol
// comes first: its versions are known.
func (all schedules) kin(id Identity) (kin *updater.Schedule, foreign bool) {
	for other, schedule := range all {
		switch {
		case schedule.Over() || !Overlap(id.Protocol.AddressBy(other.Protocol, id.Address), other.Address):
		case other.Protocol == id.Protocol:
			return schedule, false
		default:
			kin, foreign = schedule, true
		}
	}
	return kin, foreign
}

// ledgers count the searches of engines that have a budget, each for its identity. They
// outlive an engine, so that a reload renews no budget.
type ledgers map[Identity]*updater.Ledger

// next returns the ledger of an identity, which continues in the store, or in memory if
// that is nil.
func (all ledgers) next(id Identity, store *updater.Store, report func(updater.Event)) *updater.Ledger {
	ledger := all[id]
	var err error
	if ledger == nil {
		ledger, err = updater.NewLedger(store)
		ledger.Spread()
		all[id] = ledger
	} else {
		if err := ledger.Flush(); err != nil {
			report(updater.Event{Kind: updater.StoreFailed, List: updater.BudgetFile, Err: err})
		}
		err = ledger.Move(store)
	}
	for other, before := range all { // a folder counts for all keys, and so does memory
		if store == nil && other != id && other.server() == id.server() {
			ledger.Continue(before)
		}
	}
	if err != nil {
		report(updater.Event{Kind: updater.LoadFailed, List: updater.BudgetFile, Err: err})
	}
	return ledger
}

// Registry holds the engines of a process, each for as long as a server block holds
// it. It is safe for concurrent use.
type Registry struct {
	waiting atomic.Int32 // engines that are not ready yet

	// work is held while an engine is made or ended, which takes as long as a disk
	// or a request takes. It guards all below.
	work    sync.Mutex
	edge    Edge
	past    past
	engines map[Settings]*shared
}

// shared is an engine and how many hold it.
type shared struct {
	*Engine
	holders int
}

// Default is the registry of the process: the one that the plugin uses.
var Default = NewRegistry(Edge{})

// NewRegistry returns a registry without engines.
func NewRegistry(edge Edge) *Registry {
	return &Registry{edge: edge, past: past{make(schedules), make(ledgers)}, engines: make(map[Settings]*shared)}
}

// Acquire returns the engine with the settings, which is started if there is none,
// and how to let go of it: with its last holder an engine ends. To let go waits until
// the engine has ended, and does so once however often it is called.
func (r *Registry) Acquire(s Settings, key string) (_ *Engine, release func(), err error) {
	r.work.Lock()
	defer r.work.Unlock()
	e := r.engines[s]
	if e == nil {
		r.waiting.Add(1)
		made, err := newEngine(s, key, r.edge, r.past, func() { r.waiting.Add(-1) })
		if err != nil {
			r.waiting.Add(-1)
			return nil, nil, fmt.Errorf("starting: %w", err)
		}
		for other, before := range r.engines { // answers about other lists say nothing about these
			was, is := other.Identity(), s.Identity()
			same := was == is || was.server() == is.server() && before.Schedule.AsksAs(s.Origin(key))
			if same && other.listsAs(s) {
				made.Checker.Inherit(before.Checker)
			}
		}
		made.start(key)
		e = &shared{Engine: made}
	}
	r.engines[s] = e
	e.holders++
	return e.Engine, sync.OnceFunc(func() { r.release(e) }), nil
}

// Ready reports whether all engines are. It never waits.
func (r *Registry) Ready() bool { return r.waiting.Load() == 0 }

// release takes one hold off an engine, which ends with the last one.
func (r *Registry) release(e *shared) {
	r.work.Lock()
	defer r.work.Unlock()
	e.holders--
	if e.holders == 0 {
		delete(r.engines, e.settings)
		r.end(e)
	}
}

// end ends an engine that nobody holds. The caller holds work.
func (r *Registry) end(e *shared) {
	e.stop()
	e.becomeReady() // nobody waits for it any more
	if id := e.settings.Identity(); r.past.schedules[id] == e.Schedule {
		// This engine was dropped by a failed reload, or is the last of its identity.
		// Point successors at the engine that continues. If one still has to take
		// over the lists, it forgets them itself.
		followed := false
		for s, other := range r.engines {
			followed = followed || other.Schedule.Follows(e.Schedule)
			if s.Identity() == id {
				r.past.schedules[id] = other.Schedule
				other.resume()
			}
		}
		if !followed {
			e.Schedule.ForgetLists()
		}
	}
}
