package fleet

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol"
	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
	"github.com/coredns-safebrowsing/safebrowsing/updater"
)

const (
	benchEntries = 10_000_000 // in both lists together
	benchHot     = 450        // prefixes that are asked for again and again
	benchChanges = 4000
	benchPoll    = 32 * time.Second // a client asks for lists, the mean of the relay's minimum waits
	benchTime    = 90 * time.Second
	benchNew     = 5 // clients that come with nothing meanwhile, each for 13 MB of full lists
)

// BenchmarkFleet measures a relay, a process on one core, with lists of ten million entries and many clients, each with a connection of
// its own that stays: of the prefixes that they ask for, nine in ten are cached. The lists change once, each client gets the change,
// and some new ones get full lists. The figures are the relay's own, but for load-CPU-s, which is this process's own: it is the clients
// and the server. Peak memory is from its start on. Run it with -benchtime 1x, on a machine that does nothing else.
func BenchmarkFleet(b *testing.B) {
	raw, entries := make([]byte, 0, 4*benchEntries), make([][]byte, benchEntries)
	for i := range entries {
		raw = appendEntry(raw, i)
		entries[i] = raw[4*i : 4*i+4]
	}
	for _, size := range []struct{ clients, searches int }{{500, 50}, {5000, 1000}} {
		b.Run(fmt.Sprintf("clients=%d/searches=%d", size.clients, size.searches), func(b *testing.B) { benchFleet(b, entries, size.clients, size.searches) })
	}
}

// appendEntry appends the n-th of different prefixes that look as if chosen at random: the end of MurmurHash3, a bijection.
func appendEntry(to []byte, n int) []byte {
	v := uint32(n)
	v = (v ^ v>>16) * 0x85ebca6b
	v = (v ^ v>>13) * 0xc2b2ae35
	return binary.BigEndian.AppendUint32(to, v^v>>16)
}

// benchFleet measures a relay with a number of clients that together make a given number of searches a second.
func benchFleet(b *testing.B, entries [][]byte, clients, searches int) {
	g := judge(b, nil, nil)
	publishBoth(g, entries, time.Second)
	// More than half of the connections are never open: then one address may have as many as it likes.
	r := newRelay(b, g.url, "-connections", fmt.Sprint(4*clients))
	r.env = []string{"GOMAXPROCS=1"}
	fetch(b, r.db, r.upstream)
	r.start()
	for b.Loop() {
		l := newLoad(b, r.url, entries, clients)
		next := slices.Clone(entries)
		for i := range benchChanges {
			fresh := appendEntry(nil, benchEntries+i)
			next[len(next)/2+i], next[len(next)-1-i] = fresh, fresh
		}
		publishBoth(g, next, minimumWait)
		cpu, load := testkit.CPUSeconds(b, r.Pid()), testkit.CPUSeconds(b, os.Getpid())
		l.run(searches)
		b.ReportMetric(testkit.CPUSeconds(b, r.Pid())-cpu, "CPU-s")
		b.ReportMetric(testkit.CPUSeconds(b, os.Getpid())-load, "load-CPU-s")
		for what, times := range l.times {
			slices.Sort(times)
			b.ReportMetric(milliseconds(times[len(times)/2]), "ms-"+what+"-p50")
			b.ReportMetric(milliseconds(times[len(times)*99/100]), "ms-"+what+"-p99")
			b.ReportMetric(milliseconds(times[len(times)-1]), "ms-"+what+"-max")
		}
	}
	_, peak, _ := strings.Cut(testkit.Read(b, fmt.Sprintf("/proc/%d/status", r.Pid())), "VmHWM:") // proc_pid_status(5), in kB
	var kib float64
	_, err := fmt.Sscan(peak, &kib)
	testkit.Must(b, err)
	b.ReportMetric(kib/1024, "MiB-peak")
	b.ReportMetric(0, "ns/op")
}

