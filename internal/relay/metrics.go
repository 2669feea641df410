package relay

import (
	"net/http"
	"net/netip"
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

// The values of the label outcome.
const (
	outcomeSuccess     = "success"
	outcomeInvalid     = "invalid"     // the request breaks the rules of version 5, or the relay does not have what it asks for
	outcomeDenied      = "denied"      // no valid key
	outcomeLimited     = "limited"     // the client causes too many searches
	outcomeBudget      = "budget"      // the budget, or the client's share of it, is spent
	outcomeBackoff     = "backoff"     // the server must not be asked now
	outcomeUnavailable = "unavailable" // no lists yet, or the server does not answer
	outcomeCancelled   = "cancelled"   // the client has gone away
)

// metrics are one relay's metrics.
type metrics struct {
	registry *prometheus.Registry
	requests *prometheus.CounterVec
	searches *prometheus.CounterVec
	asked    *prometheus.CounterVec
	bytes    prometheus.Counter
	broken   prometheus.Counter
	clients  *clients
}

const metricsPrefix = "safebrowsing_relay"

func newMetrics() *metrics {
	counter := func(name, help string) prometheus.CounterOpts {
		return prometheus.CounterOpts{Namespace: metricsPrefix, Name: name, Help: help}
	}
	m := &metrics{
		registry: prometheus.NewRegistry(),
		requests: prometheus.NewCounterVec(counter("requests_total", "Counter of requests of clients, by method and outcome."), []string{"method", "outcome"}),
		searches: prometheus.NewCounterVec(counter("prefixes_total", "Counter of prefixes that clients asked about, by where the answer came from."), []string{"from"}),
		asked:    prometheus.NewCounterVec(counter("searches_total", "Counter of prefixes that the server was asked about, by why: new, expired, or popular again within another life of the answer."), []string{"reason"}),
		bytes:    prometheus.NewCounter(counter("sent_bytes_total", "Counter of the bytes of answers, without headers.")),
		broken:   prometheus.NewCounter(counter("connection_errors_total", "Counter of connections that broke the rules of HTTP or TLS, or were too many for one address.")),
		clients:  newClients(),
	}
	for o := range lookup.NumOrigins {
		m.searches.WithLabelValues(o.String())
	}
	for r := range lookup.NumReasons {
		m.asked.WithLabelValues(r.String())
	}
	for _, method := range []string{batchGet.name, listAll.name, search.name, getList("").name, "other"} {
		m.requests.WithLabelValues(method, outcomeDenied) // an alert sees only what grows
	}
	gauge := prometheus.NewGaugeFunc(prometheus.GaugeOpts{Namespace: metricsPrefix, Name: "clients", Help: "Gauge of the clients of the last hour, at most 16384."},
		func() float64 { return float64(m.clients.count(time.Now())) })
	m.registry.MustRegister(m.requests, m.searches, m.asked, m.bytes, m.broken, gauge)
	return m
}

// maxClients is the most clients that are counted.
const maxClients = 1 << 14

// clients are those that asked last. It is safe for concurrent use.
type clients struct {
	mu   sync.Mutex
	seen *simplelru.LRU[netip.Addr, time.Time] // guarded by mu
}

func newClients() *clients {
	seen, _ := simplelru.NewLRU[netip.Addr, time.Time](maxClients, nil) // it refuses only a number below 1
	return &clients{seen: seen}
}

// saw notes a request of a client.
func (c *clients) saw(client netip.Addr, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seen.Add(client, now)
}

// count returns how many clients asked within the last hour, and forgets the others.
func (c *clients) count(now time.Time) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		_, last, ok := c.seen.GetOldest()
		if !ok || now.Sub(last) <= time.Hour {
			return c.seen.Len()
		}
		c.seen.RemoveOldest()
	}
}

// countingWriter counts the bytes of an answer.
type countingWriter struct {
	http.ResponseWriter
	bytes prometheus.Counter
	begun bool // the header has been sent before the reply was there
}

// begin sends the header of a reply. The reply must follow, without compression.
func (w *countingWriter) begin() {
	setReplyHeader(w.Header())
	w.WriteHeader(http.StatusOK)
	w.begun = http.NewResponseController(w.ResponseWriter).Flush() == nil
}

// Write implements io.Writer.
func (w *countingWriter) Write(p []byte) (int, error) {
	n, err := w.ResponseWriter.Write(p)
	w.bytes.Add(float64(n))
	return n, err
}

// denials logs that clients have no valid key: at once, and then at most once an hour. It
// is safe for concurrent use.
type denials struct {
	mu     sync.Mutex
	logged time.Time
	since  int // denials since then
}

func (d *denials) note(client string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.since++
	if now := time.Now(); d.logged.IsZero() || now.Sub(d.logged) >= time.Hour {
		log.Warningf("A request from %s has no valid key (%d such since the last such line). "+
			"Put the key of the client into the file of -client-key-file; the next such line comes after an hour at the earliest", client, d.since)
		d.logged, d.since = now, 0
	}
}
