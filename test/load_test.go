package test

import (
	"flag"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/coredns-safebrowsing/safebrowsing/internal/protocoltest"
	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
)

var loadTime = flag.Duration("load", 3*time.Second, "how long TestQueriesUpdatesAndReloadsAtOnce lasts")

// TestQueriesUpdatesAndReloadsAtOnce is for the race detector: eight clients ask
// while lists are updated every second and the Corefile is reloaded, half of the
// time with another server, which is another engine. Afterwards no goroutine may
// be left.
func TestQueriesUpdatesAndReloadsAtOnce(t *testing.T) {
	testkit.Long(t)
	before := runtime.NumGoroutine()
	t.Run("load", func(t *testing.T) {
		w, other := newWorld(t), newWorld(t)
		for _, w := range []*world{w, other} {
			w.google.SetMinimumWait("se-4b", time.Second)
			w.google.SetCacheDuration(100 * time.Millisecond)
			w.threaten("always.example.com/")
		}
		// The other server's lists have to be on disk before it takes over.
		other.start(other.loadCorefile(":0", "lists se-4b"))
		other.updated(1)
		other.stop()
		// A port that is free for UDP and TCP: with port 0 each has its own, and the
		// reloads would need the port of UDP for TCP.
		other.host = w.host
		w.start(w.loadCorefile(strings.TrimPrefix(testkit.FreeAddress(t, w.host), w.host), "lists se-4b"))
		w.updated(1)
		address := w.address("udp")
		var stop atomic.Bool
		var load sync.WaitGroup
		for worker := range 8 {
			load.Go(func() { w.load(worker, address, &stop) })
		}
		load.Go(func() { // a new version of the lists every now and then
			for n := 0; !stop.Load(); n++ {
				for _, w := range []*world{w, other} {
					w.publish("se-4b", "always.example.com/", fmt.Sprintf("new%d.example.com/", n))
				}
				time.Sleep(300 * time.Millisecond)
			}
		})
		for end, n := time.Now().Add(*loadTime), 0; time.Now().Before(end); n++ {
			time.Sleep(400 * time.Millisecond)
			now := []*world{w, w, other, other}[n%4]
			if now.engine() == nil {
				now.google.ClientStarted() // its cache ended with the engine
			}
			if err := w.reload(now.loadCorefile(strings.TrimPrefix(address, w.host), "lists se-4b")); err != nil {
				t.Error(err)
			}
		}
		stop.Store(true)
		load.Wait()
		w.stop()
		if e, holders := engines.Count(); e != 0 || holders != 0 {
			t.Errorf("Expected no engine after the shutdown, got %d with %d holders", e, holders)
		}
	})
	noMoreGoroutines(t, before)
}

// noMoreGoroutines waits until there are no more goroutines than before.
func noMoreGoroutines(t *testing.T, before int) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); runtime.NumGoroutine() > before; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			stacks := make([]byte, 1<<20)
			t.Fatalf("Expected %d goroutines as before, got %d:\n%s", before, runtime.NumGoroutine(), stacks[:runtime.Stack(stacks, true)])
		}
	}
}

// loadCorefile answers by template instead of forward, some of whose goroutines
// outlive a reload.
func (w *world) loadCorefile(port string, properties ...string) string {
	template := "template IN A {\n\t\tanswer \"{{ .Name }} 60 IN A 192.0.2.7\"\n\t}"
	return strings.NewReplacer(":0", port, "forward . "+w.upstream, template).Replace(w.corefile(append([]string{"limit off"}, properties...)...))
}

// load asks for a threat and for names that are none. A query may be lost where a
// reload closes a socket; an answer must be right.
func (w *world) load(worker int, address string, stop *atomic.Bool) {
	c := &dns.Client{Timeout: 2 * time.Second}
	answered := 0
	for n := 0; !stop.Load(); n++ {
		name := fmt.Sprintf("host%d-%d.example.org.", worker, n%50)
		if n%2 == 0 {
			name = "www.always.example.com."
		}
		m := new(dns.Msg).SetQuestion(name, dns.TypeA)
		m.SetEdns0(1232, false)
		answer, _, err := c.Exchange(m, address)
		if err != nil {
			continue
		}
		answered++
		short := len(answer.Answer) == 1 && answer.Answer[0].Header().Ttl <= 5 // late, which is allowed
		if blocked := isBlocked(answer); answer.Rcode == dns.RcodeServerFailure || blocked != (n%2 == 0) && !short {
			w.t.Errorf("%s: Expected blocked %v, got\n%v", name, n%2 == 0, answer)
		}
	}
	if answered == 0 {
		w.t.Error("Expected answers")
	}
}

// BenchmarkCollision measures what a harmless name that collides with a prefix
// costs its client, over real sockets: the time that the answer takes beyond what
// upstream alone takes. It should be max(0, search - upstream), at most
// confirm_timeout - upstream, and nothing once the answer of the server is kept.
func BenchmarkCollision(b *testing.B) {
	const upstream = 30 * time.Millisecond
	for _, search := range []time.Duration{30 * time.Millisecond, 100 * time.Millisecond, 400 * time.Millisecond, time.Second} {
		b.Run(fmt.Sprintf("upstream=%s/search=%s", upstream, search), func(b *testing.B) { benchmarkCollision(b, upstream, search, true) })
	}
	b.Run(fmt.Sprintf("upstream=%s/cached", upstream), func(b *testing.B) { benchmarkCollision(b, upstream, 0, false) })
}

func benchmarkCollision(b *testing.B, upstream, search time.Duration, fresh bool) {
	w := newWorld(b)
	w.upstream = startUpstream(b, upstream)
	var colliding []string
	for i := range 2000 {
		colliding = append(colliding, fmt.Sprintf("host%d.example.com/", i))
	}
	w.publish("se-4b", colliding...)
	w.start(w.corefile("limit off", "confirm_timeout 500ms"))
	w.updated(1)
	w.google.Break("search", 1<<30, protocoltest.Fault{Delay: search})
	took := func(name string) time.Duration {
		begun := time.Now()
		w.ask(name, dns.TypeA)
		return time.Since(begun)
	}
	took("host1999.example.com.") // connections are open from here on, and this one is kept
	var with, without time.Duration
	for n := 0; b.Loop(); n++ {
		name := fmt.Sprintf("host%d.example.com.", n%1999)
		if !fresh {
			name = fmt.Sprintf("n%d.host1999.example.com.", n)
		}
		with += took(name)
		without += took(fmt.Sprintf("clean%d.example.com.", n))
	}
	b.ReportMetric(float64((with-without).Microseconds())/1000/float64(b.N), "added-ms/op")
}
