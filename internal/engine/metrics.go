package engine

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/coredns/coredns/plugin"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/coredns-safebrowsing/safebrowsing/internal/config"
	"github.com/coredns-safebrowsing/safebrowsing/internal/say"
	"github.com/coredns-safebrowsing/safebrowsing/updater"
)

var (
	requestsTotal = promauto.NewCounterVec(prometheus.CounterOpts{
		Namespace: plugin.Namespace,
		Subsystem: config.Plugin,
		Name:      "requests_total",
		Help:      "Counter of requests to the Safe Browsing server, by method and outcome.",
	}, []string{"method", "outcome"})

	requestDuration = promauto.NewHistogramVec(prometheus.HistogramOpts{
		Namespace:                   plugin.Namespace,
		Subsystem:                   config.Plugin,
		Name:                        "request_duration_seconds",
		Buckets:                     plugin.SlimTimeBuckets,
		NativeHistogramBucketFactor: plugin.NativeHistogramBucketFactor,
		Help:                        "Histogram of the time that requests to the Safe Browsing server took.",
	}, []string{"method"})

	listEntries = newEngineGauge("list_entries", "Gauge of the entries of a list in force.", "list")

	listLastSuccess = newEngineGauge("list_last_success_timestamp_seconds", "Gauge of when a list was last fetched with success, 0 for never.", "list")

	listNextDue = newEngineGauge("list_next_due_timestamp_seconds", "Gauge of the earliest time that a list may be fetched again.", "list")

	endpointUp = newEngineGauge("endpoint_up", "Gauge of each of several endpoints: 1, or 0 while it fails and another one is asked in its place.", "url")

	searchNotBefore = newEngineGauge("search_not_before_timestamp_seconds",
		"Gauge of until when confirmations are paused; 0 or a time that has passed if they are not.")
)

// budgetRemaining is the gauge of the searches left today. It is computed when it is
// asked for, since a new day begins without a search.
var budgetRemaining = &budgetGauge{
	desc: prometheus.NewDesc(prometheus.BuildFQName(plugin.Namespace, config.Plugin, "budget_remaining"),
		"Gauge of the searches that the budget allows until the end of the day.", engineLabels, nil),
	engines: make(map[*Engine]bool),
}

// buildInfo tells which version a machine of a fleet runs.
var buildInfo = promauto.NewGaugeVec(prometheus.GaugeOpts{
	Namespace: plugin.Namespace,
	Subsystem: config.Plugin,
	Name:      "build_info",
	Help:      "Gauge that is always 1, with the version of the plugin.",
}, []string{"version"})

func init() {
	prometheus.MustRegister(budgetRemaining)
	buildInfo.WithLabelValues(say.Version).Set(1)
}

// budgetGauge implements prometheus.Collector. It is safe for concurrent use.
type budgetGauge struct {
	desc *prometheus.Desc

	mu      sync.Mutex
	engines map[*Engine]bool // running, with a budget
}

func (g *budgetGauge) add(e *Engine) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.engines[e] = true
}

func (g *budgetGauge) remove(e *Engine) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.engines, e)
}

// Describe implements prometheus.Collector.
func (g *budgetGauge) Describe(descs chan<- *prometheus.Desc) { descs <- g.desc }

// Collect implements prometheus.Collector. During a reload two engines may have the same
// labels; the lower value counts.
func (g *budgetGauge) Collect(metrics chan<- prometheus.Metric) {
	g.mu.Lock()
	defer g.mu.Unlock()
	values := make(map[[2]string]int)
	for e := range g.engines {
		labels, left := [2]string(labelsOf(e.settings)), e.ledger.Remaining(e.settings.Budget, time.Now())
		if other, ok := values[labels]; !ok || left < other {
			values[labels] = left
		}
	}
	for labels, left := range values {
		metrics <- prometheus.MustNewConstMetric(g.desc, prometheus.GaugeValue, float64(left), labels[:]...)
	}
}

// engineLabels distinguish engines: the address of the server, or the addresses of all its
// endpoints in the order of the Corefile, whichever is asked at the time; and the directory of
// the lists or "off".
var engineLabels = []string{"endpoint", "db"}

// labelsOf returns the values of engineLabels.
func labelsOf(s config.Settings) []string { return []string{s.Address(), cmp.Or(s.DB, "off")} }

func newEngineGauge(name, help string, labels ...string) *prometheus.GaugeVec {
	return promauto.NewGaugeVec(prometheus.GaugeOpts{
		Namespace: plugin.Namespace,
		Subsystem: config.Plugin,
		Name:      name,
		Help:      help,
	}, append(slices.Clone(engineLabels), labels...))
}

// gauges are those of one list.
type gauges struct{ entries, lastSuccess, nextDue *prometheus.GaugeVec }

var listGauges = gauges{listEntries, listLastSuccess, listNextDue}

func (g gauges) set(s config.Settings, e updater.Event) {
	labels := append(labelsOf(s), e.List)
	g.entries.WithLabelValues(labels...).Set(float64(e.Entries))
	g.lastSuccess.WithLabelValues(labels...).Set(unixSeconds(e.Updated))
	g.nextDue.WithLabelValues(labels...).Set(unixSeconds(e.Due))
}

// forget deletes the gauges of a list.
func (g gauges) forget(s config.Settings, list string) {
	for _, gauge := range []*prometheus.GaugeVec{g.entries, g.lastSuccess, g.nextDue} {
		gauge.DeleteLabelValues(append(labelsOf(s), list)...)
	}
}

func unixSeconds(t time.Time) float64 {
	if t.IsZero() {
		return 0
	}
	return float64(t.UnixMilli()) / 1000
}
