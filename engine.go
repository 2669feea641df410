package safebrowsing

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"

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
