package status

import (
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

// maxConnections is the most connections to one page at once. One client may have half of them,
// and only a quarter while half are taken.
const maxConnections = 64

// Pages are the pages of a process: one for each address, however many server blocks name
// it. A page continues over a reload that names its address again. The zero value has none; it
// is safe for concurrent use.
type Pages struct {
	mu   sync.Mutex
	open map[string]*server
}

// server serves one page.
type server struct {
	http.Server
	at      net.Addr
	holders int
}

// Open serves the page of a source at an address, unless it is served there already, and
// returns how to let go of it: with its last holder the page ends. at is where it is served,
// or nil if it was served already: then the source is not used.
func (p *Pages) Open(address string, source Source) (at net.Addr, release func(), err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.open[address]
	if s == nil {
		if s, err = serve(address, source); err != nil {
			return nil, nil, err
		}
		if p.open == nil {
			p.open = make(map[string]*server)
		}
		p.open[address], at = s, s.at
	}
	s.holders++
	return at, sync.OnceFunc(func() { p.release(address, s) }), nil
}

func (p *Pages) release(address string, s *server) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if s.holders--; s.holders == 0 {
		delete(p.open, address)
		s.Close()
	}
}

// serve listens and serves, until Close.
func serve(address string, source Source) (*server, error) {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listening: %w", err)
	}
	s := &server{at: listener.Addr(), Server: http.Server{
		Handler:           handler(source),
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second,
		WriteTimeout:      10 * time.Second,
		IdleTimeout:       30 * time.Second,
		MaxHeaderBytes:    8 << 10,
	}}
	go s.Serve(lookup.Listen(listener, maxConnections, nil))
	return s, nil
}
