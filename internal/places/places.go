// Package places gives out what a server has few of, such as connections, so that one client
// leaves room for others.
package places

import (
	"net"
	"net/netip"
	"sync"

	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

// minShare is the least that one client may have. A client that is a CoreDNS has as many
// searches under way at once.
const minShare = 16

// Places are connections, or requests that wait, of which there may be so many at once. While
// half of them are taken, one client may have no more than a sixteenth: its flood leaves room
// for others. Create one with New. It is safe for concurrent use.
type Places struct {
	most int

	mu    sync.Mutex
	taken int                // guarded by mu
	by    map[netip.Addr]int // of each client, never 0; guarded by mu
}

// New returns so many free places, 1 or more.
func New(most int) *Places { return &Places{most: most, by: make(map[netip.Addr]int)} }

// Take takes a place for a client and reports whether there was one. If so, call leave once.
func (p *Places) Take(client netip.Addr) (leave func(), ok bool) {
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

// Listener closes the connections of an address that has its share already. It is for a
// listener that has as many connections as there are places, or fewer.
type Listener struct {
	net.Listener
	Places  *Places
	Refused func() // is told of those that are closed; nil: nobody is
}

// Accept implements net.Listener.
func (l *Listener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		remote, _ := netip.ParseAddrPort(conn.RemoteAddr().String())
		if leave, ok := l.Places.Take(lookup.Site(remote.Addr())); ok {
			return &placedConn{Conn: conn, leave: sync.OnceFunc(leave)}, nil
		}
		if l.Refused != nil {
			l.Refused()
		}
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
