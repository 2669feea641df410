package lookup

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
)

const firstPlaces, mostPlaces = 512, 4096

// What one of them may have while the first places are taken.
const clientPlaces, networkPlaces, namePlaces = 64, 256, 256

// Clients of a network, each with a site of its own.
func clientsOf(n, network int) netip.Addr {
	return netip.AddrFrom16([16]byte{0x2a, 0, byte(network >> 8), byte(network), byte(n >> 16), byte(n >> 8), byte(n), 15: 1})
}

func mapped(of ...byte) netip.Addr { return netip.AddrFrom16(netip.AddrFrom4([4]byte(of)).As16()) }

func TestPlacesAreShared(t *testing.T) {
	for _, test := range []struct {
		name  string
		flood func(n int) netip.Addr
		names int // that the flood asks for; 0: each query has its own
		want  int // places that the flood gets
	}{
		{"one client", func(int) netip.Addr { return netip.MustParseAddr("192.0.2.1") }, 0, firstPlaces},
		{"a client without an address", func(int) netip.Addr { return netip.Addr{} }, 0, firstPlaces},
		{"one IPv6 site", func(n int) netip.Addr { return netip.AddrFrom16([16]byte{0x20, 14: byte(n >> 8), 15: byte(n)}) }, 0, firstPlaces},
		{"one IPv6 /32", func(n int) netip.Addr { return clientsOf(n, 0) }, 0, firstPlaces},
		{"one IPv4 /16", func(n int) netip.Addr { return netip.AddrFrom4([4]byte{10, 1, byte(n >> 8), byte(n)}) }, 0, firstPlaces},
		{"one IPv4 /16, mapped", func(n int) netip.Addr { return mapped(10, 1, byte(n>>8), byte(n)) }, 0, firstPlaces},
		{"one client, one name", func(int) netip.Addr { return netip.MustParseAddr("192.0.2.1") }, 1, samePlaces},
		{"one client, three names", func(int) netip.Addr { return netip.MustParseAddr("192.0.2.1") }, 3, 3 * samePlaces},
		{"many networks", func(n int) netip.Addr { return clientsOf(0, n) }, 0, mostPlaces},
		{"many IPv4 networks, mapped", func(n int) netip.Addr { return mapped(byte(n>>8), byte(n), 0, 1) }, 0, mostPlaces},
		{"many networks, one name", func(n int) netip.Addr { return clientsOf(0, n) }, 1, firstPlaces},
		{"many networks, three names", func(n int) netip.Addr { return clientsOf(0, n) }, 3, 3 * namePlaces},
	} {
		p := NewPlaces(firstPlaces, mostPlaces)
		var leaves []func()
		for n := range 2 * mostPlaces {
			if leave, ok := p.Take(test.flood(n), prefixOf(n%cmp.Or(test.names, 2*mostPlaces))); ok {
				leaves = append(leaves, leave)
			}
		}
		_, ok := p.Take(netip.MustParseAddr("203.0.113.9"), prefixOf(2*mostPlaces))
		testkit.Equal(t, test.name+": places, and one for another client", []any{len(leaves), ok}, []any{test.want, test.want < mostPlaces})
		for _, leave := range leaves {
			leave()
		}
		testkit.Between(t, test.name+": what is remembered", max(p.taken, len(p.by), len(p.in), len(p.of), len(p.again)), 0, 1)
	}
}

// Other clients have a share each, though a network has taken all that it may.
func TestShareOfAClientAndOfANetwork(t *testing.T) {
	p := NewPlaces(firstPlaces, mostPlaces)
	for n := range firstPlaces {
		p.Take(clientsOf(n, 0), prefixOf(n))
	}
	got := 0
	for n := range clientPlaces + 1 + networkPlaces {
		if _, ok := p.Take(clientsOf(max(0, n-clientPlaces), 1), prefixOf(n)); ok {
			got++
		}
	}
	testkit.Equal(t, "places of a second network, some of them for one client", got, networkPlaces)
	few := NewPlaces(4, 8) // however few there are, each gets one if it is free
	for n := range 12 {
		_, ok := few.Take(clientsOf(0, n), prefixOf(n))
		testkit.Equal(t, fmt.Sprint("place ", n+1, " of 8"), ok, n < 8)
	}
}