// publishBoth publishes half of the entries in each list.
func publishBoth(g *judged, entries [][]byte, wait time.Duration) {
	for name, half := range map[string][][]byte{"se-4b": entries[:len(entries)/2], "mw-4b": entries[len(entries)/2:]} {
		g.SetMinimumWait(name, wait)
		g.Publish(name, half)
	}
}

// load is what the clients of a relay do.
type load struct {
	b         *testing.B
	url       string
	clients   []*lightClient
	hot, cold [][]byte

	mu    sync.Mutex
	times map[string][]time.Duration // that answers took, by what they are
}

// lightClient keeps the versions of lists but not the lists, which would take the memory that is to be measured.
type lightClient struct {
	*protocol.V5
	wanted []updater.Want
}

// newLoad makes the clients and asks the relay for the hot prefixes once. All clients hold the first lists: one has fetched them for all.
func newLoad(b *testing.B, url string, entries [][]byte, clients int) *load {
	l := &load{b: b, url: url, times: make(map[string][]time.Duration), hot: entries[:benchHot], cold: entries[benchHot : len(entries)/2]}
	for range clients {
		l.clients = append(l.clients, l.newClient())
	}
	l.poll(l.clients[0], "first")
	for _, c := range l.clients {
		c.wanted = slices.Clone(l.clients[0].wanted)
	}
	for i, p := range l.hot {
		l.search(l.clients[i%len(l.clients)], "first", p)
	}
	clear(l.times)
	return l
}

func (l *load) newClient() *lightClient {
	c, err := protocol.NewV5(protocol.Config{Endpoint: l.url, UserAgent: "bench/1", Transport: new(http.Transport)})
	testkit.Must(l.b, err)
	l.b.Cleanup(c.Close)
	return &lightClient{c, []updater.Want{{List: "se-4b"}, {List: "mw-4b"}}}
}

// run lets the clients ask for a time.
func (l *load) run(searches int) {
	l.b.Helper()
	var wg sync.WaitGroup
	begun := time.Now()
	end := begun.Add(benchTime)
	for i, c := range l.clients {
		wg.Go(func() {
			time.Sleep(benchPoll * time.Duration(i) / time.Duration(len(l.clients)))
			for ; time.Now().Before(end); time.Sleep(benchPoll) {
				l.poll(c, "lists")
			}
		})
	}
	for i := range benchNew {
		wg.Go(func() {
			time.Sleep(benchTime * time.Duration(i+1) / (benchNew + 1))
			l.poll(l.newClient(), "full-lists")
		})
	}
	for n := range int(benchTime.Seconds()) * searches {
		time.Sleep(time.Until(begun.Add(time.Duration(n) * time.Second / time.Duration(searches))))
		c, prefix, what := l.clients[rand.IntN(len(l.clients))], l.hot[rand.IntN(len(l.hot))], "cached"
		if n%10 == 0 {
			prefix, what = l.cold[n], "upstream"
		}
		wg.Go(func() { l.search(c, what, prefix) })
	}
	if late := time.Since(end); late > time.Second {
		l.b.Errorf("the load is %s late: this machine is too slow for it", late)
	}
	wg.Wait()
}

// timed notes how long an answer takes.
func (l *load) timed(what string, ask func() error) {
	begun := time.Now()
	if err := ask(); err != nil {
		l.b.Errorf("%s: %v", what, err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.times[what] = append(l.times[what], time.Since(begun))
}

func (l *load) search(c *lightClient, what string, prefix []byte) {
	l.timed(what, func() error {
		_, err := c.Search(l.b.Context(), []lookup.Prefix{lookup.Prefix(prefix)})
		return err
	})
}

func (l *load) poll(c *lightClient, what string) {
	l.timed(what, func() error {
		_, err := c.Fetch(l.b.Context(), c.wanted, func(i int, u *updater.Update) { c.wanted[i].Version = u.Version })
		return err
	})
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
