package relay

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	clog "github.com/coredns/coredns/plugin/pkg/log"

	"github.com/coredns-safebrowsing/safebrowsing/internal/engine"
	"github.com/coredns-safebrowsing/safebrowsing/internal/files"
	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol"
	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol/pb/sbv5"
	"github.com/coredns-safebrowsing/safebrowsing/internal/protocoltest"
	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
	"github.com/coredns-safebrowsing/safebrowsing/updater"
)

func TestMain(m *testing.M) {
	if child := os.Getenv(childVariable); child != "" {
		runChild(child)
		return
	}
	clog.Discard()
	files.WaitLimit = time.Minute // temporary folders are removed after an end
	testkit.InMemory()
	testkit.TwoProcessors()
	testkit.SideBySide(8)
	m.Run()
}

// atOnce is a first contact without a delay.
func atOnce() time.Duration { return 0 }

// world is a judging server, a relay that asks it, and clients of the relay.
type world struct {
	t      testing.TB
	google *protocoltest.Server
	relay  *Relay
	cfg    Config
}

// newWorld returns a world whose relay is started by start. google answers without a socket.
func newWorld(t testing.TB) *world {
	w := &world{t: t, google: protocoltest.New(t)}
	for _, list := range []string{"se-4b", "mw-4b"} {
		w.google.SetMinimumWait(list, 30*time.Minute)
		w.google.Publish(list, nil)
	}
	w.threaten("evil.example/")
	w.cfg = Config{
		Settings:   engine.Settings{Endpoint: "http://google.internal", Protocol: protocol.DialectV5.Name, Lists: "se-4b mw-4b"},
		Edge:       engine.Edge{Transport: w.google, FirstContact: atOnce},
		Listen:     "127.0.0.1:0",
		fleetTimes: quick,
	}
	return w
}

// inWorld runs a test with a simulated clock and a world.
func inWorld(t *testing.T, f func(t *testing.T, w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(t, newWorld(t)) })
}

// runWorld is inWorld as a part of a test.
func runWorld(t *testing.T, name string, f func(t *testing.T, w *world)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { inWorld(t, f) })
}

// bubble runs a part of a test with a simulated clock.
func bubble(t *testing.T, name string, f func(t *testing.T)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { synctest.Test(t, f) })
}

// threaten lists expressions as phishing, and searches confirm them.
func (w *world) threaten(expressions ...string) {
	w.suspect(expressions...)
	for _, e := range expressions {
		w.google.AddThreat(e, sbv5.ThreatType_SOCIAL_ENGINEERING)
	}
}

// suspect lists expressions as phishing.
func (w *world) suspect(expressions ...string) {
	var entries [][]byte
	for _, e := range expressions {
		entries = append(entries, prefixOf(e, 4))
	}
	w.google.Publish("se-4b", entries)
}

// hostName returns the i-th of many hosts.
func hostName(i int) string { return fmt.Sprintf("h%d.example", i) }

// hosts returns the expressions of the first n of them.
func hosts(n int) (all []string) {
	for i := range n {
		all = append(all, hostName(i)+"/")
	}
	return all
}

// start starts the relay in a bubble, without sockets, and waits until it does nothing. It ends with the test.
func (w *world) start() {
	w.t.Helper()
	w.open()
	synctest.Wait()
}

// begin starts the relay and waits for its lists.
func (w *world) begin() {
	w.t.Helper()
	w.start()
	time.Sleep(time.Minute)
	synctest.Wait()
}

// open is start without a bubble.
func (w *world) open() {
	w.t.Helper()
	r, err := New(w.cfg)
	testkit.Must(w.t, err)
	w.t.Cleanup(r.Close)
	w.relay = r
}

// sleepUntil sleeps until an hour of the next day.
func sleepUntil(hour int) {
	now := time.Now()
	time.Sleep(time.Until(time.Date(now.Year(), now.Month(), now.Day()+1, hour, 0, 0, 0, time.Local)))
}

var errRefused = errors.New("connection refused")

