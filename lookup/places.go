package lookup

import (
	"net/netip"
	"sync"
)

// Places bounds how many queries do something at once, and keeps one client, one network or
// the queries for one name from taking all the places. Create one with NewPlaces. It is safe
// for concurrent use.
//
// A client is what Site returns. A network is an IPv6 /32, which a registry gives to one
// provider, or an IPv4 /16. A name is told by a hash prefix: subdomains of a suspected name
// wait for the same one, and a flood of them can come from many networks.
type Places struct {
	first int

	mu    sync.Mutex
	taken int                // guarded by mu
	by    map[netip.Addr]int // places of each client, never 0; guarded by mu
	in    map[netip.Addr]int // places of each network, never 0; guarded by mu
	of    map[Prefix]int     // places of each name, never 0; guarded by mu
}

const (
	maxPlaces     = 4096
	networkPlaces = 256 // of one network, while the first places are taken
	namePlaces    = 256 // of one name, likewise
	clientPlaces  = 64  // of one client, likewise
)

// NewPlaces returns 4,096 free places. Anybody may have the first ones: a network that is
// alone with its server takes nothing from others. While they are taken, a client may have
// at most 64, and a network 256, and so may the queries for one name.
func NewPlaces(first int) *Places {
	return &Places{first: first, by: make(map[netip.Addr]int), in: make(map[netip.Addr]int), of: make(map[Prefix]int)}
}

// Take takes a place for a query of client, and reports whether there was one. The query waits
// for name, see Candidates.Shortest. If ok is set, call leave once, when the query no longer
// needs its place.
func (p *Places) Take(client netip.Addr, name Prefix) (leave func(), ok bool) {
	site, network := Site(client), networkOf(client)
	p.mu.Lock()
	defer p.mu.Unlock()
	full := p.taken >= maxPlaces
	shared := p.by[site] >= clientPlaces || p.in[network] >= networkPlaces || p.of[name] >= namePlaces
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
