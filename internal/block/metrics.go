package block

import (
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

// collected are metrics that are made when somebody asks. It stores nothing.
type collected struct {
	descs []*prometheus.Desc
	make  func(chan<- prometheus.Metric)
}

// Describe implements prometheus.Collector.
func (c collected) Describe(descs chan<- *prometheus.Desc) {
	for _, d := range c.descs {
		descs <- d
	}
}

// Collect implements prometheus.Collector.
func (c collected) Collect(metrics chan<- prometheus.Metric) { c.make(metrics) }

func registered(c prometheus.Collector) prometheus.Collector {
	prometheus.MustRegister(c)
	return c
}

func descOf(name, help, label string) *prometheus.Desc {
	return prometheus.NewDesc(prometheus.BuildFQName(plugin.Namespace, say.Plugin, name), help, []string{label}, nil)
}

func ownListDesc(name, help string) *prometheus.Desc { return descOf("own_list_"+name, help, "file") }

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
	ownListFailing = ownListDesc("failing", "Gauge that is 1 while an own list cannot be used, and what was read before, if anything, is in force; else 0.")

	ownListSuccess = ownListDesc("last_success_timestamp_seconds", "Gauge of when an own list by URL was last fetched, or had not changed, 0 for never.")
)

var _ = registered(collected{ownListDescs(), collectOwnLists})

func ownListDescs() []*prometheus.Desc {
	all := []*prometheus.Desc{ownListFailing, ownListSuccess}
	for _, m := range ownListMetrics {
		all = append(all, m.desc)
	}
	return all
}

// collectOwnLists tells of the operator's lists that are open: a list disappears from the metrics when no
// server block uses it. A file that is both a block and an allow list, or is read for several sinkholes,
// counts as the first of these: its series has one label.
func collectOwnLists(metrics chan<- prometheus.Metric) {
	fetched := make(map[string]ownlist.URLState)
	for _, s := range ownlist.URLStates() {
		if !fetched[s.Name].Failing() { // a list may be fetched into several db
			fetched[s.Name] = s
		}
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
		if s.Err != nil || s.Complaint() != "" || s.Fetched && fetch.Failing() {
			failing = 1
		}
		metrics <- gauge(ownListFailing, failing, s.Named)
		if s.Fetched {
			metrics <- gauge(ownListSuccess, seconds(fetch.Checked), s.Named)
		}
	}
}

func gauge(desc *prometheus.Desc, value float64, label string) prometheus.Metric {
	return prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, say.Shown(label)) // a label is UTF-8, and a path may be not
}

// seconds returns a time as metrics tell it, 0 for none.
func seconds(t time.Time) float64 {
	if t.IsZero() {
		return 0
	}
	return float64(t.UnixMilli()) / 1000
}

var pausedDesc = descOf("paused", "Gauge that is 1 while blocking is paused; else 0.", "zones")

// Server blocks with the same zones have one pause, and one series.
var _ = registered(collected{[]*prometheus.Desc{pausedDesc}, func(metrics chan<- prometheus.Metric) {
	paused := make(map[string]float64)
	for _, b := range process.all() {
		if _, now := b.PausedUntil(); now {
			paused[b.zones()] = 1
		} else {
			paused[b.zones()] += 0
		}
	}
	for zones, value := range paused {
		metrics <- gauge(pausedDesc, value, zones)
	}
}})

var devicesDesc = descOf("devices", "Gauge of the clients that ask for public encrypted resolvers, by whether they ask for nothing else, or also for other names.", "state")

var _ = registered(collected{[]*prometheus.Desc{devicesDesc}, func(metrics chan<- prometheus.Metric) {
	r := process.devices.counts()
	metrics <- gauge(devicesDesc, float64(r.Left), "left")
	metrics <- gauge(devicesDesc, float64(r.Also), "also")
}})
