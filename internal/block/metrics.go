package block

import (
	"strings"
	"time"

	"github.com/coredns/coredns/plugin"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/coredns-safebrowsing/safebrowsing/internal/ownlist"
	"github.com/coredns-safebrowsing/safebrowsing/internal/say"
)

var listedLateTotal = promauto.NewCounterVec(prometheus.CounterOpts{
	Namespace: plugin.Namespace,
	Subsystem: say.Plugin,
	Name:      "listed_late_total",
	Help:      "Counter of devices that asked for a name before the list had it, see look_back.",
}, []string{"list"})

// ownLists exports the state of the operator's lists that are open. It stores
// nothing: a list disappears from the metrics when no server block uses it.
type ownLists struct{}

var ownListMetrics = []struct {
	desc  *prometheus.Desc
	value func(ownlist.State) float64
}{
	{ownListDesc("entries", "Gauge of the names of an own list in force."),
		func(s ownlist.State) float64 { return float64(s.InForce()) }},
	{ownListDesc("bad_lines", "Gauge of the lines of an own list that are not list entries."),
		func(s ownlist.State) float64 { return float64(s.Bad.Count) }},
	{ownListDesc("unsupported_lines", "Gauge of the lines of an own list that are left out, as they are not supported."),
		func(s ownlist.State) float64 { return float64(s.NotSupported() + s.Elsewhere.Count) }},
	{ownListDesc("last_change_timestamp_seconds", "Gauge of when the content of an own list in force was last changed."),
		func(s ownlist.State) float64 { return seconds(s.Modified) }},
}

var (
	ownListFailing = ownListDesc("failing", "Gauge that is 1 while an own list cannot be read or fetched, and what was read before is in force; else 0.")

	ownListSuccess = ownListDesc("last_success_timestamp_seconds", "Gauge of when an own list by URL was last fetched, or had not changed, 0 for never.")
)

var _ = registered(ownLists{})

func registered(c prometheus.Collector) prometheus.Collector {
	prometheus.MustRegister(c)
	return c
}

func ownListDesc(name, help string) *prometheus.Desc {
	return prometheus.NewDesc(prometheus.BuildFQName(plugin.Namespace, say.Plugin, "own_list_"+name), help, []string{"file"}, nil)
}

// Describe implements prometheus.Collector.
func (ownLists) Describe(descs chan<- *prometheus.Desc) {
	for _, m := range ownListMetrics {
		descs <- m.desc
	}
	descs <- ownListFailing
	descs <- ownListSuccess
}

// Collect implements prometheus.Collector. A file that is both a block and an allow
// list, or is read for several sinkholes, counts as the first of these: its series
// has one label.
func (ownLists) Collect(metrics chan<- prometheus.Metric) {
	fetched := make(map[string]ownlist.URLState)
	for _, s := range ownlist.URLStates() {
		fetched[s.Name] = s
	}
	seen := make(map[string]bool)
	for _, s := range ownlist.States() {
		if seen[s.Named] {
			continue
		}
		seen[s.Named] = true
		for _, m := range ownListMetrics {
			metrics <- gauge(m.desc, m.value(s), s.Named)
		}
		failing, fetch := 0.0, fetched[s.Named]
		if s.Err != nil || s.Fetched && fetch.Failing() {
			failing = 1
		}
		metrics <- gauge(ownListFailing, failing, s.Named)
		if s.Fetched {
			metrics <- gauge(ownListSuccess, seconds(fetch.Checked), s.Named)
		}
	}
}

func gauge(desc *prometheus.Desc, value float64, label string) prometheus.Metric {
	return prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, label)
}

// seconds returns a time as metrics tell it, 0 for none.
func seconds(t time.Time) float64 {
	if t.IsZero() {
		return 0
	}
	return float64(t.UnixMilli()) / 1000
}

// pausedMetric exports whether server blocks are paused. It stores nothing.
type pausedMetric struct{ desc *prometheus.Desc }

var _ = registered(pausedMetric{prometheus.NewDesc(prometheus.BuildFQName(plugin.Namespace, say.Plugin, "paused"),
	"Gauge that is 1 while blocking is paused; else 0.", []string{"zones"}, nil)})

// Describe implements prometheus.Collector.
func (m pausedMetric) Describe(descs chan<- *prometheus.Desc) { descs <- m.desc }

// Collect implements prometheus.Collector. Server blocks with the same zones have one
// pause, and one series.
func (m pausedMetric) Collect(metrics chan<- prometheus.Metric) {
	paused := make(map[string]float64)
	for _, b := range process.all() {
		zones := strings.Join(b.Config.Zones, " ")
		if _, now := b.PausedUntil(); now {
			paused[zones] = 1
		} else {
			paused[zones] += 0
		}
	}
	for zones, value := range paused {
		metrics <- prometheus.MustNewConstMetric(m.desc, prometheus.GaugeValue, value, zones)
	}
}

// devicesMetric exports who asks for other resolvers. It stores nothing.
type devicesMetric struct{ desc *prometheus.Desc }

var _ = registered(devicesMetric{prometheus.NewDesc(prometheus.BuildFQName(plugin.Namespace, say.Plugin, "devices"),
	"Gauge of the clients that ask for public encrypted resolvers, by whether they ask for nothing else, or also for other names.", []string{"state"}, nil)})

// Describe implements prometheus.Collector.
func (m devicesMetric) Describe(descs chan<- *prometheus.Desc) { descs <- m.desc }

// Collect implements prometheus.Collector.
func (m devicesMetric) Collect(metrics chan<- prometheus.Metric) {
	r := process.devices.counts()
	metrics <- gauge(m.desc, float64(r.Left), "left")
	metrics <- gauge(m.desc, float64(r.Also), "also")
}
