package engine

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/coredns-safebrowsing/safebrowsing/internal/say"
)

// namespace begins the names of the metrics, and the buckets below are as in CoreDNS
// (plugin.Namespace, plugin.SlimTimeBuckets): its package plugin would link the relay with the
// parser of the Corefile.
const namespace = "coredns"

var (
	requestsTotal = promauto.NewCounterVec(prometheus.CounterOpts{
		Namespace: namespace,
		Subsystem: say.Plugin,
		Name:      "requests_total",
		Help:      "Counter of requests to the Safe Browsing server, by method and outcome.",
	}, []string{"method", "outcome"})

	requestDuration = promauto.NewHistogramVec(prometheus.HistogramOpts{
		Namespace:                   namespace,
		Subsystem:                   say.Plugin,
		Name:                        "request_duration_seconds",
		Buckets:                     prometheus.ExponentialBuckets(0.00025, 10, 5),
		NativeHistogramBucketFactor: 1.05,
		Help:                        "Histogram of the time that requests to the Safe Browsing server took.",
	}, []string{"method"})
)

// buildInfo tells which version a machine of a fleet runs.
var buildInfo = promauto.NewGaugeVec(prometheus.GaugeOpts{
	Namespace: namespace,
	Subsystem: say.Plugin,
	Name:      "build_info",
	Help:      "Gauge that is always 1, with the version of the plugin.",
}, []string{"version"})

// running are the engines that keep lists fresh now. What they know is read when the metrics are.
var running = new(collector)

func init() {
	prometheus.MustRegister(running)
	buildInfo.WithLabelValues(say.Version).Set(1)
}

// engineLabels distinguish engines: the address of the server, or the addresses of all its
// endpoints in the order of the Corefile, whichever is asked at the time; and the directory of
// the lists or "off".
var engineLabels = []string{"endpoint", "db"}

func newEngineDesc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(prometheus.BuildFQName(namespace, say.Plugin, name), help, append(slices.Clone(engineLabels), labels...), nil)
}

var (
	listEntries     = newEngineDesc("list_entries", "Gauge of the entries of a list in force.", "list")
	listLastSuccess = newEngineDesc("list_last_success_timestamp_seconds", "Gauge of when a list was last fetched with success, 0 for never.", "list")
	listNextDue     = newEngineDesc("list_next_due_timestamp_seconds", "Gauge of the earliest time that a list may be fetched again.", "list")
	endpointUp      = newEngineDesc("endpoint_up", "Gauge of each of several endpoints: 1, or 0 while it fails and another one is asked in its place.", "url")
	searchNotBefore = newEngineDesc("search_not_before_timestamp_seconds", "Gauge of until when confirmations are paused; 0 or a time that has passed if they are not.")
	budgetRemaining = newEngineDesc("budget_remaining", "Gauge of the searches that the budget allows until the end of the day.")
)

// collector is a prometheus.Collector of engines. It is safe for concurrent use.
type collector struct {
	mu      sync.Mutex
	engines []*Engine // the oldest first
}

func (c *collector) add(e *Engine) {
	for _, method := range []string{"fetch", "search"} {
		for _, outcome := range []string{"success", "quota", "server_error", "refused", "malformed", "unreachable"} {
			requestsTotal.WithLabelValues(method, outcome) // from 0 on: an alert sees only what grows
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.engines = append(c.engines, e)
}

func (c *collector) remove(e *Engine) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.engines = slices.DeleteFunc(c.engines, func(other *Engine) bool { return other == e })
}

// Describe implements prometheus.Collector.
func (c *collector) Describe(descs chan<- *prometheus.Desc) {
	for _, desc := range []*prometheus.Desc{listEntries, listLastSuccess, listNextDue, endpointUp, searchNotBefore, budgetRemaining} {
		descs <- desc
	}
}

// Collect implements prometheus.Collector. Engines may have the same labels: with several keys and without db
// for ever, and what is worse counts; of one key during a reload, and the younger one counts, but for what may be
// left of a budget and which endpoints fail the lower value.
func (c *collector) Collect(metrics chan<- prometheus.Metric) {
	c.mu.Lock()
	engines := slices.Clone(c.engines)
	c.mu.Unlock()
	type gauge struct {
		desc   *prometheus.Desc
		labels [3]string
	}
	values, askers := make(map[gauge]float64), make(map[gauge]Identity)
	now := time.Now()
	for _, e := range engines {
		asker := e.settings.Identity()
		set := func(desc *prometheus.Desc, value float64, of string) {
			g := gauge{desc, [3]string{say.Shown(e.settings.Address()), say.Shown(cmp.Or(e.settings.DB, "off")), say.Shown(of)}} // labels are UTF-8
			old, ok := values[g]
			switch others := ok && askers[g] != asker; {
			case others && (desc == searchNotBefore || desc == listNextDue):
				value = max(value, old)
			case others, ok && (desc == endpointUp || desc == budgetRemaining):
				value = min(value, old)
			}
			values[g], askers[g] = value, asker
		}
		set(searchNotBefore, unixSeconds(e.SearchHold().Until), "")
		if e.ledger != nil {
			set(budgetRemaining, float64(e.ledger.Remaining(e.settings.Budget, now)), "")
		}
		e.reporter.gauges(set)
	}
	for g, value := range values {
		labels := g.labels[:]
		if g.desc == searchNotBefore || g.desc == budgetRemaining {
			labels = labels[:len(engineLabels)]
		}
		metrics <- prometheus.MustNewConstMetric(g.desc, prometheus.GaugeValue, value, labels...)
	}
}

// gauges sets what is known of lists, and of endpoints if there are several: of a single one the
// outcomes of requests tell.
func (r *reporter) gauges(set func(desc *prometheus.Desc, value float64, of string)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, name := range r.settings.Stored() {
		if e, ok := r.lists[name]; ok {
			set(listEntries, float64(e.Entries), name)
			set(listLastSuccess, unixSeconds(e.Updated), name)
			set(listNextDue, unixSeconds(e.Due), name)
		}
	}
	endpoints := r.settings.Endpoints()
	if len(endpoints) < 2 {
		return
	}
	for _, url := range endpoints {
		up := 1.0
		if r.left[url] {
			up = 0
		}
		set(endpointUp, up, url)
	}
}

func unixSeconds(t time.Time) float64 {
	if t.IsZero() {
		return 0
	}
	return float64(t.UnixMilli()) / 1000
}
