package relay

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"net/netip"
	"path/filepath"
	"sync"
	"time"

	clog "github.com/coredns/coredns/plugin/pkg/log"

	"github.com/coredns-safebrowsing/safebrowsing/internal/engine"
	"github.com/coredns-safebrowsing/safebrowsing/internal/files"
	"github.com/coredns-safebrowsing/safebrowsing/internal/say"
	"github.com/coredns-safebrowsing/safebrowsing/internal/sharing"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
	"github.com/coredns-safebrowsing/safebrowsing/updater"
)

// log writes the lines of relays.
var log = say.NewLog(clog.NewWithPlugin(say.Plugin))

// Config says what a relay fetches, and whom it serves.
type Config struct {
	Settings engine.Settings // of the engine; DB "": in memory only
	Key      string          // of the API; "": none
	Edge     engine.Edge     // for tests

	Listen      string        // "address:port" for clients
	Admin       string        // likewise, for metrics and health; "": none
	Connections int           // most connections of clients at once; 0: DefaultConnections
	Lameduck    time.Duration // how long clients are served once the relay is to stop and is not ready any more; 0 or more
	Insecure    bool          // serve other machines without TLS and without keys

	InsecureRedis bool // use a Redis on another machine without TLS

	CertFile, CertKeyFile string // of TLS, in PEM form; "": no TLS
	ClientCAFile          string // of those who sign certificates of clients; "": none is needed
	ClientKeyFile         string // with the keys that clients may send, one on each line; "": none is needed

	patience time.Duration // of sharing.Answers, for tests

	Redis *sharing.Config // that relays share, without its Prefix and its Observer; nil: none

	fleetTimes sharing.StoreConfig // of tests: only its times count

	Rate, Burst float64 // searches of one client: Rate a second, after Burst at once; Rate 0: no limit
	EMA         float64 // threshold of a lookup.EMA, instead of Rate and Burst; 0: none
}

// rule returns the limit of one client.
func (c *Config) rule() sharing.Rule {
	return sharing.Rule{Bucket: lookup.LeakyBucket{Rate: c.Rate, Capacity: c.Burst}, EMA: lookup.EMA{Threshold: c.EMA}}
}

// DefaultConnections is the most connections of clients at once.
const DefaultConnections = 4096

// connections returns the most connections of clients at once.
func (c *Config) connections() int { return cmp.Or(c.Connections, DefaultConnections) }

// DefaultRate and DefaultBurst limit the searches of one client: DefaultRate a second, after
// DefaultBurst at once. A client is a name server, with all users of a network behind it, so
// they are ten times the plugin's limit for one DNS client. They stop a client that is broken;
// the quota of the key is what the budget and the pacing of searches guard.
const (
	DefaultRate  = 100
	DefaultBurst = 200
)

// shutdownTimeout is how long requests have to end when the relay stops.
const shutdownTimeout = 5 * time.Second

// Relay serves version 5 of Safe Browsing to a network, from one engine.
//
//	client ──HTTP──▶ handler ─┬─ lists ◀── Publish ── engine ──▶ server
//	                          └─ searches ──▶ lookup.Checker ─┬▶ server
//	                                                          └▶ Redis, if relays share one
type Relay struct {
	cfg     Config
	handler *handler
	engine  *engine.Engine
	release func()
	redis   *sharing.Client // that relays share; nil: none
	certs   *certificates
	fleet   *sharedLists // nil: this relay shares nothing
	files   []*watched

	redisLog *redisLog // nil without redis
	shareLog engine.ShareLog

	trouble say.Trouble // with the versions of lists; of publish

	cancel context.CancelFunc // ends the goroutines below
	wg     sync.WaitGroup     // one publishes lists, one watches files
}

// handler answers the requests of clients. It is safe for concurrent use.
type handler struct {
	auth       *auth
	denied     denials
	lacking    lacking
	onlyLists  bool // prefixes in no list are not asked about
	metrics    *metrics
	costs      *costs
	lists      *Lists
	configured []string      // lists that the engine keeps
	first      chan struct{} // closed when the first contact has ended and its lists can be served
	stopping   chan struct{} // closed when the relay stops
	checker    *lookup.Checker
	searching  *lookup.Places  // of requests that wait for a search; so few that connections are left
	starting   *lookup.Places  // of requests that wait for the first lists
	limiter    lookup.Limiter  // nil: no limit
	limits     *sharing.Limits // of all relays on one Redis, instead of limiter and shares; nil: there are none
	rate       float64
	shares     *lookup.Shares
	shareSpent func(client, named netip.Addr) // logs it; nil: it is not logged
	searchHold func() updater.Hold
	provider   func() (service, advisory string) // of what the server says
}

