package lookup

import (
	"net"
	"net/netip"
	"sync"

	"golang.org/x/net/netutil"
)

// Places are what a server has few of: connections, or queries that wait. They keep one client, one
// network or the queries for one name from taking all of them. Create one with NewPlaces or
// NewConnections. It is safe for concurrent use.
//
// A client is what Site returns. A network is an IPv6 /32, which a registry gives to one
// provider, or an IPv4 /16. A name is told by a hash prefix: subdomains of a suspected name
// wait for the same one, and a flood of them can come from many networks.
type Places struct {
	first, most int
	// The most that one of each may have while the first places are taken.
	client, network, name int
	same                  int // most of one client for one name, at any time

	mu    sync.Mutex
	taken int                // guarded by mu
	by    map[netip.Addr]int // places of each client, never 0; guarded by mu
	in    map[netip.Addr]int // places of each network, never 0; guarded by mu
	of    map[Prefix]int     // places of each name, never 0; guarded by mu
	again map[pair]int       // places of each client for each name, never 0; guarded by mu
}

// pair is a client that waits for a name.
type pair struct {
	site netip.Addr
	name Prefix
}

// The shares of all places, while the first ones are taken.
const (
	networkShare = 16 // of one network
	nameShare    = 16 // of one name
	clientShare  = 64 // of one client
)

// samePlaces is what one client may have for one name at any time: several of its queries for
// a name at once are a page with subdomains, of three types each, or the people behind a
// forwarder. A thousand of them are a flood, which learns no more from the last than from the
// first.
const samePlaces = 32

// NewPlaces returns most free places; first is at most as much. Anybody may have the first
// ones: a network that is alone with its server takes nothing from others. While they are
// taken, a client may have at most a 64th of most, and a network a 16th, and so may the queries
// for one name; each may have one at least. One client may have at most 32 for one name at any
// time.
func NewPlaces(first, most int) *Places {
	share := func(parts int) int { return max(1, most/parts) }
	return newPlaces(&Places{first: first, most: most, client: share(clientShare), network: share(networkShare), name: share(nameShare), same: samePlaces})
}

// NewConnections returns n free places, 1 or more, for connections or requests of clients that
// are name servers. While half of them are taken, one client may have no more than a sixteenth, and
// 16, as many searches as a CoreDNS has under way.
func NewConnections(most int) *Places {
	return newPlaces(&Places{first: most / 2, most: most, client: max(16, most/16), network: most, name: most, same: most})
}

func newPlaces(p *Places) *Places {
	p.by, p.in, p.of, p.again = make(map[netip.Addr]int), make(map[netip.Addr]int), make(map[Prefix]int), make(map[pair]int)
	return p
}

// Take takes a place for a query of client, and reports whether there was one. The query waits
// for name, see Candidates.Shortest; "": for none. If ok is set, call leave once, when the query no
// longer needs its place.
func (p *Places) Take(client netip.Addr, name Prefix) (leave func(), ok bool) {
	site, network := Site(client), networkOf(client)
	p.mu.Lock()
	defer p.mu.Unlock()
	full := p.taken >= p.most || p.again[pair{site, name}] >= p.same
	shared := p.by[site] >= p.client || p.in[network] >= p.network || p.of[name] >= p.name
	if full || shared && p.taken >= p.first {
		return nil, false
	}
	p.add(site, network, name, 1)
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.add(site, network, name, -1)
	}, true
}

// add is called with mu locked.
func (p *Places) add(site, network netip.Addr, name Prefix, n int) {
	p.taken += n
	count(p.by, site, n)
	count(p.in, network, n)
	count(p.of, name, n)
	count(p.again, pair{site, name}, n)
}

func count[K comparable](places map[K]int, k K, n int) {
	if places[k] += n; places[k] == 0 {
		delete(places, k)
	}
}

func networkOf(client netip.Addr) netip.Addr {
	client = client.Unmap().WithZone("")
	bits := 16
	if client.Is6() {
		bits = 32
	}
	return netip.PrefixFrom(client, bits).Masked().Addr() // the zero Addr for a client without an address
}

// Listen returns a listener with at most n connections at once, that closes new ones of an
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

// Close implements net.Conn. It gives the place back first: once the connection is closed, the next
// one is accepted, and needs it.
func (c *placed) Close() error {
	c.leave()
	return c.Conn.Close()
}
