package safebrowsing

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/config"
	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol"
	"github.com/coredns-safebrowsing/safebrowsing/updater"
)

// edge is what tests replace of the world. The zero edge is the real one.
type edge struct {
	firstContact func() time.Duration // see updater.Config
	transport    http.RoundTripper    // see protocol.Config
	schedules    map[config.Identity]*updater.Schedule
}

// schedule returns a schedule that goes on where the last one of the same
// identity stands, whatever folder that had.
func (e edge) schedule(id config.Identity, store *updater.Store, report func(updater.Event)) *updater.Schedule {
	schedule, err := updater.NewSchedule(store)
	if err != nil {
		report(updater.Event{Kind: updater.LoadFailed, Err: err})
	}
	last, other := e.schedules[id], e.schedules[id.InOtherVersion()]
	switch {
	case other != nil && !other.Over() && (last == nil || last.Over()):
		schedule.Succeed(other, last, id.Protocol == protocol.Version5)
	case last != nil:
		schedule.Follow(last)
	default:
		schedule.Borrow(e.kin(id))
	}
	if e.schedules != nil {
		e.schedules[id] = schedule
	}
	return schedule
}

// kin returns a schedule of the same server and protocol, but with another key,
// that has lists; or nil.
func (e edge) kin(id config.Identity) *updater.Schedule {
	for other, schedule := range e.schedules {
		if other.Address == id.Address && other.Protocol == id.Protocol && !schedule.Over() {
			return schedule
		}
	}
	return nil
}

// registry holds the engines of this process.
type registry struct {
	edge    edge
	waiting atomic.Int32 // engines that are not ready yet; read without mu

	mu       sync.Mutex
	engines  map[config.Settings]*shared
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
	edge:     edge{schedules: make(map[config.Identity]*updater.Schedule)},
	engines:  make(map[config.Settings]*shared),
	holdings: make(map[*SafeBrowsing]holding),
}

// acquire gives a server block its lists and the engine with its settings, which
// is started if there is none.
func (r *registry) acquire(holder *SafeBrowsing, generation uint64) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sweep(generation)
	files, err := openOwn(&holder.cfg.Block)
	if err != nil {
		return err
	}
	holder.files.Store(&files)
	if !holder.cfg.Online {
		r.holdings[holder] = holding{generation: generation}
		return nil
	}
	s := holder.cfg.Settings
	e := r.engines[s]
	if e == nil {
		r.waiting.Add(1)
		made, err := newEngine(s, holder.cfg.Secret, r.edge, func() { r.waiting.Add(-1) })
		if err != nil {
			r.waiting.Add(-1)
			return errors.Join(fmt.Errorf("starting: %w", err), closeOwn(files))
		}
		made.start(holder.cfg.Secret)
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

// ready reports whether all engines are. It never waits: a reload, an update or a
// slow disk may hold mu for seconds.
func (r *registry) ready() bool { return r.waiting.Load() == 0 }

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
	e.becomeReady() // nobody waits for it any more
	if id := e.settings.Identity(); r.edge.schedules[id] == e.schedule {
		// This engine was dropped by a failed reload, or is the last of its identity.
		// Point successors at the engine that goes on. If that one still has to take
		// over the lists, it forgets them itself.
		if !r.followed(e.schedule) {
			e.schedule.ForgetLists()
		}
		if next := r.of(id); next != nil {
			r.edge.schedules[id] = next.schedule
		}
	}
	for _, list := range e.settings.Stored() {
		if !r.keeps(e.settings, list) {
			listGauges.forget(e.settings, list)
		}
	}
	if !r.keeps(e.settings, "") {
		searchNotBefore.DeleteLabelValues(labelsOf(e.settings)...)
	}
}

// followed reports whether the schedule of an engine still has to take over the
// lists of this one. The caller holds mu.
func (r *registry) followed(schedule *updater.Schedule) bool {
	for _, e := range r.engines {
		if e.schedule.Follows(schedule) {
			return true
		}
	}
	return false
}

// of returns an engine of the identity, or nil. The caller holds mu.
func (r *registry) of(id config.Identity) *shared {
	for s, e := range r.engines {
		if s.Identity() == id {
			return e
		}
	}
	return nil
}

// keeps reports whether an engine whose metrics have the labels of s keeps the list,
// or for "" whether there is one. The caller holds mu.
func (r *registry) keeps(s config.Settings, list string) bool {
	for other := range r.engines {
		if slices.Equal(labelsOf(other), labelsOf(s)) && (list == "" || slices.Contains(other.Stored(), list)) {
			return true
		}
	}
	return false
}
