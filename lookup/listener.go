package lookup

import (
	"net"
	"net/netip"
	"sync"

	"golang.org/x/net/netutil"
)

// Limit returns a listener with at most so many connections at once, that closes new ones of an
// address that has its share of them, see NewConnections. refused is told of these; nil:
// nobody is.
func Listen(l net.Listener, most int, refused func()) net.Listener {
	if refused == nil {
		refused = func() {}
	}
	return &limited{netutil.LimitListener(l, most), NewConnections(most), refused}
}

type limited struct {
	net.Listener
	places  *Places
	refused func()
}

// Accept implements net.Listener.
func (l *limited) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		remote, _ := netip.ParseAddrPort(conn.RemoteAddr().String())
		if leave, ok := l.places.Take(remote.Addr(), ""); ok {
			return &placed{Conn: conn, leave: sync.OnceFunc(leave)}, nil
		}
		l.refused()
		conn.Close()
	}
}

// placed is a connection that has a place until it is closed.
type placed struct {
	net.Conn
	leave func()
}

// Close implements net.Conn.
func (c *placed) Close() error {
	defer c.leave()
	return c.Conn.Close()
}
