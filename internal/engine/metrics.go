package engine

import (
	"cmp"
	"slices"
	"time"

	"github.com/coredns/coredns/plugin"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/coredns-safebrowsing/safebrowsing/internal/config"
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

	searchNotBefore = newEngineGauge("search_not_before_timestamp_seconds",
		"Gauge of until when confirmations are paused; 0 or a time that has passed if they are not.")
)

// engineLabels distinguish engines: the address of the server, and the directory of
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

// forget deletes the gauges of a list.
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
