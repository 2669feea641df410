package block

import (
	"net"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// A flood of made-up addresses takes the memory that there is for it, and those who ask each day stay known.
func TestAFloodOfClientsIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, b := alone(t).devices, watched()
		const regulars = 500
		ask := func(name string) {
			for i := range regulars {
				b.Heard(clientAt(i), SignOf(name))
			}
		}
		for range 2 * regular {
			ask("www.example.com.")
			time.Sleep(time.Minute)
			d.sweep(everyZone, time.Now())
		}
		for n := range 5 {
			for i := range 100_000 {
				b.Heard(clientAt(1_000_000+n*100_000+i), SignOf("www.example.com."))
				b.Heard(clientAt(1_000_000+n*100_000+i), SignOf("dns.google."))
			}
			ask("dns.google.")
			time.Sleep(time.Minute)
			d.sweep(everyZone, time.Now())
		}
		if table := d.clients.table.Load(); len(table.slots) > mostSlots || len(d.wanderers) > maxClients {
			t.Errorf("%d slots, %d wanderers", len(table.slots), len(d.wanderers))
		}
		known := 0
		for i := range regulars {
			if s := d.clients.table.Load().find(d.clients.keyOf(ipOf(clientAt(i)))); s != nil && s.active >= regular {
				known++
			}
		}
		if known < regulars*95/100 {
			t.Errorf("%d of %d regular clients are known", known, regulars)
		}
		for range 50 { // those that leave are reported still
			time.Sleep(5 * time.Minute)
			ask("dns.google.")
			d.sweep(everyZone, time.Now())
		}
		if n := d.counts().Left; n < regulars*90/100 {
			t.Errorf("%d of %d that have left are counted", n, regulars)
		}
	})
}

// Queries of many clients at once, and sweeps: each client is seen in each minute.
func TestManyAskAtOnce(t *testing.T) {
	c := newClients()
	const many, sweeps = 200, 10
	seen := make(map[uint64]uint32)
	for minute := range uint32(sweeps) {
		var all sync.WaitGroup
		for part := range 4 {
			all.Go(func() {
				for n := range 4 * many {
					c.ordinary(c.keyOf(ipOf(clientAt((n + part) % many))))
				}
			})
		}
		all.Wait()
		c.sweep(minute+1, false, func(key uint64, active uint32) { seen[key] = active })
	}
	if len(seen) != many {
		t.Errorf("%d clients were seen, want %d", len(seen), many)
	}
	for key, active := range seen {
		if active != sweeps {
			t.Errorf("Client %x was seen in %d minutes of %d", key, active, sweeps)
		}
	}
	var racing sync.WaitGroup // while sweeps run, and the table grows
	for part := range 4 {
		racing.Go(func() {
			for n := range 20_000 {
				c.ordinary(c.keyOf(ipOf(clientAt(n%5_000 + part))))
			}
		})
	}
	for minute := range uint32(20) {
		c.sweep(sweeps+minute+1, minute == 5, func(uint64, uint32) {})
	}
	racing.Wait()
}

// What 10,000 clients take: all ask for ordinary names, and then all for a resolver, too.
func TestTenThousandClientsTakeLittleMemory(t *testing.T) {
	heap := func() int {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int(m.HeapAlloc)
	}
	const many = 10_000
	began := time.Now()
	before := heap()
	d, b := alone(t).devices, watched()
	ask := func(name string) {
		for i := range many {
			b.Heard(clientAt(i), SignOf(name))
		}
	}
	for n := range 6 { // it grows once a minute
		ask("www.example.com.")
		d.sweep(everyZone, began.Add(time.Duration(n+1)*time.Minute))
	}
	known := 0
	for i := range many {
		if d.clients.table.Load().find(d.clients.keyOf(ipOf(clientAt(i)))) != nil {
			known++
		}
	}
	ordinary := heap() - before
	ask("dns.google.")
	all := heap() - before
	t.Logf("%d clients, %d of them known: %d KiB, %d bytes each; if all ask for a resolver: %d KiB, %d bytes each", many, known, ordinary>>10, ordinary/many, all>>10, all/many)
	if known < many*99/100 || len(d.wanderers) != many {
		t.Errorf("%d of %d clients are known, %d of %d that ask for a resolver", known, many, len(d.wanderers), many)
	}
	if ordinary > 1<<20 || all > 8<<20 {
		t.Errorf("Expected at most 1 MiB, and 8 MiB if all ask for a resolver, got %d and %d", ordinary, all)
	}
	runtime.KeepAlive(d)
}

// Other addresses than UDP's and TCP's are read, and no address does no harm.
func TestClientsAreToldByTheirAddress(t *testing.T) {
	pipe := func(name string) net.Addr { return &net.UnixAddr{Name: name} }
	c := newClients()
	four := c.keyOf(ipOf(&net.UDPAddr{IP: net.IPv4(192, 0, 2, 1).To4(), Port: 1}))
	for _, same := range []net.Addr{
		&net.UDPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 2}, &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1)}, pipe("192.0.2.1:3"), pipe("[::ffff:192.0.2.1]:3"),
	} {
		if got := c.keyOf(ipOf(same)); got != four {
			t.Errorf("%v is taken for another client", same)
		}
	}
	for _, other := range []net.Addr{&net.UDPAddr{IP: net.IPv4(192, 0, 2, 2)}, &net.UDPAddr{IP: net.ParseIP("2001:db8::1")}, pipe("[2001:db8::1]:3")} {
		if got := c.keyOf(ipOf(other)); got == four || got == 0 {
			t.Errorf("%v is taken for the first client", other)
		}
	}
	for _, none := range []net.Addr{nil, pipe("pipe"), &net.UDPAddr{}} {
		if got := c.keyOf(ipOf(none)); got != 0 {
			t.Errorf("%v is taken for a client", none)
		}
		watched().Heard(none, SignOf("dns.google."))
	}
}

func BenchmarkHeard(b *testing.B) {
	block := watched()
	for kind, qname := range map[string]string{"ordinary": "www.static.example.com.", "likeness": "mail.google.com.", "resolver": "dns.google."} {
		b.Run(kind, func(b *testing.B) {
			alone(b)
			from := clientAt(1)
			b.ReportAllocs()
			for b.Loop() {
				block.Heard(from, SignOf(qname))
			}
		})
	}
}

// BenchmarkSweep is what happens once a minute, with 10,000 clients that have all asked.
func BenchmarkSweep(b *testing.B) {
	d, block := alone(b).devices, watched()
	for n := 1; b.Loop(); n++ {
		b.StopTimer()
		for i := range 10_000 {
			block.Heard(clientAt(i), SignOf("www.example.com."))
		}
		b.StartTimer()
		d.sweep(everyZone, d.began.Add(time.Duration(n)*time.Minute))
	}
}
