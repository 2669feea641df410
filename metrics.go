package safebrowsing

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/coredns/coredns/plugin"
	"github.com/coredns/coredns/plugin/metrics"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/coredns-safebrowsing/safebrowsing/internal/config"
	"github.com/coredns-safebrowsing/safebrowsing/internal/listfetch"
	"github.com/coredns-safebrowsing/safebrowsing/internal/ownlist"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

var (
	verdictsTotal = newCounter("verdicts_total", "Counter of names checked, by verdict and by who decided it.", "verdict", "decided_by")

	blockedTotal = newCounter("blocked_total", "Counter of names blocked, by the list that they matched.", "list")

	frameOnlyTotal = newCounter("frame_only_total", "Counter of names whose threat the server marks FRAME_ONLY, by what became of them.", "action")
)

// newCounter registers a counter of queries, by server and view and by labels.
func newCounter(name, help string, labels ...string) *prometheus.CounterVec {
	return promauto.NewCounterVec(prometheus.CounterOpts{
		Namespace: plugin.Namespace,
		Subsystem: config.Plugin,
		Name:      name,
		Help:      help,
	}, append([]string{"server", "view"}, labels...))
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

// countVerdict counts a decision about a name.
func (b *blockMetrics) countVerdict(ctx context.Context, d lookup.Decision) {
	m := b.of(metrics.WithServer(ctx), metrics.WithView(ctx))
	slot := &m.verdicts[d.Verdict][d.By]
	counter := slot.Load()
	if counter == nil {
		c := verdictsTotal.WithLabelValues(m.server, m.view, d.Verdict.String(), d.By.String())
		counter = &c
		slot.Store(counter)
	}
	(*counter).Inc()
}

// countBlocked counts a query that is blocked.
func (b *blockMetrics) countBlocked(ctx context.Context, d lookup.Decision) {
	blockedTotal.WithLabelValues(metrics.WithServer(ctx), metrics.WithView(ctx), d.List).Inc()
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
	return prometheus.NewDesc(prometheus.BuildFQName(plugin.Namespace, config.Plugin, "own_list_"+name), help, []string{"file"}, nil)
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
	fetched := make(map[string]listfetch.State)
	for _, s := range listfetch.States() {
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
