package test

import (
	"encoding/binary"
	"flag"
	"fmt"
	"math/rand/v2"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/coredns-safebrowsing/safebrowsing/internal/protocoltest"
	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
)

var sigtermAll = flag.Bool("sigterm.all", false, "let TestSIGTERM try every moment; otherwise a sample")

// stops are moments at which CoreDNS is told to end.
var stops = []struct {
	name    string
	sample  bool
	later   []int          // milliseconds after the moment; the last is in the sample
	prepare func(w *world) // before the start
	moment  func(w *world, c *child)
}{
	{name: "after the start", later: []int{5, 20, 50, 100, 200, 400}, moment: func(*world, *child) {}},
	{name: "at rest", moment: rests},
	{name: "before the answer with lists", sample: true, prepare: breaks("update", protocoltest.Fault{Delay: time.Minute}), moment: asked("update")},
	{name: "in an endless answer", prepare: breaks("update", protocoltest.Fault{EndlessBody: true}), moment: asked("update")},
	{name: "while lists are decoded", later: []int{10, 30, 100, 300}, prepare: bigList, moment: func(w *world, c *child) {
		asked("update")(w, c)
		testkit.Until(w.t, "the answer", func() bool { return !w.fetches()[0].Answered.IsZero() })
	}},
	{name: "in a back-off", prepare: breaks("update", protocoltest.Fault{Status: 503}), moment: counts("coredns_safebrowsing_requests_total")},
	{name: "while a query waits for a search", sample: true, moment: func(w *world, c *child) { searching(w, c, "evil.example.com.") }},
	{name: "while 200 queries wait for a search", moment: func(w *world, c *child) {
		for n := range 200 {
			searching(w, c, fmt.Sprintf("n%d.evil.example.com.", n))
		}
	}},
	{name: "while a blocked query's upstream is silent", sample: true, prepare: silentUpstream, moment: func(w *world, c *child) {
		rests(w, c)
		c.ask("evil.example.com.")
	}},
	{name: "into a reload", sample: true, later: []int{5, 100, 30}, moment: func(w *world, c *child) {
		rests(w, c)
		c.configure(w.uncached("cache 77"))
		c.Signal(syscall.SIGUSR1)
	}},
	{name: "after a reload that fails", moment: func(w *world, c *child) {
		rests(w, c)
		c.configure("no Corefile {")
		c.Signal(syscall.SIGUSR1)
		c.Line("[ERROR]", 20*time.Second)
	}},
	{name: "during the last of ten reloads", moment: func(w *world, c *child) {
		// One after the other: CoreDNS loses a signal that comes while one of another kind
		// waits for the end of a reload (caddy, trapSignalsPosix: a channel for one signal).
		rests(w, c)
		for n := range 10 {
			testkit.Until(w.t, "the reload before", func() bool { return strings.Count(c.Output(), "Reloading complete") == n })
			c.configure(w.uncached(fmt.Sprint("cache ", 100+n)))
			c.Signal(syscall.SIGUSR1)
		}
	}},
}

// SIGTERM ends CoreDNS in less than two seconds, whatever is under way. Without -sigterm.all
// the bound is a wide one: other tests use the processors.
func TestSIGTERM(t *testing.T) {
	testkit.Long(t)
	most := 10 * time.Second
	if *sigtermAll {
		most = 2 * time.Second
	}
	for _, stop := range stops {
		for i, ms := range append([]int{0}, stop.later...) {
			if !*sigtermAll && (!stop.sample || i < len(stop.later)) {
				continue
			}
			t.Run(fmt.Sprintf("%s/%d ms", stop.name, ms), func(t *testing.T) {
				w := threatened(t, "evil.example.com/")
				if stop.prepare != nil {
					stop.prepare(w)
				}
				c := newChild(t, w)
				c.configure(w.uncached())
				c.start()
				stop.moment(w, c)
				time.Sleep(time.Duration(ms) * time.Millisecond)
				w.google.ClientCancelled() // the process ends with its request
				begun := time.Now()
				c.Signal(syscall.SIGTERM)
				c.Wait()
				took := time.Since(begun)
				t.Logf("%-45s %s", t.Name(), took.Round(time.Millisecond))
				testkit.Between(t, "the time until the end of\n"+c.Output(), took, 0, most)
				testkit.WantNone(t, c.Output(), "panic")
			})
		}
	}
}

// uncached is a corefile without cache.
func (w *world) uncached(properties ...string) string {
	return strings.Replace(w.corefile(properties...), "\tcache\n", "", 1)
}

// rests waits until the server answers and its lists are in force.
func rests(w *world, c *child) {
	testkit.Until(w.t, "the first answer", c.answers)
	counts("coredns_safebrowsing_list_entries")(w, c)
}

// counts waits until a metric is more than 0.
func counts(metric string) func(*world, *child) {
	return func(w *world, c *child) {
		testkit.Until(w.t, metric, func() bool { return c.metric(metric) > 0 })
	}
}

func breaks(method string, f protocoltest.Fault) func(*world) {
	return func(w *world) { w.google.Break(method, 1<<30, f) }
}

func asked(method string) func(*world, *child) {
	return func(w *world, _ *child) {
		testkit.Until(w.t, "a request", func() bool { return len(w.google.Requests(method)) > 0 })
	}
}

// bigList publishes a list that takes some time to be decoded and written.
func bigList(w *world) {
	r := rand.New(rand.NewPCG(1, 2))
	var entries [][]byte
	for range 1_000_000 {
		entries = append(entries, binary.BigEndian.AppendUint32(nil, r.Uint32()))
	}
	w.google.Publish("mw-4b", entries)
}

// searching sends a query, which waits for a search that does not end.
func searching(w *world, c *child, name string) {
	if len(w.searches()) == 0 {
		rests(w, c)
		w.google.Break("search", 1<<30, protocoltest.Fault{Delay: time.Minute})
	}
	go c.ask(name)
	asked("search")(w, c)
}

// ask asks over UDP, and does not care for the answer.
func (c *child) ask(name string) { _, _ = dns.Exchange(query(name, dns.TypeA), c.address) }

func silentUpstream(w *world) {
	silent := make(chan struct{})
	defer w.t.Cleanup(func() { close(silent) }) // before the name server is stopped, which waits for its answers
	w.upstream = startUpstreamWith(w.t, func(q dns.Question) []dns.RR {
		if q.Name != "started.example.org." {
			<-silent
		}
		return nil
	})
}
