package safebrowsing

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol"
	"github.com/coredns-safebrowsing/safebrowsing/internal/version"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
	"github.com/coredns-safebrowsing/safebrowsing/updater"
)

// settings are what makes two engines different. It is comparable: server
// blocks whose settings are equal share an engine. Fields with several values
// are joined by a space.
type settings struct {
	key        string // "": none, or it is in keyFile
	keyFile    string // whose content may change while the engine runs; "": none
	endpoint   string // "": Google's
	protocol   protocol.Version
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

// clientConfig says how the server is reached. A nil transport is the network.
func (s settings) clientConfig(key string, transport http.RoundTripper) protocol.Config {
	return protocol.Config{
		Endpoint:   s.endpoint,
		Key:        key,
		UserAgent:  "coredns-safebrowsing/" + version.Number,
		Resolvers:  strings.Fields(s.resolvers),
		MaxEntries: s.maxEntries,
		Transport:  transport,
	}
}

// client returns a client of the server, whose lists are in the database. A nil
// transport is the network.
func (s settings) client(key string, database *lookup.Database, transport http.RoundTripper) (protocol.Client, error) {
	if s.protocol == protocol.Version4 {
		return protocol.NewV4(s.clientConfig(key, transport), s.stored(), database.Versions)
	}
	return protocol.NewV5(s.clientConfig(key, transport))
}

// address is that of the server.
func (s settings) address() string {
	if s.endpoint == "" {
		return protocol.DefaultEndpoint
	}
	return s.endpoint
}

// v4Suffix marks the origin of lists that came by version 4 of the protocol.
const v4Suffix = " v4"

// origin names the server in stored lists. Lists of either version are in force
// until the other has fetched them, and version 5 goes on with those of version 4,
// whose states it takes for its versions ("Migration From V4"). Each version has
// requests, and so a schedule, of its own.
func (s settings) origin(key string) updater.Origin {
	asker := updater.Asker(s.address(), key)
	if s.protocol == protocol.Version4 {
		return updater.Origin{Name: s.address() + v4Suffix, Predecessor: s.address(), Schedule: "schedule-v4.json", Asker: asker}
	}
	return updater.Origin{Name: s.address(), Predecessor: s.address() + v4Suffix, Continues: true, Asker: asker}
}

// SplitOrigin returns the address of the server and the version of the protocol
// by which lists of an origin came.
func SplitOrigin(origin string) (endpoint string, v protocol.Version) {
	if endpoint, ok := strings.CutSuffix(origin, v4Suffix); ok {
		return endpoint, protocol.Version4
	}
	return origin, protocol.Version5
}

// identity is whom a server takes us for. Its rules are for all engines of one
// identity together, one after the other over reloads.
type identity struct {
	address, key, keyFile string
	protocol              protocol.Version
}

// inOtherVersion is who asks the same server by the other version of the protocol.
func (id identity) inOtherVersion() identity {
	if id.protocol == protocol.Version5 {
		id.protocol = protocol.Version4
	} else {
		id.protocol = protocol.Version5
	}
	return id
}

func (s settings) identity() identity {
	return identity{s.address(), s.key, s.keyFile, s.protocol}
}

// checkerConfig says how hosts are decided upon by the version of the protocol. By
// version 4 one search is under way at a time: requests in parallel give no right
// to more of them ("Request Frequency"), and prefixes of other queries ride along.
func (s settings) checkerConfig(database *lookup.Database, searcher lookup.Searcher) lookup.Config {
	cfg := lookup.Config{
		Mode:     s.mode,
		Database: database,
		Searcher: searcher,
		Threats:  threatsOf(strings.Fields(s.lists)),
		Cache:    s.cache,
	}
	if s.protocol == protocol.Version4 {
		cfg.Rule, cfg.AsStored, cfg.Searches = lookup.RuleV4, true, 1
	}
	return cfg
}

// searchRules are the rules for searches. firstContact draws the first contact; nil:
// as the server demands.
func (s settings) searchRules(firstContact func() time.Duration) updater.SearchRules {
	if s.protocol == protocol.Version4 {
		return updater.SearchRules{Backoff: updater.Strict, Published: true, FirstContact: firstContact}
	}
	return updater.SearchRules{Backoff: updater.Strikes}
}

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
	client   protocol.Client
	reporter *reporter
	ready    atomic.Bool // nothing more is to be waited for
	onReady  func()      // told once

	// The goroutines below end with stop, which waits for them: one that keeps the
	// lists fresh, and one that watches the file of the key.
	cancel context.CancelFunc
	wg     sync.WaitGroup
}

// newEngine makes an engine that asks with the key, and puts the lists that are on
// disk in force. It asks nobody. A disk that cannot be used is reported and done
// without. OnReady is called at most once.
func newEngine(s settings, key string, edge edge, onReady func()) (*engine, error) {
	e := &engine{settings: s, onReady: onReady}
	e.reporter = newReporter(s, e.becomeReady)
	database := new(lookup.Database)
	client, err := s.client(key, database, edge.transport)
	if err != nil {
		return nil, err
	}
	store := e.openStore(key)
	schedule := edge.schedule(s.identity(), store, e.reporter.report)
	e.client, e.schedule, e.reporter.schedule = client, schedule, schedule
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
	e.checker, err = lookup.NewChecker(s.checkerConfig(database, updater.Pace(client, schedule, s.searchRules(edge.firstContact), e.reporter.report)))
	if err != nil {
		return nil, err
	}
	if asked := protocol.V4MaxEntries(s.maxEntries); s.protocol == protocol.Version4 && asked != s.maxEntries {
		log.Infof("max_entries %d is asked for as %d: version 4 of the protocol knows powers of two from 1024 to 1048576 only", s.maxEntries, asked)
	}
	if e.updater.Load() {
		e.becomeReady()
	}
	return e, nil
}

func (e *engine) becomeReady() {
	if e.ready.CompareAndSwap(false, true) {
		e.onReady()
	}
}

// openStore returns nil if no store is wanted.
func (e *engine) openStore(key string) *updater.Store {
	if e.settings.db == "" {
		return nil
	}
	store, err := updater.OpenStore(e.settings.db, e.settings.origin(key))
	if err != nil {
		e.reporter.report(updater.Event{Kind: updater.StoreFailed, Err: err})
	}
	return store
}

// start begins to keep the lists fresh, with the key, until stop.
func (e *engine) start(key string) {
	ctx, cancel := context.WithCancel(context.Background())
	e.cancel = cancel
	if e.settings.keyFile == "" {
		e.wg.Go(func() { e.updater.Run(ctx) })
		return
	}
	e.wg.Go(func() { e.runWithKeys(ctx, key) })
}

// stop ends everything that the engine does and waits for it.
func (e *engine) stop() {
	e.checker.Close() // before the schedule is let go of: a search may end with a wait
	e.cancel()
	e.wg.Wait()
	e.schedule.Flush() // an answer does not wait for the disk
	e.client.Close()
}