// wire brings requests of clients to a handler, without a socket.
type wire struct {
	handler http.Handler // nil: connections are refused
	remote  string
	delay   time.Duration // of the answer
	old     atomic.Bool   // as a client that knows no longer entries
	unsent  bool          // a refused connection is known to have sent nothing
	mu      sync.Mutex
	paths   []string
	times   []time.Time
}

// connect replaces the handler and the delay.
func (c *wire) connect(handler http.Handler, delay time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.handler, c.delay = handler, delay
}

func (c *wire) RoundTrip(r *http.Request) (*http.Response, error) {
	c.mu.Lock()
	c.paths, c.times = append(c.paths, r.URL.Path), append(c.times, time.Now())
	handler, delay := c.handler, c.delay
	c.mu.Unlock()
	if handler == nil && c.unsent {
		return nil, &updater.NotSentError{Err: errRefused}
	}
	if handler == nil {
		return nil, errRefused
	}
	r = r.Clone(r.Context())
	r.RemoteAddr, r.RequestURI = c.remote, r.URL.RequestURI()
	if c.old.Load() {
		r.Header.Del(protocol.AsStoredHeader)
	}
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, r)
	select { // as a network does: an engine does not wait for long for a request that continues
	case <-time.After(delay):
	case <-r.Context().Done():
	}
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	return w.Result(), nil
}

// replica is a CoreDNS without a name server: an engine whose server is the relay.
type replica struct {
	*engine.Engine
	wire  *wire
	close func()
}

// replica starts a client, the n-th, without a random first contact, and waits until it does nothing. It ends with the test.
func (w *world) replica(n int) *replica { return w.replicaIn(lookup.Local, n, atOnce) }

// replicaIn is replica in a mode and with a first contact.
func (w *world) replicaIn(mode lookup.Mode, n int, firstContact func() time.Duration) *replica {
	w.t.Helper()
	remote := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, byte(n >> 8), byte(n)}), 4000)
	to := &wire{handler: w.relay, remote: remote.String()}
	s := engine.Settings{Endpoint: fmt.Sprintf("http://relay%d.internal", n), Protocol: protocol.DialectV5.Name, Lists: "se-4b mw-4b", Mode: mode}
	c := newReplica(w.t, engine.Edge{Transport: to, FirstContact: firstContact}, s)
	c.wire = to
	return c
}

func newReplica(t testing.TB, edge engine.Edge, s engine.Settings) *replica {
	t.Helper()
	c := new(replica)
	var err error
	c.Engine, c.close, err = engine.NewRegistry(edge).Acquire(s, "")
	testkit.Must(t, err)
	t.Cleanup(c.close)
	synctest.Wait()
	return c
}

// entries returns the number of entries that the client holds.
func (c *replica) entries() (n int) {
	for _, l := range c.Lists() {
		n += l.Set.Len()
	}
	return n
}

// decide returns the decision about a name.
func (c *replica) decide(qname string) lookup.Decision { return c.decideBy(nil, qname) }

// decideFor is decide for a DNS client, of whose share the search is.
func (c *replica) decideFor(client, qname string) lookup.Decision {
	return c.decideBy(lookup.AdmitBy(nil, c.Shares, netip.MustParseAddr(client)), qname)
}

func (c *replica) decideBy(admit lookup.Admit, qname string) lookup.Decision {
	d, candidates := c.Checker.Check(lookup.FromQname(qname))
	if candidates == nil {
		return d
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	return c.Checker.Confirm(candidates, admit).Wait(ctx)
}

// mustBe fails unless a client decides so about a name.
func (c *replica) mustBe(t *testing.T, want lookup.Verdict, qname string) {
	t.Helper()
	mustBe(t, want, c.decide(qname))
}

func mustBe(t *testing.T, want lookup.Verdict, d lookup.Decision) {
	t.Helper()
	if d.Verdict != want {
		t.Errorf("got %s by %s (%v), want %s", d.Verdict, d.By, d.Err, want)
	}
}

// mustNotWait fails if a client or a relay counts failures of searches, or waits after one.
func mustNotWait(t *testing.T, who string, hold updater.Hold) {
	t.Helper()
	testkit.Equal(t, fmt.Sprint(who, " waits: ", hold), hold.Failures != 0 || hold.Active(time.Now()), false)
}
