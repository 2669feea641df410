package testkit

import (
	"io"
	"net"
	"sync"
	"testing"
)

// Link is a network between a client and a server: a proxy for TCP that can be cut.
type Link struct {
	URL  string // of the link itself, for HTTP
	Addr string // "address:port" of the link itself

	server string // "address:port"

	mu    sync.Mutex
	whole *sync.Cond // told when a cut ends
	lost  bool       // what is sent arrives when the cut ends, as TCP sends it again
	down  bool       // connections are refused
	conns map[net.Conn]bool
}

// NewLink returns a link to a server that is closed when the test ends.
func NewLink(t testing.TB, server string) *Link {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	Must(t, err)
	l := &Link{URL: "http://" + listener.Addr().String(), Addr: listener.Addr().String(), server: server, conns: make(map[net.Conn]bool)}
	l.whole = sync.NewCond(&l.mu)
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			wg.Go(func() { l.serve(c) })
		}
	})
	t.Cleanup(func() {
		listener.Close()
		l.Set(false, true)
		wg.Wait()
	})
	return l
}

// Set cuts the link, or ends the cut. A link that is down closes its connections.
func (l *Link) Set(lost, down bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lost, l.down = lost, down
	if down {
		for c := range l.conns {
			c.Close()
		}
	}
	l.whole.Broadcast()
}

// add notes an open connection. It returns false if the link is down.
func (l *Link) add(c net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.down {
		l.conns[c] = true
	}
	return !l.down
}

// closeBoth closes the ends of a connection.
func (l *Link) closeBoth(ends ...net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range ends {
		c.Close()
		delete(l.conns, c)
	}
}

// serve connects a client with the server.
func (l *Link) serve(client net.Conn) {
	server, err := net.Dial("tcp", l.server)
	if err != nil {
		client.Close()
		return
	}
	defer l.closeBoth(client, server)
	if !l.add(client) || !l.add(server) {
		return
	}
	var wg sync.WaitGroup
	for _, way := range [][2]net.Conn{{client, server}, {server, client}} {
		wg.Go(func() {
			defer l.closeBoth(client, server)
			l.pass(way[0], way[1])
		})
	}
	wg.Wait()
}

// pass hands bytes on until the connection ends.
func (l *Link) pass(from io.Reader, to io.Writer) {
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		l.mu.Lock()
		for l.lost && !l.down {
			l.whole.Wait()
		}
		l.mu.Unlock()
		if _, err := to.Write(buffer[:n]); err != nil {
			return
		}
		if err != nil {
			return
		}
	}
}
