package relay

import (
	"net"
	"net/netip"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

// minShare is the least that one client may have. A client that is a CoreDNS has as many
// searches under way at once.
const minShare = 16

// places are connections, or requests that wait, of which there may be so many at once. While
// half of them are taken, one client may have no more than a sixteenth: its flood leaves room
// for others. Create one with newPlaces. It is safe for concurrent use.
type places struct {
	most int

	mu    sync.Mutex
	taken int                // guarded by mu
	by    map[netip.Addr]int // of each client, never 0; guarded by mu
}

func newPlaces(most int) *places { return &places{most: most, by: make(map[netip.Addr]int)} }

// take takes a place for a client and reports whether there was one. If so, call leave once.
func (p *places) take(client netip.Addr) (leave func(), ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.taken >= p.most || p.taken >= p.most/2 && p.by[client] >= max(minShare, p.most/16) {
		return nil, false
	}
	p.taken++
	p.by[client]++
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.taken--
		if p.by[client]--; p.by[client] == 0 {
			delete(p.by, client)
		}
	}, true
}

// fairListener closes the connections of an address that has its share already. It is for a
// listener that has as many connections as there are places, or fewer.
type fairListener struct {
	net.Listener
	places *places
	broken prometheus.Counter // counts those that are closed
}

// Accept implements net.Listener.
func (l *fairListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		remote, _ := netip.ParseAddrPort(conn.RemoteAddr().String())
		if leave, ok := l.places.take(lookup.Site(remote.Addr())); ok {
			return &placedConn{Conn: conn, leave: sync.OnceFunc(leave)}, nil
		}
		l.broken.Inc()
		conn.Close()
	}
}

// placedConn is a connection that has a place until it is closed.
type placedConn struct {
	net.Conn
	leave func()
}

// Close implements net.Conn.
func (c *placedConn) Close() error {
	defer c.leave()
	return c.Conn.Close()
}