// New starts a relay without its sockets: it fetches lists and can answer. The caller must
// Close it.
func New(cfg Config) (*Relay, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	r := &Relay{cfg: cfg, handler: &handler{auth: new(auth), metrics: newMetrics(), rate: cfg.Rate,
		searching: lookup.NewConnections(max(1, cfg.connections()/2)), starting: lookup.NewConnections(cfg.connections()), configured: cfg.Settings.Stored(), onlyLists: cfg.Settings.Mode == lookup.Local, first: make(chan struct{}), stopping: make(chan struct{})}}
	if len(r.handler.configured) == 0 {
		return nil, errors.New("a relay needs lists: mode nostorage keeps none")
	}
	r.watchFiles()
	if err := openAll(r.files); err != nil {
		return nil, err
	}
	r.handler.limiter = cfg.rule().Limiter()
	return r, r.start()
}

// watchFiles notes the files that are read again when they change.
func (r *Relay) watchFiles() {
	c := r.cfg
	if c.ClientKeyFile != "" {
		r.files = append(r.files, &watched{what: "keys of clients", paths: []string{c.ClientKeyFile}, load: func() error { return r.handler.auth.load(c.ClientKeyFile) }})
	}
	if c.CertFile != "" {
		r.certs = &certificates{cert: c.CertFile, key: c.CertKeyFile, clientCA: c.ClientCAFile}
		paths := []string{c.CertFile, c.CertKeyFile}
		if c.ClientCAFile != "" {
			paths = append(paths, c.ClientCAFile)
		}
		r.files = append(r.files, &watched{what: "certificates", paths: paths, load: r.certs.load})
	}
}

// start starts the engine and what follows it.
func (r *Relay) start() (err error) {
	if err = r.openRedis(); err != nil {
		return err
	}
	dir := ""
	if r.cfg.Settings.DB != "" {
		dir = filepath.Join(r.cfg.Settings.DB, "relay")
	}
	lists, err := NewLists(dir)
	if err != nil {
		log.Errorf("%v", err)
	}
	r.openFleet()
	registry := engine.NewRegistry(r.cfg.Edge)
	if r.engine, r.release, err = registry.Acquire(r.cfg.Settings, r.cfg.Key); err != nil {
		r.fleet.close()
		r.closeRedis()
		return err
	}
	h := r.handler
	h.costs = &costs{since: time.Now(), paid: r.cfg.Settings.Dialect().Paid, engine: r.engine}
	h.lists, h.checker, h.shares, h.searchHold = lists, r.engine.Checker, r.engine.Shares, r.engine.SearchHold
	r.shareLog.Flag = true
	h.shareSpent = func(client, named netip.Addr) { r.shareLog.Log(&r.engine.Service, client, named, time.Now()) }
	if r.redis != nil {
		h.limits = sharing.NewLimits(r.redis, r.cfg.rule(), h.shares)
	}
	h.provider = r.engine.Provider
	ctx, cancel := context.WithCancel(context.Background())
	r.cancel = cancel
	r.publish(lists) // what is on disk, before the first client asks
	r.wg.Go(func() { r.follow(ctx, lists) })
	r.wg.Go(func() {
		files.Every(ctx, filesInterval, func() {
			for _, w := range r.files {
				w.look()
			}
		})
	})
	return nil
}

// follow hands the lists of the engine on to clients when they change, until ctx ends.
func (r *Relay) follow(ctx context.Context, lists *Lists) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.engine.Changed():
			r.publish(lists)
		}
	}
}

// publish hands the lists of the engine on to clients. Calls follow each other.
func (r *Relay) publish(lists *Lists) {
	ready := r.engine.Ready() // before the lists: they are in force then
	err := lists.Publish(r.engine.Lists())
	switch began, ended := r.trouble.Note(err); {
	case began:
		log.Errorf("Cannot keep the versions of lists: %v. Clients get whole lists instead of updates until that works", err)
	case ended:
		log.Info("The versions of lists are kept again")
	}
	if ready && !r.handler.fetched() {
		close(r.handler.first)
	}
}

// ServeHTTP answers a client.
func (r *Relay) ServeHTTP(w http.ResponseWriter, q *http.Request) { r.handler.ServeHTTP(w, q) }

// Ready reports whether lists are in force and the relay does not stop.
func (r *Relay) Ready() bool {
	select {
	case <-r.handler.stopping:
		return false
	default:
		return r.handler.ready()
	}
}

// Close ends the relay and its engine, and waits for both, but not for a write that hangs,
// see files.Wait.
func (r *Relay) Close() {
	r.cancel()
	files.Wait(r.wg.Wait)
	r.release()
	r.fleet.close()
	r.closeRedis()
}
