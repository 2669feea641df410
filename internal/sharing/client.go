// Package sharing lets relays act as one over Redis or Valkey. It is the only package that
// knows the client library.
//
//	Answers, Limits   what relays have been told, and whom they have served
//	Store             lease, clocks, counts and lists
//	Client            calls of Redis, below both
//
//
//	a client's request ─▶ Fast ── 25 ms, breaker ─▶ fast connection ──▶ Redis
//	                      Later ── bounded queue ──▶       〃
//	housekeeping ───────▶ Do, Eval, Subscribe ────▶ bulk connection ──▶ Redis
//
// Redis is never needed: Open does not wait for it, and each call returns an error when
// its time is over.
package sharing

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/valkey-io/valkey-go"

	"github.com/coredns-safebrowsing/safebrowsing/internal/files"
)

// Deadline is how long a request of a client waits for Redis. On one network an answer
// takes 0.1 to 0.5 ms, and some 10 ms where a machine is busy; a search of the server takes
// 20 ms and more, and may cost money, as one late answer does for each of its prefixes. A Redis
// that hangs delays few requests, see maxFailures.
const Deadline = 25 * time.Millisecond

// ErrAway says that Redis is left alone because it failed a moment ago.
var ErrAway = errors.New("leaving Redis alone")

// Observer is told what happens. Its methods are called from several goroutines at once
// and must return at once.
type Observer interface {
	// Done tells that an operation has ended, what it is for, and its error or nil.
	Done(operation string, took time.Duration, err error)
	// Dropped tells that a write of Later was not made, because too many waited.
	Dropped(operation string)
	// State tells that Redis is used from now on (err nil), or is left alone by Fast
	// and Later, and why.
	State(err error)
}

// Config says which Redis to use and how.
type Config struct {
	Target       Target
	Prefix       string        // of all keys, until SetPrefix; with a hash tag, as Cluster needs, see Key
	Password     string        // "": the Target's
	PasswordFile string        // read for each connection; "": none
	Sentinels    string        // password of the Sentinels; "": none
	CAFile       string        // of those who sign the certificate, in PEM form; "": the system's
	Resolver     *net.Resolver // nil: the system's
	Deadline     time.Duration // of Fast; zero: Deadline
	Observer     Observer      // may be nil
}

// Client is a connection to Redis that heals itself. It is safe for concurrent use.
type Client struct {
	cfg      Config
	deadline time.Duration
	options  valkey.ClientOption
	breaker  *breaker
	slots    chan struct{} // one element for each call of Fast under way
	later    chan write
	prefix   atomic.Pointer[string]

	fast, bulk atomic.Pointer[valkey.Client] // nil: not connected yet
	used       string                        // password of these connections; of the goroutine that connects

	ctx    context.Context // of connections and of the goroutines below
	cancel context.CancelFunc
	wg     sync.WaitGroup // one watches over the connections, one writes for Later
}

// maxFast is the most calls of Fast under way: more return ErrAway at once.
const maxFast = 256

// Open returns a client. It does not wait for Redis: until there is a connection, calls
// return an error. An error of Open is one of the configuration. The caller must Close
// the client.
func Open(cfg Config) (*Client, error) {
	ctx, cancel := context.WithCancel(context.Background())
	c := &Client{cfg: cfg, ctx: ctx, cancel: cancel, deadline: cmp.Or(cfg.Deadline, Deadline), slots: make(chan struct{}, maxFast), later: make(chan write, maxLater)}
	if c.cfg.Observer == nil {
		c.cfg.Observer = silent{}
	}
	if err := c.setOptions(); err != nil {
		cancel()
		return nil, err
	}
	c.SetPrefix(cfg.Prefix)
	c.breaker = newBreaker(c.cfg.Observer.State)
	c.wg.Go(func() { c.watch(ctx) })
	c.wg.Go(func() { c.write(ctx) })
	return c, nil
}

// Close ends the client: calls that are under way return an error. It does not wait
// for writes that Later has queued, nor for a disk that hangs while the password is read.
func (c *Client) Close() {
	c.cancel() // this alone closes all connections
	files.Wait(func() {
		c.wg.Wait()
		c.disconnect()
	})
}

// disconnect ends the connections.
func (c *Client) disconnect() {
	for _, p := range []*atomic.Pointer[valkey.Client]{&c.fast, &c.bulk} {
		if client := p.Swap(nil); client != nil {
			(*client).Close()
		}
	}
}

// Key returns the key with a name, which has the prefix of the client.
func (c *Client) Key(name string) string { return *c.prefix.Load() + name }

// SetPrefix replaces the prefix of the client.
func (c *Client) SetPrefix(prefix string) { c.prefix.Store(&prefix) }

const (
	// dialTimeout bounds a connection from the name's lookup to the end of TLS.
	dialTimeout = 5 * time.Second
	// answerTimeout is how long a connection may be silent while an answer is due.
	answerTimeout = 10 * time.Second
	// maxFile is the most bytes of the file with the password, and of the one with authorities.
	maxFile = 1 << 20
	// maxRedirects is how often the nodes of a cluster may send one call on.
	maxRedirects = 5
)

