package test

import (
	"context"
	"flag"
	"fmt"
	"net"
	"os"
	"runtime"
	"runtime/metrics"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol/pb/sbv5"
	"github.com/coredns-safebrowsing/safebrowsing/internal/protocoltest"
	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
)

var (
	floodAll  = flag.Bool("flood.all", false, "have TestFlood try every flood, at -flood.rate and for -flood.for")
	floodRate = flag.Int("flood.rate", 4_000, "queries a second of each flood, with -flood.all")
	floodTime = flag.Duration("flood.for", 5*time.Second, "how long each flood lasts, with -flood.all")
)

// A flood harms nobody but the clients that make it.
//
// Each flood is compared with as many queries for clean names in its place, so that the
// work of sending and of answering does not count as the plugin's.
func TestFlood(t *testing.T) {
	testkit.Long(t)
	all, rate, lasts := floods, *floodRate, *floodTime
	if !*floodAll {
		all, rate, lasts = slices.DeleteFunc(slices.Clone(floods), func(f flood) bool { return !f.sample }), 2_000, 700*time.Millisecond
	}
	t.Logf("%-30s %19s  %19s  %5s  %6s  %4s %7s  %-18s  %s", "flood", "clean p50, p99", "during the flood", "ratio", "others", "lost", "dropped", "MiB -> peak -> after", "goroutines")
	for _, f := range all {
		t.Run(f.name, func(t *testing.T) { f.try(t, rate, lasts) })
	}
}

func (f flood) try(t *testing.T, rate int, lasts time.Duration) {
	w := newFloodWorld(t, f)
	clean := flood{name: "clean", names: func(n int) string { return fmt.Sprintf("clean%d.example.org.", n%1000) }, from: oneClient}
	w.measure(clean, rate, lasts/4) // sockets, buffers and caches are there from here on
	before := settled(t, 0)
	base := w.measure(clean, rate, lasts)
	w.google.Break("search", 1<<30, protocoltest.Fault{Delay: f.search})
	during := w.measure(f, rate, lasts)
	w.google.Repair()
	after := settled(t, before.goroutines)
	ratio := float64(during.percentile(99)) / float64(max(1, base.percentile(99)))
	t.Logf("%-30s %8s %10s  %8s %10s  %5.2f  %4.0f %%  %4d %7d  %4.0f -> %4.0f -> %4.0f  %5d -> %5d -> %5d", f.name, base.percentile(50), base.percentile(99),
		during.percentile(50), during.percentile(99), ratio, 100*during.others(), base.lost+during.lost, w.dropped(),
		before.mib, during.peak.mib, after.mib, before.goroutines, during.peak.goroutines, after.goroutines)
	during.judge(t, f, before, after)
	// Only in the long form, and only what is far beyond the noise of a busy machine.
	if *floodAll && ratio > 20 && during.percentile(99) > time.Second {
		t.Errorf("Expected clean names to take about as long as before, %s, got %s", base.percentile(99), during.percentile(99))
	}
}

func (m *measured) judge(t *testing.T, f flood, before, after used) {
	if got := m.others(); !f.drowns && got < 0.5 {
		t.Errorf("Expected other clients' threats to be confirmed, got %.0f %%", 100*got)
	}
	if m.wrong > 0 || len(m.clean) == 0 {
		t.Errorf("Expected clean names to be answered, got %d right answers and %d wrong ones", len(m.clean), m.wrong)
	}
	// In the short form a busy machine may have all queries wait for the processor at once.
	if got := m.peak.goroutines - before.goroutines; *floodAll && got > f.goroutines {
		t.Errorf("Expected at most %d goroutines more, got %d", f.goroutines, got)
	}
	if got := after.mib - before.mib; got > 64 {
		t.Errorf("Expected memory as before, got %.0f MiB more", got)
	}
}

// dropped returns how many packets the system has dropped because the buffer of the
// server's socket was full, or -1: queries that are lost without the plugin's doing.
func (w *world) dropped() int {
	text, err := os.ReadFile("/proc/net/udp") // proc_net(5); the last column
	if err != nil {
		return -1
	}
	_, port, _ := net.SplitHostPort(w.address("udp"))
	number, _ := strconv.Atoi(port)
	all := 0
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) > 2 && strings.HasSuffix(f[1], fmt.Sprintf(":%04X", number)) {
			n, _ := strconv.Atoi(f[len(f)-1])
			all += n
		}
	}
	return all
}

