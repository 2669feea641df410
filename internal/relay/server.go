package relay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	golog "log"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"time"

	clog "github.com/coredns/coredns/plugin/pkg/log"
	"golang.org/x/net/netutil"

	"github.com/coredns-safebrowsing/safebrowsing/internal/config"
	"github.com/coredns-safebrowsing/safebrowsing/internal/engine"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
	"github.com/coredns-safebrowsing/safebrowsing/updater"
)

// log writes the lines of relays.
var log = clog.NewWithPlugin(config.Plugin)

// Config says what a relay fetches, and whom it serves.
type Config struct {
	Settings config.Settings // of the engine; DB "": in memory only
	Key      string          // of the API; "": none
	Edge     engine.Edge     // for tests

	Listen      string // "address:port" for clients
	Admin       string // likewise, for metrics and health; "": none
	Connections int    // most connections of clients at once; 0: DefaultConnections
	Insecure    bool   // serve other machines without TLS and without keys

	CertFile, CertKeyFile string // of TLS, in PEM form; "": no TLS
	ClientCAFile          string // of those who sign certificates of clients; "": none is needed
	ClientKeyFile         string // with the keys that clients may send, one on each line; "": none is needed

	Rate, Burst float64 // searches of one client: Rate a second, after Burst at once; Rate 0: no limit
}

// DefaultConnections is the most connections of clients at once.
const DefaultConnections = 4096

// shutdownTimeout is how long requests have to end when the relay stops.
const shutdownTimeout = 5 * time.Second

// Relay serves version 5 of Safe Browsing to a network, from one engine.
//
//	client ──HTTP──▶ handler ─┬─ lists ◀── Publish ── engine ──▶ server
//	                          └─ searches ──▶ lookup.Checker ──▶ server
type Relay struct {
	cfg     Config
	handler *handler
	engine  *engine.Engine
	release func()
	certs   *certificates
	files   []*watched

	cancel context.CancelFunc // ends the goroutines below
	wg     sync.WaitGroup     // one publishes lists, one watches files
}

// handler answers the requests of clients. It is safe for concurrent use.
type handler struct {
	auth       *auth
	denied     denials
	metrics    *metrics
	lists      *Lists
	configured []string      // lists that the engine keeps
	first      chan struct{} // closed when the first contact has ended and its lists can be served
	stopping   chan struct{} // closed when the relay stops
	checker    *lookup.Checker
	limiter    lookup.Limiter // nil: no limit
	rate       float64
	shares     *lookup.Shares
	searchHold func() updater.Hold
}

// New starts a relay without its sockets: it fetches lists and can answer. The caller must
// Close it.
func New(cfg Config) (*Relay, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	r := &Relay{cfg: cfg, handler: &handler{auth: new(auth), metrics: newMetrics(), rate: cfg.Rate,
		configured: cfg.Settings.Stored(), first: make(chan struct{}), stopping: make(chan struct{})}}
	if len(r.handler.configured) == 0 {
		return nil, errors.New("a relay needs lists: mode nostorage keeps none")
	}
	r.watchFiles()
	if err := openAll(r.files); err != nil {
		return nil, err
	}
	if cfg.Rate > 0 {
		r.handler.limiter = lookup.PerClient(lookup.LeakyBucket{Rate: cfg.Rate, Capacity: cfg.Burst}.Admit)
	}
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
	dir := ""
	if r.cfg.Settings.DB != "" {
		dir = filepath.Join(r.cfg.Settings.DB, "relay")
	}
	lists, err := NewLists(dir)
	if err != nil {
		log.Errorf("%v", err)
	}
	registry := engine.NewRegistry(r.cfg.Edge)
	if r.engine, r.release, err = registry.Acquire(r.cfg.Settings, r.cfg.Key); err != nil {
		return err
	}
	h := r.handler
	h.lists, h.checker, h.shares, h.searchHold = lists, r.engine.Checker, r.engine.Shares, r.engine.SearchHold
	ctx, cancel := context.WithCancel(context.Background())
	r.cancel = cancel
	r.wg.Go(func() { r.publish(ctx, lists) })
	r.wg.Go(func() { watch(ctx, r.files) })
	return nil
}

