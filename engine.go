package safebrowsing

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
	"github.com/coredns-safebrowsing/safebrowsing/updater"
)

// version is sent to the server, as part of the user agent.
const version = "0.1.0"

// settings are what makes two engines different. It is comparable: server
// blocks whose settings are equal share an engine. Fields with several values
// are joined by a space.
type settings struct {
	key        string
	endpoint   string // "": Google's
	mode       lookup.Mode
	lists      string // in mode nostorage they only say which threats block
	maxEntries int    // 0: no limit
	db         string // folder; "": in memory only
	resolvers  string
	cache      int
}

// stored returns the lists that the updater keeps.
func (s settings) stored() []string {
	switch s.mode {
	case lookup.RealTime:
		return append(strings.Fields(s.lists), globalCache)
	case lookup.NoStorage:
		return nil
	}
	return strings.Fields(s.lists)
}

// client returns a client of the server. A nil transport is the network.
func (s settings) client(transport http.RoundTripper) (*protocol.Client, error) {
	return protocol.NewClient(protocol.Config{
		Endpoint:   s.endpoint,
		Key:        s.key,
		UserAgent:  "coredns-safebrowsing/" + version,
		Resolvers:  strings.Fields(s.resolvers),
		MaxEntries: s.maxEntries,
		Transport:  transport,
	})
}

// origin names the server in stored lists.
func (s settings) origin() string {
	if s.endpoint == "" {
		return protocol.DefaultEndpoint
	}
	return s.endpoint
}

// identity is whom a server takes us for. Its rules are for all engines of one
// identity together, one after the other over reloads.
type identity struct{ origin, key string }

func (s settings) identity() identity { return identity{s.origin(), s.key} }

// threatsOf returns the threats that lists of these names hold. A list whose
// name is not one of Google's may hold any.
func threatsOf(lists []string) (threats lookup.Threats) {
	for _, name := range lists {
		base, _, _ := strings.Cut(name, "-")
		switch base {
		case "se":
			threats = threats.With(lookup.SocialEngineering)
		case "mw":
			threats = threats.With(lookup.Malware)
		case "uws", "uwsa":
			threats = threats.With(lookup.UnwantedSoftware)
		case "pha":
			threats = threats.With(lookup.PotentiallyHarmfulApplication)
		default:
			return lookup.AllThreats
		}
	}
	return threats
}

// engine is the lists, the checker and the updater behind one or more server
// blocks.
type engine struct {
	settings settings
	checker  *lookup.Checker
	updater  *updater.Updater
	schedule *updater.Schedule
	client   *protocol.Client
	reporter *reporter
	ready    atomic.Bool

	cancel context.CancelFunc // ends run
	wg     sync.WaitGroup     // of run
}

// newEngine makes an engine and puts the lists that are on disk in force. It
// asks nobody. A disk that cannot be used is reported and done without.
func newEngine(s settings, edge edge) (*engine, error) {
	e := &engine{settings: s}
	e.reporter = newReporter(s, func() { e.ready.Store(true) })
	client, err := s.client(edge.transport)
	if err != nil {
		return nil, err
	}
	store, err := e.openStore()
	schedule := edge.schedule(s.identity(), store, e.reporter.report)
	if err != nil {
		schedule.Distrust() // a crash loop must not become a loop of requests
	}
	database := new(lookup.Database)
	e.client, e.schedule = client, schedule
	e.updater, err = updater.New(updater.Config{
		Source:       client,
		Database:     database,
		Schedule:     schedule,
		Store:        store,
		Lists:        s.stored(),
		LikelySafe:   globalCache,
		MaxEntries:   s.maxEntries,
		Report:       e.reporter.report,
		FirstContact: edge.firstContact,
	})
	if err != nil {
		return nil, err
	}
	e.checker, err = lookup.NewChecker(lookup.Config{
		Mode:     s.mode,
		Database: database,
		Searcher: updater.Pace(client, schedule, e.reporter.report),
		Threats:  threatsOf(strings.Fields(s.lists)),
		Cache:    s.cache,
	})
	if err != nil {
		return nil, err
	}
	if e.updater.Load() {
		e.ready.Store(true)
	}
	return e, nil
}

// openStore returns a nil store without error if none is wanted.
func (e *engine) openStore() (*updater.Store, error) {
	if e.settings.db == "" {
		return nil, nil
	}
	store, err := updater.OpenStore(e.settings.db, e.settings.origin())
	if err != nil {
		e.reporter.report(updater.Event{Kind: updater.StoreFailed, Err: err})
	}
	return store, err
}

// start begins to keep the lists fresh, in a goroutine that ends with stop.
func (e *engine) start() {
	ctx, cancel := context.WithCancel(context.Background())
	e.cancel = cancel
	e.wg.Go(func() { e.updater.Run(ctx) })
}

// stop ends everything that the engine does and waits for it.
func (e *engine) stop() {
	e.cancel()
	e.checker.Close()
	e.wg.Wait()
	e.client.Close()
}

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
	if last := e.schedules[id]; last != nil {
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
		e.schedule.ForgetLists()
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
