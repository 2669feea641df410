package test

import (
	"context"
	"flag"
	"fmt"
	"net"
	"net/netip"
	"runtime"
	"runtime/metrics"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coredns/caddy"
	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/plugin"

	"github.com/miekg/dns"

	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol/pb/sbv5"
	"github.com/coredns-safebrowsing/safebrowsing/internal/protocoltest"
	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
)

var (
	floodAll  = flag.Bool("flood.all", false, "let TestFlood try every flood, at -flood.rate and for -flood.for")
	floodRate = flag.Int("flood.rate", 4_000, "queries a second of each flood, with -flood.all")
	floodTime = flag.Duration("flood.for", 5*time.Second, "how long each flood lasts, with -flood.all")
)

// A flood harms nobody but the clients that make it. It is compared with as many queries for clean names, so that the
// work of sending and of answering does not count as the plugin's.
func TestFlood(t *testing.T) {
	testkit.Long(t)
	all, rate, lasts := floods, *floodRate, *floodTime
	if !*floodAll {
		all, rate, lasts = slices.DeleteFunc(slices.Clone(floods), func(f flood) bool { return !f.sample }), 2_000, 700*time.Millisecond
	}
	t.Logf("%-30s %10s  %10s  %6s  %4s  %-18s  %s", "flood", "clean p99", "during", "others", "lost", "MiB -> peak -> after", "goroutines")
	for _, f := range all {
		t.Run(f.name, func(t *testing.T) { f.try(t, rate, lasts) })
	}
}

func (f flood) try(t *testing.T, rate int, lasts time.Duration) {
	w := newWorld(t)
	w.publish("se-4b", slices.Concat(numbered(floodNames, "c%d.flood.example/"), []string{"once.example/"}, floodThreats)...)
	for _, threat := range floodThreats {
		w.google.AddThreat(threat, sbv5.ThreatType_SOCIAL_ENGINEERING)
	}
	w.serve(w.floodCorefile())
	clean := flood{name: "clean", names: func(n int) string { return fmt.Sprintf("clean%d.example.org.", n%1000) }, from: oneClient}
	w.measure(clean, rate, lasts/4) // sockets, buffers and caches are there from here on
	before := settled()
	base := w.measure(clean, rate, lasts)
	w.google.Break("search", 1<<30, protocoltest.Fault{Delay: f.search})
	during := w.measure(f, rate, lasts)
	w.google.Repair()
	noMoreGoroutines(t, before.goroutines+50)
	after := settled()
	ratio := float64(during.percentile(99)) / float64(max(1, base.percentile(99)))
	t.Logf("%-30s %10s  %10s  %4.0f %%  %4d  %4.0f -> %4.0f -> %4.0f  %5d -> %5d -> %5d", f.name, base.percentile(99), during.percentile(99), 100*during.others(), base.lost+during.lost,
		before.mib, during.peak.mib, after.mib, before.goroutines, during.peak.goroutines, after.goroutines)
	if !f.drowns {
		testkit.Between(t, "other clients' threats that are confirmed", during.others(), 0.5, 1)
	}
	testkit.Equal(t, "wrong answers for clean names, and none that is right", [2]any{during.wrong, len(during.clean) == 0}, [2]any{0, false})
	testkit.Between(t, "MiB more than before", max(0, after.mib-before.mib), 0, 64)
	if *floodAll { // in the short form on a busy machine all queries may wait for the processor at once
		testkit.Between(t, "goroutines more than before", max(0, during.peak.goroutines-before.goroutines), 0, f.goroutines)
	}
	// Only in the long form, and only what is far beyond the noise of a busy machine.
	if *floodAll && ratio > 20 && during.percentile(99) > time.Second {
		t.Errorf("Expected clean names to take about as long as before, %s, got %s", base.percentile(99), during.percentile(99))
	}
}

const maxFloodThreats = 2_000

// floodThreats are asked for once each.
var floodThreats = numbered(maxFloodThreats, "threat%d.example.net/")

func numbered(n int, format string) (all []string) {
	for i := range n {
		all = append(all, fmt.Sprintf(format, i))
	}
	return all
}

// measured is what other clients see meanwhile.
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
			now := inUse()
			m.peak = used{max(m.peak.mib, now.mib), max(m.peak.goroutines, now.goroutines)}
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
	case <-time.After(d):
	}
	return ctx.Err() == nil
}

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

type used struct {
	mib        float64 // of the heap and of stacks
	goroutines int
}

func inUse() used {
	samples := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}, {Name: "/memory/classes/heap/stacks:bytes"}}
	metrics.Read(samples) // without stopping the world, as runtime.ReadMemStats does
	return used{float64(samples[0].Value.Uint64()+samples[1].Value.Uint64()) / (1 << 20), runtime.NumGoroutine()}
}

func settled() used {
	runtime.GC()
	runtime.GC()
	return inUse()
}

// flood is many queries that are made to cost much.
type flood struct {
	name       string
	sample     bool               // tried by each go test
	names      func(n int) string // of the nth query
	from       func(n int) netip.Addr
	odd        bool          // of all types and classes
	search     time.Duration // what an answer of the server takes
	goroutines int           // at most this number more than before
	drowns     bool          // confirmations of others are lost in it, which nothing can help
}

const floodNames = 200_000