// publish hands the lists of the engine on to clients, until ctx ends.
func (r *Relay) publish(ctx context.Context, lists *Lists) {
	trouble := ""
	for {
		ready := r.engine.Ready() // before the lists: they are in force then
		err := lists.Publish(r.engine.Lists())
		switch {
		case err != nil && err.Error() != trouble:
			trouble = err.Error()
			log.Errorf("Cannot keep the versions of lists: %v. Clients get whole lists in place of updates until that works", err)
		case err == nil && trouble != "":
			trouble = ""
			log.Info("The versions of lists are kept again")
		}
		if ready && !r.handler.fetched() {
			close(r.handler.first)
		}
		select {
		case <-ctx.Done():
			return
		case <-r.engine.Changed():
		}
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

// Close ends the relay and its engine, and waits for both.
func (r *Relay) Close() {
	r.cancel()
	r.wg.Wait()
	r.release()
}

// Run runs a relay until ctx ends. Then it gives requests 5 seconds to end. It calls
// started when it listens, with the addresses; that of admin is nil if there is none.
func Run(ctx context.Context, cfg Config, started func(listen, admin net.Addr)) error {
	if err := cfg.check(); err != nil {
		return err
	}
	listener, err := net.Listen("tcp", cfg.Listen)
	if err != nil {
		return err
	}
	defer listener.Close()
	var admin net.Listener
	var adminAddr net.Addr
	if cfg.Admin != "" {
		if admin, err = net.Listen("tcp", cfg.Admin); err != nil {
			return err
		}
		defer admin.Close()
		adminAddr = admin.Addr()
	}
	r, err := New(cfg)
	if err != nil {
		return err
	}
	defer r.Close()
	for _, warning := range cfg.warnings() {
		log.Warning(warning)
	}
	log.Infof("The relay serves lists %s on %s (%s)", strings.Join(r.handler.configured, ", "), listener.Addr(), r.security())
	started(listener.Addr(), adminAddr)
	return r.serve(ctx, listener, admin)
}

// security says how clients are served, for the log.
func (r *Relay) security() string {
	words := []string{"http"}
	if r.certs != nil {
		words[0] = "https"
	}
	if r.cfg.ClientCAFile != "" {
		words = append(words, "clients need a certificate")
	}
	if r.cfg.ClientKeyFile != "" {
		words = append(words, "clients need a key")
	}
	return strings.Join(words, ", ")
}

// serve serves clients, and admin unless that is nil, until ctx ends.
func (r *Relay) serve(ctx context.Context, listener, admin net.Listener) error {
	clients := r.server(r)
	servers := []*http.Server{clients}
	ended := make(chan error, 2) // told by the goroutines below, which end with shutdown
	limited := netutil.LimitListener(listener, cmp.Or(r.cfg.Connections, DefaultConnections))
	if r.certs != nil {
		clients.TLSConfig = r.certs.config()
		go func() { ended <- clients.ServeTLS(limited, "", "") }()
	} else {
		go func() { ended <- clients.Serve(limited) }()
	}
	if admin != nil {
		operators := r.server(r.admin())
		servers = append(servers, operators)
		go func() { ended <- operators.Serve(netutil.LimitListener(admin, maxAdminConnections)) }()
	}
	var err error
	running := len(servers)
	select {
	case <-ctx.Done():
	case err = <-ended:
		running--
	}
	close(r.handler.stopping)
	shutdown(servers)
	for range running {
		<-ended
	}
	return err
}

// shutdown lets requests end, for at most shutdownTimeout.
func shutdown(servers []*http.Server) {
	ctx, cancel := context.WithTimeout(context.Background(), shutdownTimeout)
	defer cancel()
	for _, s := range servers {
		if s.Shutdown(ctx) != nil {
			s.Close()
		}
	}
}

// maxAdminConnections is the most connections to admin at once.
const maxAdminConnections = 64

// server returns a server that slow clients cannot block.
func (r *Relay) server(handler http.Handler) *http.Server {
	return &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second,
		WriteTimeout:      3 * time.Minute, // for a list of 30 MB at 1.5 Mbit/s
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    maxURL + 16<<10,
		ErrorLog:          golog.New(brokenConnections{r.handler.metrics}, "", 0),
	}
}

// brokenConnections counts what net/http would log for each bad connection, and logs only
// panics.
type brokenConnections struct{ *metrics }

// Write implements io.Writer.
func (b brokenConnections) Write(line []byte) (int, error) {
	if strings.Contains(string(line), "panic") {
		log.Errorf("A request failed: %s", strings.TrimSpace(string(line)))
	} else {
		b.broken.Inc()
	}
	return len(line), nil
}

// URL returns the base of the URLs of clients, for an address to listen on.
func (c *Config) URL(addr net.Addr) string {
	scheme := "http"
	if c.CertFile != "" {
		scheme = "https"
	}
	return fmt.Sprintf("%s://%s", scheme, addr)
}
