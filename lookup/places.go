package lookup

import (
	"net/netip"
	"sync"
)

// Places bounds how many queries do something at once, and keeps one client or one network
// from taking all the places. Create one with NewPlaces. It is safe for concurrent use.
//
// A client is what Site returns. A network is an IPv6 /32, which a registry gives to one
// provider, or an IPv4 /16.
type Places struct {
	first int

	mu    sync.Mutex
	taken int                // guarded by mu
	by    map[netip.Addr]int // places of each client, never 0; guarded by mu
	in    map[netip.Addr]int // places of each network, never 0; guarded by mu
}

const (
	maxPlaces     = 4096
	networkPlaces = 256 // of one network, while the first places are taken
	clientPlaces  = 64  // of one client, likewise
)

// NewPlaces returns 4,096 free places. Anybody may have the first ones: a network that is
// alone with its server takes nothing from others. While they are taken, a client may have
// at most 64, and a network 256.
func NewPlaces(first int) *Places {
	return &Places{first: first, by: make(map[netip.Addr]int), in: make(map[netip.Addr]int)}
}

// Take takes a place for a query of client and reports whether there was one. If so, call
// leave once, when the query no longer needs it.
func (p *Places) Take(client netip.Addr) (leave func(), ok bool) {
	site, network := Site(client), networkOf(client)
	p.mu.Lock()
	defer p.mu.Unlock()
	full := p.taken >= maxPlaces
	shared := p.taken >= p.first && (p.by[site] >= clientPlaces || p.in[network] >= networkPlaces)
	if full || shared {
		return nil, false
	}
	p.add(site, network, 1)
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.add(site, network, -1)
	}, true
}

// add is called with mu locked.
func (p *Places) add(site, network netip.Addr, n int) {
	p.taken += n
	if p.by[site] += n; p.by[site] == 0 {
		delete(p.by, site)
	}
	if p.in[network] += n; p.in[network] == 0 {
		delete(p.in, network)
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
