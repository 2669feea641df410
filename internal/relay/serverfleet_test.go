package relay

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/engine"
	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol"
	"github.com/coredns-safebrowsing/safebrowsing/internal/protocoltest"
	"github.com/coredns-safebrowsing/safebrowsing/internal/sharing"
	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
	"github.com/coredns-safebrowsing/safebrowsing/updater"
)

// However the relay ends and comes back, clients keep what they have, the server is not asked
// early, and clients with versions of before need no full update.
func TestTheRelayComesBack(t *testing.T) {
	for _, tc := range []struct {
		name string
		back func(t *testing.T, w *world)
		lost bool // the relay asks for lists again
	}{
		{"restarted", func(_ *testing.T, w *world) {
			w.relay.Close()
			w.google.ClientStarted()
		}, false},
		{"killed", func(t *testing.T, w *world) {
			copied := t.TempDir()
			testkit.Must(t, os.CopyFS(copied, os.DirFS(w.cfg.Settings.DB)))
			w.relay.Close()
			w.cfg.Settings.DB = copied
			w.google.ClientStarted()
		}, false},
		{"given an empty folder", func(t *testing.T, w *world) {
			w.relay.Close()
			w.cfg.Settings.DB = t.TempDir()
			w.google.ClientLostState()
		}, true},
		{"without its history", func(t *testing.T, w *world) {
			w.relay.Close()
			testkit.Must(t, os.RemoveAll(filepath.Join(w.cfg.Settings.DB, "relay")))
			w.google.ClientStarted()
		}, false},
		{"with a damaged list", func(t *testing.T, w *world) {
			w.relay.Close()
			files, err := filepath.Glob(filepath.Join(w.cfg.Settings.DB, "*se-4b*"))
			if err != nil || len(files) == 0 {
				t.Fatalf("%v, %v", files, err)
			}
			for _, file := range files {
				put(t, file, "damaged")
			}
			w.google.ClientStarted()
		}, false},
	} {
		runWorld(t, tc.name, func(t *testing.T, w *world) { comesBack(t, w, tc.back, tc.lost) })
	}
}

func comesBack(t *testing.T, w *world, back func(*testing.T, *world), lost bool) {
	w.cfg.Settings.DB = t.TempDir()
	w.start()
	c := w.replica(1)
	c.mustBe(t, lookup.Unsafe, "evil.example.")
	fetched := len(w.google.Requests("update"))
	back(t, w)
	w.start()
	c.wire.connect(w.relay, 0)
	time.Sleep(10 * time.Minute)
	if n := len(w.google.Requests("update")) - fetched; (n > 0) != lost {
		t.Errorf("%d requests for lists within 10 minutes, want some: %t", n, lost)
	}
	c.mustBe(t, lookup.Unsafe, "evil.example.")
	w.threaten("evil.example/", "worse.example/")
	time.Sleep(31 * time.Minute)
	if c.mustBe(t, lookup.Unsafe, "worse.example."); c.entries() != 2 {
		t.Errorf("after the next update: entries: %d", c.entries())
	}
}

// pipes is a network within a testing/synctest bubble. It is a net.Listener.
type pipes struct {
	net.Listener // only for Addr
	conns        chan net.Conn
	closed       chan struct{}
}

func newPipes() *pipes { return &pipes{conns: make(chan net.Conn), closed: make(chan struct{})} }

// dial is for http.Transport.
func (p *pipes) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	client, server := net.Pipe()
	select {
	case p.conns <- server:
		return client, nil
	case <-p.closed:
		return nil, errRefused
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	close(p.closed)
	return nil
}

// A whole site starts at the same time, the relay with an empty folder. Its clients wait for the relay's first contact, which may be a
// minute away, although a client gives up after 30 seconds without the header of an answer.
func TestClientsGetTheFirstListsOverHTTP(t *testing.T) {
	for _, tc := range []struct {
		name    string
		contact time.Duration
		fault   bool // the first fetch fails
		entries int
	}{
		{"at once", 0, false, 1},
		{"before the header is due", 24 * time.Second, false, 1},
		{"after the header", 26 * time.Second, false, 1},
		{"after the client's timeout for a header", 40 * time.Second, false, 1},
		{"after the longest first contact", 59 * time.Second, false, 1},
		{"too late", 3 * time.Minute, false, 0},
		{"the relay gets nothing", 40 * time.Second, true, 0},
	} {
		runWorld(t, tc.name, func(t *testing.T, w *world) {
			w.cfg.Edge.FirstContact = func() time.Duration { return tc.contact }
			if tc.fault {
				w.google.Break("update", 1, protocoltest.Fault{Status: http.StatusServiceUnavailable})
			}
			w.start()
			if got := w.firstEntries(2 * time.Minute); got != tc.entries {
				t.Errorf("the client has entries: %d, want %d", got, tc.entries)
			}
		})
	}
}

// firstEntries returns how many entries a client has that has asked the relay over HTTP, with the timeouts of both, for a time.
func (w *world) firstEntries(within time.Duration) int {
	w.t.Helper()
	network := newPipes()
	server := w.relay.server(w.relay)
	served := make(chan error)
	go func() { served <- server.Serve(network) }()
	transport := &http.Transport{DialContext: network.dial, ResponseHeaderTimeout: 30 * time.Second}
	s := engine.Settings{Endpoint: "http://relay.internal", Protocol: protocol.DialectV5.Name, Lists: "se-4b mw-4b"}
	c := newReplica(w.t, engine.Edge{Transport: transport, FirstContact: atOnce}, s)
	time.Sleep(within)
	n := c.entries()
	c.close()
	transport.CloseIdleConnections()
	server.Close()
	<-served
	return n
}

