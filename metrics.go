package safebrowsing

import (
	"cmp"
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/coredns/coredns/plugin"
	"github.com/coredns/coredns/plugin/metrics"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/coredns-safebrowsing/safebrowsing/internal/config"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
	"github.com/coredns-safebrowsing/safebrowsing/updater"
)

var (
	verdictsTotal = promauto.NewCounterVec(prometheus.CounterOpts{
		Namespace: plugin.Namespace,
		Subsystem: config.Plugin,
		Name:      "verdicts_total",
		Help:      "Counter of names checked, by verdict and by who decided it.",
	}, []string{"server", "view", "verdict", "decided_by"})

	blockedTotal = promauto.NewCounterVec(prometheus.CounterOpts{
		Namespace: plugin.Namespace,
		Subsystem: config.Plugin,
		Name:      "blocked_total",
		Help:      "Counter of names blocked, by the list that they matched.",
	}, []string{"server", "view", "list"})

	frameOnlyTotal = promauto.NewCounterVec(prometheus.CounterOpts{
		Namespace: plugin.Namespace,
		Subsystem: config.Plugin,
		Name:      "frame_only_total",
		Help:      "Counter of names whose threat the server marks FRAME_ONLY, by what became of them.",
	}, []string{"server", "view", "action"})

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

	searchNotBefore = newEngineGauge("search_not_before_timestamp_seconds",
		"Gauge of until when confirmations are paused; 0 or a time that has passed if they are not.")
)

// engineLabels tell engines apart: the address of the server, and the folder of
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
	g.lastSuccess.WithLabelValues(labels...).Set(unix(e.Updated))
	g.nextDue.WithLabelValues(labels...).Set(unix(e.Due))
}

// forget takes the gauges of a list down.
func (g gauges) forget(s config.Settings, list string) {
	for _, gauge := range []*prometheus.GaugeVec{g.entries, g.lastSuccess, g.nextDue} {
		gauge.DeleteLabelValues(append(labelsOf(s), list)...)
	}
}

func unix(t time.Time) float64 {
	if t.IsZero() {
		return 0
	}
	return float64(t.UnixMilli()) / 1000
}

// blockMetrics counts for one server block. The counters of a server are looked
// up by their labels once, not for each query. The zero value is ready to use;
// it is safe for concurrent use.
type blockMetrics struct {
	servers atomic.Pointer[[]*serverMetrics] // copied to be changed: a block has few servers
}

type serverMetrics struct {
	server, view string
	verdicts     [lookup.Unsure + 1][lookup.NumDeciders]atomic.Pointer[prometheus.Counter]
}

// count counts a decision about a query, and with blocks set that a query is
// blocked if the decision is that it is unsafe.
func (b *blockMetrics) count(ctx context.Context, d lookup.Decision, blocks bool) {
	m := b.of(metrics.WithServer(ctx), metrics.WithView(ctx))
	slot := &m.verdicts[d.Verdict][d.By]
	counter := slot.Load()
	if counter == nil {
		c := verdictsTotal.WithLabelValues(m.server, m.view, d.Verdict.String(), d.By.String())
		counter = &c
		slot.Store(counter)
	}
	(*counter).Inc()
	if d.Verdict == lookup.Unsafe && blocks {
		blockedTotal.WithLabelValues(m.server, m.view, d.List).Inc()
	}
}

// countFrameOnly counts a decision that rests on a threat marked FRAME_ONLY.
func (b *blockMetrics) countFrameOnly(ctx context.Context, blocked bool) {
	action := "passed"
	if blocked {
		action = "blocked"
	}
	frameOnlyTotal.WithLabelValues(metrics.WithServer(ctx), metrics.WithView(ctx), action).Inc()
}

func (b *blockMetrics) of(server, view string) *serverMetrics {
	for {
		old := b.servers.Load()
		var known []*serverMetrics
		if old != nil {
			known = *old
		}
		for _, m := range known {
			if m.server == server && m.view == view {
				return m
			}
		}
		grown := append(slices.Clip(known), &serverMetrics{server: server, view: view})
		if b.servers.CompareAndSwap(old, &grown) {
			return grown[len(grown)-1]
		}
	}
}
