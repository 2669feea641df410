package lookup

import (
	"net/netip"
	"sync"
	"testing"
)

const firstPlaces, mostPlaces = 512, 4096

// What one of them may have while the first places are taken.
const clientPlaces, networkPlaces, namePlaces = 64, 256, 256

// Clients of a network, each with a site of its own.
func clientsOf(n, network int) netip.Addr {
	return netip.AddrFrom16([16]byte{0x2a, 0, byte(network >> 8), byte(network), byte(n >> 16), byte(n >> 8), byte(n), 15: 1})
}

func TestPlacesAreShared(t *testing.T) {
	for _, test := range []struct {
		name  string
		flood func(n int) netip.Addr
		names int // that the flood asks for; 0: each query has its own
		want  int // places that the flood gets
	}{
		{"one client", func(int) netip.Addr { return netip.MustParseAddr("192.0.2.1") }, 0, firstPlaces},
		{"a client without an address", func(int) netip.Addr { return netip.Addr{} }, 0, firstPlaces},
		{"one IPv6 site", func(n int) netip.Addr {
			return netip.AddrFrom16([16]byte{0x20, 1, 0x0d, 0xb8, 14: byte(n >> 8), 15: byte(n)})
		}, 0, firstPlaces},
		{"one IPv6 /32", func(n int) netip.Addr { return clientsOf(n, 0) }, 0, firstPlaces},
		{"one IPv4 /16", func(n int) netip.Addr { return netip.AddrFrom4([4]byte{10, 1, byte(n >> 8), byte(n)}) }, 0, firstPlaces},
		{"one IPv4 /16, mapped", func(n int) netip.Addr {
			return netip.AddrFrom16(netip.AddrFrom4([4]byte{10, 1, byte(n >> 8), byte(n)}).As16())
		}, 0, firstPlaces},
		{"one client, one name", func(int) netip.Addr { return netip.MustParseAddr("192.0.2.1") }, 1, samePlaces},
		{"one client, three names", func(int) netip.Addr { return netip.MustParseAddr("192.0.2.1") }, 3, 3 * samePlaces},
		{"many networks", func(n int) netip.Addr { return clientsOf(0, n) }, 0, mostPlaces},
		{"many networks, one name", func(n int) netip.Addr { return clientsOf(0, n) }, 1, firstPlaces},
		{"many networks, three names", func(n int) netip.Addr { return clientsOf(0, n) }, 3, 3 * namePlaces},
	} {
		t.Run(test.name, func(t *testing.T) {
			p := NewPlaces(firstPlaces, mostPlaces)
			var leaves []func()
			for n := range 2 * mostPlaces {
				name := n
				if test.names > 0 {
					name = n % test.names
				}
				if leave, ok := p.Take(test.flood(n), prefixOf(name)); ok {
					leaves = append(leaves, leave)
				}
			}
			if len(leaves) != test.want {
				t.Errorf("Expected the flood to get %d places, got %d", test.want, len(leaves))
			}
			if _, ok := p.Take(netip.MustParseAddr("203.0.113.9"), prefixOf(2*mostPlaces)); ok != (test.want < mostPlaces) {
				t.Errorf("Expected a place for another client: %v, got %v", test.want < mostPlaces, ok)
			}
			for _, leave := range leaves {
				leave()
			}
			if p.taken > 1 || len(p.by) > 1 || len(p.in) > 1 || len(p.of) > 1 || len(p.again) > 1 {
				t.Errorf("Expected nothing to be remembered of the flood, got %d places, %d clients, %d networks and %d names", p.taken, len(p.by), len(p.in), len(p.of))
			}
		})
	}
}

// Other clients have a share each, though a network has taken all that it may.
func TestShareOfAClientAndOfANetwork(t *testing.T) {
	p := NewPlaces(firstPlaces, mostPlaces)
	for n := range firstPlaces {
		p.Take(clientsOf(n, 0), prefixOf(n))
	}
	got := 0
	for n := range clientPlaces + 1 {
		if _, ok := p.Take(clientsOf(0, 1), prefixOf(n)); ok {
			got++
		}
	}
	for n := range networkPlaces {
		if _, ok := p.Take(clientsOf(1+n, 1), prefixOf(n)); ok {
			got++
		}
	}
	if got != networkPlaces {
		t.Errorf("Expected %d places for a second network, %d of them for one client, got %d", networkPlaces, clientPlaces, got)
	}
}

func TestAClientWaitsForOneNameAFewTimes(t *testing.T) {
	p := NewPlaces(2048, 4096)
	flooder, neighbour := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")
	got := 0
	for range 2048 {
		if _, ok := p.Take(flooder, prefixOf(1)); ok {
			got++
		}
	}
	if got != samePlaces {
		t.Errorf("Expected %d places for one client and one name, got %d", samePlaces, got)
	}
	if _, ok := p.Take(neighbour, prefixOf(1)); !ok {
		t.Error("Expected a place for another client that asks for the name")
	}
	if _, ok := p.Take(flooder, prefixOf(2)); !ok {
		t.Error("Expected a place for another name of the client")
	}
}

// However few places there are, each client gets one if it is free.
func TestFewPlacesAreShared(t *testing.T) {
	p := NewPlaces(4, 8)
	for n := range 4 {
		p.Take(clientsOf(n, 0), prefixOf(n))
	}
	for n := range 8 {
		if _, ok := p.Take(clientsOf(0, 1+n), prefixOf(4+n)); ok != (n < 4) {
			t.Errorf("Place %d: got %v", 5+n, ok)
		}
	}
}

func TestPlacesOfManyAtOnce(t *testing.T) {
	p := NewPlaces(firstPlaces, mostPlaces)
	var all sync.WaitGroup
	for network := range 8 {
		all.Go(func() {
			for n := range 2000 {
				if leave, ok := p.Take(clientsOf(n, network), prefixOf(n)); ok {
					leave()
				} else {
					t.Error("Expected a place: at most 8 are taken")
				}
			}
		})
	}
	all.Wait()
	if p.taken != 0 || len(p.by) != 0 || len(p.in) != 0 || len(p.of) != 0 || len(p.again) != 0 {
		t.Errorf("Expected no place to be taken, got %d", p.taken)
	}
}
