package test

import (
	"flag"
	"fmt"
	"net/http"
	"runtime"
	"runtime/metrics"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/coredns-safebrowsing/safebrowsing/internal/protocoltest"
	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
)

var soakTime = flag.Duration("soak", 3*time.Second, "how long TestSoak lasts")

// TestSoak has all at once, for as long as it is told to: queries, new versions of lists,
// faults of the servers, reloads with other settings, and two relays: one dies and
// the other takes over. No verdict may be wrong, and memory and goroutines stay the same.
func TestSoak(t *testing.T) {
	testkit.Long(t)
	before := runtime.NumGoroutine()
	t.Run("soak", soak)
	noMoreGoroutines(t, before)
}

// soaked are servers that an engine asks: one, or two relays.
type soaked struct {
	world   *world
	servers []*protocoltest.Server
	asked   []int     // requests that each server has forgotten
	relays  []*mortal // of the servers, if they are relays
}

// kept is how many requests and versions a server remembers, so that memory can be flat: those
// of half a minute.
const kept = 100

func (s *soaked) forget() {
	for i, server := range s.servers {
		s.asked[i] += server.Forget(kept)
	}
}

// mortal is a relay that can die: its server hears nothing then.
type mortal struct {
	http.Handler
	dead atomic.Bool
}

func (m *mortal) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if m.dead.Load() {
		panic(http.ErrAbortHandler) // closes the connection
	}
	m.Handler.ServeHTTP(w, r)
}

func soak(t *testing.T) {
	w, other := newWorld(t), newWorld(t)
	relays, second, sockets := newRelays(t, "always.example.com/")
	all := []*soaked{
		{world: w, servers: []*protocoltest.Server{w.google}},
		{world: other, servers: []*protocoltest.Server{other.google}},
		{world: relays, servers: []*protocoltest.Server{relays.google, second}},
	}
	for _, socket := range sockets {
		relay := &mortal{Handler: socket.Config.Handler}
		socket.Config.Handler, all[2].relays = relay, append(all[2].relays, relay)
	}
	for _, s := range all {
		s.world.host = w.host
		s.asked = make([]int, len(s.servers))
		for _, server := range s.servers {
			server.SetMinimumWait("se-4b", time.Second)
			server.SetCacheDuration(100 * time.Millisecond)
		}
		if len(s.servers) == 1 {
			s.world.threaten("always.example.com/")
		}
	}
	for _, s := range all[1:] { // their lists have to be on disk before they take over
		s.world.start(s.world.soakCorefile(":0"))
		s.world.updated(1)
		s.world.stop()
	}
	w.start(w.soakCorefile(strings.TrimPrefix(testkit.FreeAddress(t, w.host), w.host)))
	w.updated(1)
	address := w.address("udp")
	stubs := &crowdOfStubs{t: t, address: address}
	stubs.begin(8, 0, "udp")
	stubs.load.Go(func() { churn(all, &stubs.stop) })
	curve, done := new(heapCurve), 0
	stubs.load.Go(func() { curve.watch(&stubs.stop) })
	for end := time.Now().Add(*soakTime); time.Now().Before(end); done++ {
		time.Sleep(400 * time.Millisecond)
		now := all[done/2%len(all)]
		if now.world.engine() == nil {
			for _, server := range now.servers {
				server.ClientStarted() // its cache ended with the engine
			}
		}
		if err := w.reload(now.world.soakCorefile(strings.TrimPrefix(address, w.host), []string{"ttl 50s", "ttl 60s"}[done%2])); err != nil {
			t.Error(err)
		}
	}
	stubs.end()
	if stubs.asked.Load() == stubs.lost.Load() {
		t.Error("Expected answers")
	}
	w.stop()
	wantEngines(t, 0, 0) // after the shutdown
	var requests []int
	for _, s := range all {
		for i, server := range s.servers {
			requests = append(requests, s.asked[i]+len(server.Requests("")))
		}
	}
	t.Logf("%s: %d reloads; %d requests to each server and relay; live memory %s", *soakTime, done, requests, curve)
	if done > 50 && requests[3] == 0 {
		t.Error("Expected the second relay to take over from the first one")
	}
	if slope := curve.slope(); slope > 16 {
		t.Errorf("Expected flat memory, got %.1f MiB more each minute", slope)
	}
}

func (w *world) soakCorefile(port string, properties ...string) string {
	return w.loadCorefile(port, append(properties, "lists se-4b")...)
}

// churn makes new versions of lists, and makes servers slow, fail searches, and die.
func churn(all []*soaked, stop *atomic.Bool) {
	for n := 0; !stop.Load(); n++ {
		for _, s := range all {
			for _, server := range s.servers {
				(&world{google: server}).publish("se-4b", "always.example.com/", fmt.Sprintf("new%d.example.com/", n))
				switch {
				case n%20 == 5:
					server.Break("search", 1, protocoltest.Fault{Delay: 300 * time.Millisecond})
				case n%20 == 10:
					server.Break("update", 1, protocoltest.Fault{Delay: 500 * time.Millisecond})
				case n%40 == 15 && s.relays == nil:
					server.Break("search", 1, protocoltest.Fault{Status: 500})
				}
			}
			s.forget()
			for i, relay := range s.relays { // each in turn, and both are well in between
				relay.dead.Store(n/20%4 == 2*i)
			}
		}
		time.Sleep(300 * time.Millisecond)
	}
}

// heapCurve is the live heap of this process, each second.
type heapCurve struct{ mib []float64 }

func (m *heapCurve) watch(stop *atomic.Bool) {
	sample := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	for !stop.Load() {
		time.Sleep(time.Second)
		metrics.Read(sample)
		m.mib = append(m.mib, float64(sample[0].Value.Uint64())/(1<<20))
	}
}

// slope returns by how many MiB it grows each minute: the last third's mean against
// the mean of the third before.
func (m *heapCurve) slope() float64 {
	third := len(m.mib) / 3
	if third < 5 {
		return 0
	}
	mean := func(part []float64) (sum float64) {
		for _, v := range part {
			sum += v / float64(len(part))
		}
		return sum
	}
	last, before := m.mib[len(m.mib)-third:], m.mib[len(m.mib)-2*third:len(m.mib)-third]
	return (mean(last) - mean(before)) * 60 / float64(third)
}

func (m *heapCurve) String() string {
	if len(m.mib) == 0 {
		return "not measured"
	}
	return fmt.Sprintf("%.1f MiB at first, %.1f MiB in the end, %+.2f MiB a minute", m.mib[0], m.mib[len(m.mib)-1], m.slope())
}

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
	w.run("limit off", "confirm_timeout 500ms")
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
