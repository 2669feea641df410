package safebrowsing

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol"
	"github.com/coredns-safebrowsing/safebrowsing/updater"
)

// edge is what tests replace of the world. The zero edge is the real one.
type edge struct {
	firstContact func() time.Duration // see updater.Config
	transport    http.RoundTripper    // see protocol.Config
	schedules    map[identity]*updater.Schedule
}

// schedule returns a schedule that goes on where the last one of the same
// identity stands, whatever folder that had.
func (e edge) schedule(id identity, store *updater.Store, report func(updater.Event)) *updater.Schedule {
	schedule, err := updater.NewSchedule(store)
	if err != nil {
		report(updater.Event{Kind: updater.LoadFailed, Err: err})
	}
	last, other := e.schedules[id], e.schedules[id.inOtherVersion()]
	switch {
	case other != nil && !other.Over() && (last == nil || last.Over()):
		schedule.Succeed(other, last, id.protocol == protocol.Version5)
	case last != nil:
		schedule.Follow(last)
	}
	if e.schedules != nil {
		e.schedules[id] = schedule
	}
	return schedule
}

// registry holds the engines of this process.
type registry struct {
	edge edge

	mu       sync.Mutex
	engines  map[settings]*shared
	holdings map[*SafeBrowsing]holding
}

// shared is an engine and how many hold it.
type shared struct {
	*engine
	holders int
}

// holding is the hold of a server block, which belongs to the generation of the
// Corefile that it was read from.
type holding struct {
	engine     *shared // nil: Safe Browsing is off
	generation uint64
}

var engines = registry{
	edge:     edge{schedules: make(map[identity]*updater.Schedule)},
	engines:  make(map[settings]*shared),
	holdings: make(map[*SafeBrowsing]holding),
}

// acquire gives a server block its lists and the engine with its settings, which
// is started if there is none.
func (r *registry) acquire(holder *SafeBrowsing, generation uint64) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sweep(generation)
	files, err := holder.openOwn()
	if err != nil {
		return err
	}
	holder.files.Store(&files)
	if !holder.online {
		r.holdings[holder] = holding{generation: generation}
		return nil
	}
	s := holder.settings
	e := r.engines[s]
	if e == nil {
		made, err := newEngine(s, r.edge)
		if err != nil {
			return errors.Join(fmt.Errorf("starting: %w", err), closeOwn(files))
		}
		made.start()
		e = &shared{engine: made}
		r.engines[s] = e
	}
	e.holders++
	r.holdings[holder] = holding{engine: e, generation: generation}
	holder.engine.Store(e.engine)
	return nil
}

// release ends the hold of a server block, and with the last one the engine.
func (r *registry) release(holder *SafeBrowsing) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.drop(holder)
}

// releaseDead ends the holds of instances that do not serve. CoreDNS does not shut down a new instance whose listeners could not
// be bound: it only tells the old one that the restart has failed. It does so too
// when the new instance serves and the old one could not be shut down in order.
func (r *registry) releaseDead() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sweep(0)
}

// sweep is releaseDead for callers that hold mu, and spares the generation that
// is being started.
func (r *registry) sweep(generation uint64) {
	live := liveGenerations()
	for holder, h := range r.holdings {
		if h.generation != generation && !live[h.generation] {
			r.drop(holder)
		}
	}
}

// ready reports whether all engines are.
func (r *registry) ready() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range r.engines {
		if !e.ready.Load() {
			return false
		}
	}
	return true
}

func (r *registry) drop(holder *SafeBrowsing) {
	h, ok := r.holdings[holder]
	if !ok {
		return
	}
	delete(r.holdings, holder)
	holder.detached.end()
	closeOwn(*holder.files.Load())
	e := h.engine
	if e == nil {
		return
	}
	if e.holders--; e.holders > 0 {
		return
	}
	delete(r.engines, e.settings)
	e.stop()
	if id := e.settings.identity(); r.edge.schedules[id] == e.schedule {
		// Whoever comes next follows the engine that goes on, if there is one: this
		// one was dropped in a reload that failed.
		if next := r.of(id.inOtherVersion()); next == nil || !next.schedule.Follows(e.schedule) { // else that one does, when it has them
			e.schedule.ForgetLists()
		}
		if next := r.of(id); next != nil {
			r.edge.schedules[id] = next.schedule
		}
	}
	for _, list := range e.settings.stored() {
		if !r.keeps(list) {
			forget(list)
		}
	}
}

// of returns an engine of the identity, or nil. The caller holds mu.
func (r *registry) of(id identity) *shared {
	for s, e := range r.engines {
		if s.identity() == id {
			return e
		}
	}
	return nil
}

// keeps reports whether an engine keeps the list. The caller holds mu.
func (r *registry) keeps(list string) bool {
	for s := range r.engines {
		if slices.Contains(s.stored(), list) {
			return true
		}
	}
	return false
}
