package relay

import (
	"context"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/engine"
	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol"
	"github.com/coredns-safebrowsing/safebrowsing/internal/protocoltest"
)

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

// Accept implements net.Listener.
func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (p *pipes) Close() error {
	close(p.closed)
	return nil
}

// A whole site starts at the same time, the relay with an empty folder. Its clients wait for
// the relay's first contact, which may be a minute away, although a client gives up after 30
// seconds without the header of an answer.
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
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.cfg.Edge.FirstContact = func() time.Duration { return tc.contact }
				if tc.fault {
					w.google.Break("update", 1, protocoltest.Fault{Status: http.StatusServiceUnavailable})
				}
				w.start()
				defer w.relay.Close()
				if got := w.firstEntries(2 * time.Minute); got != tc.entries {
					t.Errorf("the client has entries: %d, want %d", got, tc.entries)
				}
			})
		})
	}
}

// firstEntries returns how many entries a client has that has asked the relay over HTTP, with
// the timeouts of both, for a time.
func (w *world) firstEntries(within time.Duration) int {
	w.t.Helper()
	network := newPipes()
	server := w.relay.server(w.relay)
	served := make(chan error)
	go func() { served <- server.Serve(network) }()
	transport := &http.Transport{DialContext: network.dial, ResponseHeaderTimeout: 30 * time.Second}
	s := engine.Settings{Endpoint: "http://relay.internal", Protocol: protocol.DialectV5.Name, Lists: "se-4b mw-4b"}
	c, release, err := engine.NewRegistry(engine.Edge{Transport: transport, FirstContact: atOnce}).Acquire(s, "")
	if err != nil {
		w.t.Fatal(err)
	}
	time.Sleep(within)
	n := entriesOfAll(c.Lists())
	release()
	transport.CloseIdleConnections()
	server.Close()
	<-served
	return n
}