// newFloodWorld starts a server with the names of a flood in its lists, and threats
// about which other clients ask.
func newFloodWorld(t *testing.T, f flood) *world {
	w := newWorld(t)
	w.publish("se-4b", append(slices.Clone(f.lists()), floodThreats()...)...)
	for _, threat := range floodThreats() {
		w.google.AddThreat(threat, sbv5.ThreatType_SOCIAL_ENGINEERING)
	}
	w.start(w.floodCorefile())
	w.updated(1)
	return w
}

const maxFloodThreats = 2_000

// floodThreats returns threats that are asked for once each.
var floodThreats = sync.OnceValue(func() (threats []string) {
	for i := range maxFloodThreats {
		threats = append(threats, fmt.Sprintf("threat%d.example.net/", i))
	}
	return threats
})

// measured is what other clients see while something goes on.
type measured struct {
	mu      sync.Mutex
	clean   []time.Duration // sorted in the end
	wrong   int             // answers to clean names
	lost    int             // queries for clean names without an answer: the buffer of a socket was full
	threats int             // asked by other clients
	blocked int             // of them, in time
	peak    used
}

func (m *measured) others() float64 { return float64(m.blocked) / float64(max(1, m.threats)) }

func (m *measured) percentile(p int) time.Duration {
	if len(m.clean) == 0 {
		return 0
	}
	return m.clean[min(len(m.clean)-1, len(m.clean)*p/100)].Round(10 * time.Microsecond)
}

// measure asks for clean names and for threats while a flood lasts.
func (w *world) measure(f flood, rate int, lasts time.Duration) *measured {
	ctx, cancel := context.WithTimeout(context.Background(), lasts)
	defer cancel()
	m := new(measured)
	var all sync.WaitGroup
	for i := range 2 {
		all.Go(func() { w.pour(ctx, f, i, rate/2) })
	}
	for i := range 4 {
		all.Go(func() { w.askClean(ctx, m, i) })
	}
	all.Go(func() { w.askThreats(ctx, m) })
	all.Go(func() {
		for every(ctx, 20*time.Millisecond) {
			m.peak = m.peak.max(inUse())
		}
	})
	all.Wait()
	slices.Sort(m.clean)
	return m
}

// every waits, and reports whether ctx has not ended.
func every(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// askClean asks for clean names, about a hundred a second.
func (w *world) askClean(ctx context.Context, m *measured, client int) {
	c := &dns.Client{Timeout: 2 * time.Second}
	for n := 0; every(ctx, 10*time.Millisecond); n++ {
		q := new(dns.Msg).SetQuestion(fmt.Sprintf("clean%d-%d.example.org.", client, n%100), dns.TypeA)
		begun := time.Now()
		answer, _, err := c.Exchange(q, w.address("udp"))
		took := time.Since(begun)
		m.mu.Lock()
		switch {
		case err != nil:
			m.lost++
		case answer.Rcode != dns.RcodeSuccess || len(answer.Answer) != 1:
			m.wrong++
		default:
			m.clean = append(m.clean, took)
		}
		m.mu.Unlock()
	}
}

var floodThreat atomic.Uint32

// askThreats asks for threats, each once and from a network of its own.
func (w *world) askThreats(ctx context.Context, m *measured) {
	var asked sync.WaitGroup
	defer asked.Wait()
	for every(ctx, 50*time.Millisecond) {
		n := floodThreat.Add(1) % maxFloodThreats
		asked.Go(func() {
			q := floodQuery(fmt.Sprintf("threat%d.example.net.", n), dns.TypeA, dns.ClassINET, otherClient(int(n)))
			answer, _, err := (&dns.Client{Net: "tcp", Timeout: 10 * time.Second}).Exchange(q, w.address("tcp"))
			m.mu.Lock()
			defer m.mu.Unlock()
			m.threats++
			if err == nil && isBlocked(answer) {
				m.blocked++
			}
		})
	}
}

// used is what the process uses.
type used struct {
	mib        float64 // of the heap and of stacks
	goroutines int
}

func (u used) max(v used) used { return used{max(u.mib, v.mib), max(u.goroutines, v.goroutines)} }

func inUse() used {
	samples := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}, {Name: "/memory/classes/heap/stacks:bytes"}}
	metrics.Read(samples) // without stopping the world, as runtime.ReadMemStats does
	return used{float64(samples[0].Value.Uint64()+samples[1].Value.Uint64()) / (1 << 20), runtime.NumGoroutine()}
}

// settled waits until there are at most that number of goroutines, if not 0, or none has ended
// for a while, and returns what is in use then.
func settled(t *testing.T, goroutines int) used {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); goroutines > 0 && runtime.NumGoroutine() > goroutines+50; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Errorf("Expected about %d goroutines as before, got %d", goroutines, runtime.NumGoroutine())
			break
		}
	}
	runtime.GC()
	runtime.GC()
	return inUse()
}