// floods are ordered from the mildest to the worst.
var floods = []flood{
	{name: "127 labels", names: func(n int) string { return fmt.Sprintf("%d.", n%10) + strings.Repeat("a.", 126) }, from: manyNetworks, goroutines: 1000},
	{name: "255 bytes", names: longName, from: manyNetworks, goroutines: 1000},
	{name: "all types and classes", names: collides, from: manyNetworks, odd: true, search: 50 * time.Millisecond, goroutines: 6_000},
	{name: "one client", names: collides, from: oneClient, search: 50 * time.Millisecond, goroutines: 1500},
	{name: "one client, one prefix", sample: true, names: collidesAgain, from: oneClient, search: time.Second, goroutines: 3000},
	{name: "100,000 clients of one /32", sample: true, names: collides, from: oneNetwork, search: 700 * time.Millisecond, goroutines: 1500},
	{name: "100,000 clients, one prefix", names: collidesAgain, from: manyNetworks, search: 3 * time.Second, goroutines: 6_000},
	{name: "100,000 clients of many /32", names: collides, from: manyNetworks, search: 50 * time.Millisecond, goroutines: 6_000},
	{name: "and the server is slow", names: collides, from: manyNetworks, search: 3 * time.Second, goroutines: 6_000, drowns: true},
}

func longName(n int) string {
	return fmt.Sprintf("%053d.", n) + strings.Repeat(strings.Repeat("a", 63)+".", 3) + "a."
}

// collides returns names that are in a list by their prefix only.
func collides(n int) string { return fmt.Sprintf("c%d.flood.example.", n%floodNames) }

// collidesAgain returns random subdomains of one such name.
func collidesAgain(n int) string { return fmt.Sprintf("c%d.once.example.", n) }

// Clients of floods. Each IPv6 client has a /56 of its own: that is a client for the limit.

func oneClient(int) netip.Addr { return netip.MustParseAddr("198.51.100.7") }

func oneNetwork(n int) netip.Addr {
	n %= 100_000
	return netip.AddrFrom16([16]byte{0x20, 1, 0x0d, 0xb8, byte(n >> 16), byte(n >> 8), byte(n), 15: 1})
}

func manyNetworks(n int) netip.Addr {
	n %= 100_000
	return netip.AddrFrom16([16]byte{0x2a, byte(n >> 16), byte(n >> 8), byte(n), 15: 1})
}

// otherClient returns a client that takes part in no flood.
func otherClient(n int) netip.Addr { return netip.AddrFrom4([4]byte{10, byte(n), byte(n >> 8), 1}) }

// manyClients is a plugin that takes a query's client from the address that its option 65001 carries.
const manyClients = "manyclients"

const clientOption = 65_001

func init() {
	plugin.Register(manyClients, func(c *caddy.Controller) error {
		c.Next()
		dnsserver.GetConfig(c).AddPlugin(func(next plugin.Handler) plugin.Handler {
			return plugin.HandlerFunc(func(ctx context.Context, w dns.ResponseWriter, r *dns.Msg) (int, error) {
				if opt := r.IsEdns0(); opt != nil {
					for _, o := range opt.Option {
						if local, ok := o.(*dns.EDNS0_LOCAL); ok && local.Code == clientOption {
							w = &clientWriter{w, &net.UDPAddr{IP: local.Data, Port: 53053}}
						}
					}
				}
				return plugin.NextOrFailure(manyClients, next, ctx, w, r)
			})
		})
		return nil
	})
}

type clientWriter struct {
	dns.ResponseWriter
	remote net.Addr
}

func (w *clientWriter) RemoteAddr() net.Addr { return w.remote }

func (w *world) floodCorefile() string {
	template := "template IN A {\n\t\tanswer \"{{ .Name }} 60 IN A 192.0.2.7\"\n\t}\n\ttemplate ANY ANY {\n\t\trcode NOERROR\n\t}"
	text := w.corefile("lists se-4b", "cache 10000", "confirm_timeout 4s")
	return strings.NewReplacer("\tcache\n", "", "errors", "errors\n\t"+manyClients, "forward . "+w.upstream, template).Replace(text)
}

func floodQuery(name string, qtype, class uint16, client netip.Addr) *dns.Msg {
	m := new(dns.Msg).SetQuestion(name, qtype)
	m.Question[0].Qclass = class
	m.SetEdns0(1232, false)
	m.IsEdns0().Option = append(m.IsEdns0().Option, &dns.EDNS0_LOCAL{Code: clientOption, Data: client.AsSlice()})
	return m
}

// pour sends the queries of a flood that are due, from one of two sockets. It drops the answers.
func (w *world) pour(ctx context.Context, f flood, socket, rate int) {
	conn, err := net.Dial("udp", w.address("udp"))
	if err != nil {
		w.t.Error(err)
		return
	}
	defer conn.Close()
	go func() {
		for buffer := make([]byte, 1<<16); ; {
			if _, err := conn.Read(buffer); err != nil {
				return
			}
		}
	}()
	begun := time.Now()
	for n := 0; every(ctx, 2*time.Millisecond); {
		for due := int(time.Since(begun).Seconds() * float64(rate)); n < due && ctx.Err() == nil; n++ {
			nth := 2*n + socket
			qtype, class := dns.TypeA, uint16(dns.ClassINET)
			if f.odd {
				qtype, class = uint16(nth), uint16(nth/7%256)
			}
			query, err := floodQuery(f.names(nth), qtype, class, f.from(nth)).Pack()
			if err != nil {
				w.t.Errorf("%s: %v", f.name, err)
				return
			}
			conn.Write(query)
		}
	}
}