// quick are times that let a test see several leases.
var quick = sharing.StoreConfig{Lease: 3 * time.Second, Beat: 100 * time.Millisecond, Settle: 600 * time.Millisecond, Spread: 100 * time.Millisecond}

// judged returns a judging server on a socket whose list has names.
func judged(t *testing.T, names int) *world {
	w := newWorld(t)
	w.threaten(hosts(names)...)
	w.listen(nil)
	w.cfg.Settings.DB = t.TempDir()
	return w
}

// listen gives the server of a world a socket. before, unless nil, is called before each answer: an error is none.
func (w *world) listen(before func(*http.Request) error) {
	server := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, q *http.Request) {
		if before == nil || before(q) == nil {
			w.google.ServeHTTP(rw, q)
		}
	}))
	w.t.Cleanup(server.Close)
	w.cfg.Settings.Endpoint, w.cfg.Edge.Transport = server.URL, nil
}

// A relay starts without Redis, serves the lists of its folder, and asks for none. When Redis is
// there, it has one leader again, until it is lost. The log has one line for each state.
func TestARelayWithListsStartsWithoutRedis(t *testing.T) {
	testkit.Long(t)
	lines := testkit.Capture(t)
	w := judged(t, 20)
	w.cfg.Admin = "127.0.0.1:0"
	alone := run(t, w.cfg)
	testkit.Until(t, "lists in the folder", func() bool {
		l, err := updater.Status(w.cfg.Settings.DB)
		return err == nil && len(l) == 2 && l[0].Err == nil && l[1].Err == nil
	})
	testkit.Must(t, alone.stop())
	s := testkit.StartRedis(t)
	s.Kill()
	w.cfg.Redis = redisOf(t, s)
	r := run(t, w.cfg)
	testkit.Until(t, "the loss of Redis", func() bool { return len(lines.About("Cannot use Redis")) == 1 })
	shows(t, r.admin+"/metrics", "safebrowsing_relay_leader 0\n")
	testkit.WantOK(t, r.admin+"/readyz")
	s = testkit.StartRedisAt(t, s.Addr)
	shows(t, r.admin+"/metrics", "safebrowsing_relay_leader 1\n")
	shows(t, r.admin+"/metrics", `safebrowsing_relay_redis_list_updated_timestamp_seconds{list="se-4b"} `)
	if got := len(w.google.Requests("update")); got != 1 {
		t.Errorf("Expected that a wait in the folder holds, got %d requests for lists", got)
	}
	for line, want := range map[string]int{"Cannot use Redis": 1, "This relay shares lists, clocks, answers and limits": 1, "This relay fetches lists for all": 1} {
		if got := lines.About(line); len(got) != want {
			t.Errorf("Expected %d line with %q, got %q", want, line, got)
		}
	}
	s.Kill()
	shows(t, r.admin+"/metrics", "safebrowsing_relay_redis_up 0\n")
	shows(t, r.admin+"/metrics", "safebrowsing_relay_leader 0\n")
	testkit.Until(t, "a line about the end of the lease", func() bool { return len(lines.About("This relay no longer fetches lists")) > 0 })
	lines.Only(t, "This relay no longer fetches lists")
}

// A client keeps a connection that it has not used yet, for 90 s. A server that ends it sooner may do so when a search
// is on its way. What has begun a request is not waited for.
func TestAConnectionMayBeSilentAsLongAsAnIdleOne(t *testing.T) {
	for name, tc := range map[string]struct {
		begins string
		wait   time.Duration
		served bool
	}{
		"silent for as long as a client keeps it": {"", 91 * time.Second, true},
		"silent for longer":                       {"", idleTimeout + time.Second, false},
		"half a header":                           {"GET /none HTTP/1.1\r\nHost: ", headerTimeout + time.Second, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				network := newPipes()
				server := (&Relay{handler: &handler{metrics: newMetrics()}}).server(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					select { // a search takes its time
					case <-time.After(20 * time.Second):
					case <-r.Context().Done():
						w.WriteHeader(http.StatusTeapot)
					}
				}))
				go func() { _ = server.Serve(unhurried{network}) }()
				defer server.Close()
				conn, err := network.dial(t.Context(), "", "")
				testkit.Must(t, err)
				defer conn.Close()
				_, err = io.WriteString(conn, tc.begins)
				testkit.Must(t, err)
				time.Sleep(tc.wait)
				_, err = io.WriteString(conn, strings.TrimPrefix("GET /none HTTP/1.1\r\nHost: relay\r\n\r\n", tc.begins))
				answer := new(http.Response)
				if err == nil {
					answer, err = http.ReadResponse(bufio.NewReader(conn), nil)
				}
				if served := err == nil && answer.StatusCode == http.StatusOK; served != tc.served {
					t.Errorf("served %t, want %t: %v, %v", served, tc.served, answer, err)
				}
			})
		})
	}
}
