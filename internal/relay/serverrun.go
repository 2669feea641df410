package relay

import (
	"context"
	"fmt"
	"io"
	golog "log"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"golang.org/x/net/netutil"

	"github.com/coredns-safebrowsing/safebrowsing/internal/say"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

// Run runs a relay until ctx ends, and for Lameduck longer. Then it gives requests 5 seconds to end. It calls
// started when it listens, with the addresses; admin is nil if there is none.
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
	serves := fmt.Sprintf("The relay serves lists %s on %s (%s)", strings.Join(r.handler.configured, ", "), listener.Addr(), r.security())
	log.Info(serves)
	started(listener.Addr(), adminAddr)
	if err := say.Notify("READY=1", "STATUS="+serves); err != nil {
		log.Warningf("The service manager cannot be told that the relay serves: %v", err)
	}
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
	most := r.cfg.connections()
	limited := unhurried{lookup.Listen(listener, most, r.handler.metrics.broken.Inc)}
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
		_ = say.Notify("STOPPING=1") // here, and not beside the rest: the program could end first
		close(r.handler.stopping)
		select {
		case <-time.After(r.cfg.Lameduck):
		case err = <-ended:
			running--
		}
	case err = <-ended:
		running--
		close(r.handler.stopping)
	}
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

const (
	headerTimeout = 5 * time.Second // for the header of a request, from its first byte
	idleTimeout   = 2 * time.Minute // without a request; a client's connection ends earlier, after 90 s
)

// server returns a server that slow clients cannot block.
func (r *Relay) server(handler http.Handler) *http.Server {
	return &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: headerTimeout,
		ReadTimeout:       10 * time.Second,
		WriteTimeout:      3 * time.Minute, // for a list of 30 MB at 1.5 Mbit/s
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxURL + 16<<10,
		ErrorLog:          golog.New(brokenConnections{r.handler.metrics}, "", 0),
	}
}

// unhurried is a listener whose connections may be silent before their first request for as long as after it: a client
// makes one ahead of need, and keeps it. http.Server would close it after headerTimeout, perhaps at the moment of a
// search, and a search that fails so pauses all others.
type unhurried struct{ net.Listener }

// Accept implements net.Listener.
func (l unhurried) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &silent{Conn: conn}, nil
}

// silent is a connection that has sent nothing yet, until begun.
type silent struct {
	net.Conn
	begun bool
}

// SetReadDeadline implements net.Conn.
func (c *silent) SetReadDeadline(t time.Time) error {
	if !c.begun && !t.IsZero() {
		t = t.Add(idleTimeout - headerTimeout)
	}
	return c.Conn.SetReadDeadline(t)
}

// Read implements net.Conn.
func (c *silent) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 && !c.begun {
		c.begun = true
		if err == nil {
			err = c.Conn.SetReadDeadline(time.Now().Add(headerTimeout))
		}
	}
	return n, err
}

// brokenConnections counts what net/http would log for each bad connection, and logs only
// panics.
type brokenConnections struct{ *metrics }

// Write implements io.Writer. Only the beginning of a line is net/http's own words: a client may have any word in the
// rest, as by the protocols that it offers in TLS.
func (b brokenConnections) Write(line []byte) (int, error) {
	if _, what, _ := strings.Cut(string(line), ": "); strings.HasPrefix(what, "panic serving ") { // after "http" or "http2"
		log.Errorf("A request failed: %s", strings.TrimSpace(string(line)))
	} else {
		b.broken.Inc()
	}
	return len(line), nil
}

// URL returns the base of the URLs of clients, for an address to listen on. The word ADDRESS stands
// for one of this machine where that is not one which a client could use.
func (c *Config) URL(addr net.Addr) string {
	scheme, where := "http", addr.String()
	if c.CertFile != "" {
		scheme = "https"
	}
	if all, err := netip.ParseAddrPort(where); err == nil && all.Addr().IsUnspecified() {
		where = fmt.Sprintf("ADDRESS:%d", all.Port())
	}
	where = strings.Replace(where, "%", "%25", 1) // before a zone, RFC 6874
	return fmt.Sprintf("%s://%s", scheme, where)
}

// admin serves what operators ask for: metrics, and how the relay is.
func (r *Relay) admin() http.Handler {
	mux := http.NewServeMux()
	gatherers := prometheus.Gatherers{prometheus.DefaultGatherer, r.handler.metrics.registry}
	mux.Handle("GET /metrics", promhttp.HandlerFor(gatherers, promhttp.HandlerOpts{MaxRequestsInFlight: 4}))
	mux.Handle("GET /costs", r.handler.costs)
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok\n") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if !r.Ready() {
			http.Error(w, "no lists are in force yet, or the relay stops", http.StatusServiceUnavailable)
			return
		}
		_, _ = io.WriteString(w, "ok\n")
	})
	return mux
}