func TestAClientLeavesConnectionsForOthers(t *testing.T) {
	greedy, modest := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")
	for _, tc := range []struct {
		name               string
		most, others, want int // places, those that others have, and what one client gets
	}{
		{"alone it gets half", 4096, 0, 2048},
		{"while others have a quarter", 4096, 1024, 1024},
		{"while others have half", 4096, 2048, 256},
		{"of the last ones", 4096, 4000, 96},
		{"of few places all", 2, 0, 2},
		{"none is left", 2, 2, 0},
	} {
		p := NewConnections(tc.most)
		for n := range tc.others {
			_, ok := p.Take(netip.AddrFrom4([4]byte{10, byte(n >> 16), byte(n >> 8), byte(n)}), "")
			testkit.Equal(t, "a place for one of the others", ok, true)
		}
		var leave []func()
		for l, ok := p.Take(greedy, ""); ok; l, ok = p.Take(greedy, "") {
			leave = append(leave, l)
		}
		_, ok := p.Take(modest, "")
		testkit.Equal(t, tc.name+": places, and one for another client", []any{len(leave), ok}, []any{tc.want, tc.others+tc.want < tc.most})
		for _, l := range leave {
			l()
		}
		testkit.Equal(t, tc.name+": what is kept of a client that has left", p.by[greedy], 0)
	}
}

// queue is a listener whose connections wait already.
type queue struct {
	net.Listener
	waiting chan net.Conn
}

func (q queue) Accept() (net.Conn, error) { return <-q.waiting, nil }

// Whoever waits gets the place of a connection that ends, and is not refused.
func TestAnEndedConnectionGivesItsPlaceToTheNextOne(t *testing.T) {
	q, refused, accepted := queue{waiting: make(chan net.Conn)}, make(chan bool, 1), make(chan net.Conn)
	l := Listen(q, 1, func() { refused <- true })
	const rounds = 20_000
	go func() {
		for range rounds {
			conn, _ := l.Accept()
			accepted <- conn
		}
	}()
	for range rounds {
		conn, _ := net.Pipe()
		q.waiting <- conn
		select {
		case conn := <-accepted:
			go conn.Close()
		case <-refused:
			t.Fatal("Expected the connection to be accepted when the one before has ended")
		}
	}
}

var epoch = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// The generic cell rate algorithm admits exactly what a leaky bucket admits, and is written without one.
func TestLeakyBucketAdmitsWhatGCRAAdmits(t *testing.T) {
	chance := rand.New(rand.NewPCG(1, 2))
	const rate, capacity = 8, 16 // powers of two: no rounding
	bucket := LeakyBucket{Rate: rate, Capacity: capacity}
	interval := time.Second / rate
	var level Level
	now, arrival := epoch, epoch
	for i := range 200_000 {
		now = now.Add(time.Duration(chance.IntN(256)) * time.Second / 1024) // parts of a second that binary fractions hold
		want := !arrival.After(now.Add((capacity - 1) * interval))
		if want {
			if arrival.Before(now) {
				arrival = now
			}
			arrival = arrival.Add(interval)
		}
		var got bool
		if level, got = bucket.Admit(level, now); got != want {
			t.Fatalf("request %d: admitted %v, want %v", i, got, want)
		}
	}
}

func TestClockThatGoesBackAndForthLeaksNothing(t *testing.T) {
	bucket := LeakyBucket{Rate: 10, Capacity: 20}
	var level Level
	for range 20 {
		level, _ = bucket.Admit(level, epoch)
	}
	var admitted bool
	for i, after := range []time.Duration{0, -time.Hour, 0, -time.Second, 99 * ms, 100 * ms} { // then one has leaked out
		level, admitted = bucket.Admit(level, epoch.Add(after))
		testkit.Equal(t, fmt.Sprintf("request %d is admitted after %s", i, after), admitted, i == 5)
	}
}

func TestEMARefusesABurstAndLearnsARate(t *testing.T) {
	for _, threshold := range []float64{2, 3, 4} {
		var state Gaps
		now := epoch
		admitted := func(n int, gap time.Duration) (of int) {
			for range n {
				var ok bool
				now = now.Add(gap)
				if state, ok = (EMA{Threshold: threshold}).Admit(state, now); ok {
					of++
				}
			}
			return of
		}
		testkit.Equal(t, "regular requests that are admitted", admitted(15, 5*time.Second), 15)
		testkit.Between(t, "requests of a burst that are admitted", admitted(6, 50*time.Millisecond), 0, 5)
		admitted(100, 50*time.Millisecond)
		testkit.Equal(t, "requests of a rate that lasts that are admitted", admitted(100, 50*time.Millisecond), 100)
	}
}