// setOptions sets the options of the library: one connection for each client and node, small
// buffers, no cache. The defaults take a MiB for each of four connections.
func (c *Client) setOptions() error {
	t := c.cfg.Target
	c.options = valkey.ClientOption{
		InitAddress: t.Addresses, SelectDB: t.DB, ClientName: "safebrowsing",
		Username: t.User,
		Dialer:   net.Dialer{Timeout: dialTimeout, KeepAlive: time.Second, Resolver: c.cfg.Resolver}, DialCtxFn: c.dial,
		DisableCache: true, PipelineMultiplex: -1, RingScaleEachConn: 8,
		ReadBufferEachConn: 16 << 10, WriteBufferEachConn: 16 << 10,
		// Without it a call with a deadline may close the connection when it is late.
		AlwaysPipelining:  true,
		ConnWriteTimeout:  answerTimeout,
		ForceSingleClient: t.Kind == Single,
		// Nodes that announce a wrong address redirect to themselves for ever.
		ClusterOption: valkey.ClusterOption{MaxMovedRedirections: maxRedirects},
	}
	if t.TLS {
		roots, err := rootsOf(c.cfg.CAFile)
		if err != nil {
			return err
		}
		c.options.TLSConfig = &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}
	}
	if t.Kind == Sentinel {
		c.options.Sentinel = valkey.SentinelOption{MasterSet: t.Master, Dialer: c.options.Dialer, TLSConfig: c.options.TLSConfig,
			Password: c.cfg.Sentinels, TopologyRefreshInterval: 5 * time.Second}
	}
	_, err := c.password()
	return err
}

// rootsOf reads a file of certificates. No file: the roots of the system.
func rootsOf(file string) (*x509.CertPool, error) {
	if file == "" {
		return nil, nil
	}
	text, err := files.Read(file, maxFile)
	if err != nil {
		return nil, fmt.Errorf("reading the CA of Redis: %w", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("reading the CA of Redis: %s has no certificate in PEM form", file)
	}
	return roots, nil
}

// password returns the password that is valid now.
func (c *Client) password() (string, error) {
	if c.cfg.PasswordFile == "" {
		return cmp.Or(c.cfg.Password, c.cfg.Target.Password), nil
	}
	text, err := files.Read(c.cfg.PasswordFile, maxFile)
	if err != nil {
		return "", fmt.Errorf("reading the password of Redis: %w", err)
	}
	return strings.TrimSpace(string(text)), nil
}

// dial connects, with TLS if there is a configuration for it. The time covers TLS too.
func (c *Client) dial(ctx context.Context, address string, dialer *net.Dialer, config *tls.Config) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialer.Timeout)
	defer cancel()
	defer context.AfterFunc(c.ctx, cancel)()
	var made net.Conn
	var err error
	if config == nil {
		made, err = dialer.DialContext(ctx, "tcp", address)
	} else {
		d := tls.Dialer{NetDialer: dialer, Config: config} // it takes the server's name from the address
		made, err = d.DialContext(ctx, "tcp", address)
	}
	if err != nil {
		return nil, err
	}
	return &connection{Conn: made, guard: newGuard(), stop: context.AfterFunc(c.ctx, func() { made.Close() })}, nil
}

// connection is closed with its Client, as the library would wait for a server that hangs, and
// when its guard finds something wrong.
type connection struct {
	net.Conn
	guard *guard
	wrong atomic.Pointer[error] // what the guard has found
	stop  func() bool
}

// Read implements net.Conn.
func (c *connection) Read(p []byte) (n int, err error) {
	if c.wrong.Load() != nil {
		return 0, c.why(net.ErrClosed)
	}
	n, err = c.Conn.Read(p)
	if wrong := c.guard.received(p[:n]); wrong != nil {
		return 0, c.refuse(wrong) // the other end is no Redis
	}
	return n, c.why(err)
}

// Write implements net.Conn.
func (c *connection) Write(p []byte) (int, error) {
	if err := c.guard.sent(p); err != nil {
		return 0, c.refuse(err)
	}
	n, err := c.Conn.Write(p)
	return n, c.why(err)
}

// refuse closes the connection for what the guard has found.
func (c *connection) refuse(wrong error) error {
	c.wrong.Store(&wrong)
	_ = c.Close()
	return wrong
}

// why returns what the guard has found instead of an error that follows from it: one goroutine reads, another one
// writes, and the library tells the first error.
func (c *connection) why(err error) error {
	if wrong := c.wrong.Load(); err != nil && wrong != nil {
		return *wrong
	}
	return err
}

// Close implements net.Conn.
func (c *connection) Close() error {
	c.stop()
	return c.Conn.Close()
}

// connect makes the connections that there are not yet. Only one goroutine calls it.
func (c *Client) connect() error {
	password, unread := c.password()
	if unread == nil {
		if c.cfg.Target.Kind == Sentinel && password != c.used { // others ask for it when they connect
			c.disconnect()
		}
		c.used = password
	}
	for _, p := range []*atomic.Pointer[valkey.Client]{&c.fast, &c.bulk} {
		if p.Load() != nil {
			continue
		}
		if unread != nil {
			return unread
		}
		options := c.options
		options.Password = password
		if c.cfg.PasswordFile != "" && c.cfg.Target.Kind != Sentinel { // Sentinels have a password of their own
			options.AuthCredentialsFn = func(valkey.AuthCredentialsContext) (valkey.AuthCredentials, error) {
				password, err := c.password()
				return valkey.AuthCredentials{Username: options.Username, Password: password}, err
			}
		}
		if c.cfg.Target.Kind == Cluster {
			options.PipelineMultiplex = 0 // of a cluster: one connection for each node
		}
		client, err := valkey.NewClient(options)
		if err != nil {
			if client != nil {
				client.Close()
			}
			return fmt.Errorf("connecting: %w", err)
		}
		p.Store(&client)
	}
	return nil
}

// silent observes nothing.
type silent struct{}

func (silent) Done(string, time.Duration, error) {}
func (silent) Dropped(string)                    {}
func (silent) State(error)                       {}
