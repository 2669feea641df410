package safebrowsing

import (
	"time"

	"github.com/coredns/coredns/plugin"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/coredns-safebrowsing/safebrowsing/internal/config"
	"github.com/coredns-safebrowsing/safebrowsing/internal/ownlist"
)

// ownLists exports the state of the operator's lists that are open. It keeps
// nothing: a list that no server block uses any more is gone from the metrics.
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
	{ownListDesc("failing", "Gauge that is 1 while the file of an own list cannot be used, and what was read before is in force; else 0."),
		func(s ownlist.State) float64 {
			if s.Err != nil {
				return 1
			}
			return 0
		}},
}

var _ = registered(ownLists{})

func registered(c prometheus.Collector) prometheus.Collector {
	prometheus.MustRegister(c)
	return c
}

func ownListDesc(name, help string) *prometheus.Desc {
	return prometheus.NewDesc(prometheus.BuildFQName(plugin.Namespace, config.Plugin, "own_list_"+name), help, []string{"file"}, nil)
}

// Describe implements prometheus.Collector.
func (ownLists) Describe(descs chan<- *prometheus.Desc) {
	for _, m := range ownListMetrics {
		descs <- m.desc
	}
}

// Collect implements prometheus.Collector. A file that is both a block and an allow
// list, or is read for several sinkholes, counts as the first of these: its series
// has one label.
func (ownLists) Collect(metrics chan<- prometheus.Metric) {
	seen := make(map[string]bool)
	for _, s := range ownlist.States() {
		if seen[s.Named] {
			continue
		}
		seen[s.Named] = true
		for _, m := range ownListMetrics {
			metrics <- prometheus.MustNewConstMetric(m.desc, prometheus.GaugeValue, m.value(s), s.Named)
		}
	}
}

// seconds returns a time as metrics tell it, 0 for none.
func seconds(t time.Time) float64 {
	if t.IsZero() {
		return 0
	}
	return float64(t.UnixMilli()) / 1000
}
