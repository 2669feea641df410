package fleet

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"
)

// link is a network between a client and a server: a proxy for TCP that can be cut.
type link struct {
	url    string
	server string // "address:port"

	mu    sync.Mutex
	whole *sync.Cond // told when a cut ends
	lost  bool       // what is sent arrives when the cut ends, as TCP sends it again
	down  bool       // connections are refused
	conns map[net.Conn]bool
}

// newLink returns a link to a server that is closed when the test ends.
func newLink(t testing.TB, server string) *link {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := &link{url: "http://" + listener.Addr().String(), server: server, conns: make(map[net.Conn]bool)}
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
		l.set(false, true)
		wg.Wait()
	})
	return l
}

// set cuts the link, or ends the cut. A link that is down closes its connections.
func (l *link) set(lost, down bool) {
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
func (l *link) add(c net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.down {
		l.conns[c] = true
	}
	return !l.down
}

// closeBoth closes the ends of a connection.
func (l *link) closeBoth(ends ...net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range ends {
		c.Close()
		delete(l.conns, c)
	}
}

// serve connects a client with the server.
func (l *link) serve(client net.Conn) {
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
func (l *link) pass(from io.Reader, to io.Writer) {
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

// A link hands on what is sent, late after a loss, and nothing while it is down.
func TestALinkCanBeCut(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "here") }))
	defer s.Close()
	l := newLink(t, s.Listener.Addr().String())
	get := func(timeout time.Duration) string {
		c := http.Client{Timeout: timeout, Transport: &http.Transport{DisableKeepAlives: true}}
		answer, err := c.Get(l.url)
		if err != nil {
			return "nothing"
		}
		defer answer.Body.Close()
		body, _ := io.ReadAll(answer.Body)
		return string(body)
	}
	for _, step := range []struct {
		name       string
		lost, down bool
		want       string
	}{{"at first", false, false, "here"}, {"lost", true, false, "nothing"}, {"down", false, true, "nothing"}, {"afterwards", false, false, "here"}} {
		l.set(step.lost, step.down)
		timeout := 20 * time.Second
		if step.lost {
			timeout = 50 * time.Millisecond
		}
		if got := get(timeout); got != step.want {
			t.Errorf("%s: got %s, want %s", step.name, got, step.want)
		}
	}
	l.set(true, false)
	late := make(chan string, 1)
	go func() { late <- get(20 * time.Second) }()
	l.set(false, false)
	if got := <-late; got != "here" {
		t.Errorf("after a loss: got %s", got)
	}
}
