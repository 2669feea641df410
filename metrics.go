package safebrowsing

import (
	"context"
	"slices"
	"sync/atomic"

	"github.com/coredns/coredns/plugin"
	"github.com/coredns/coredns/plugin/metrics"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	dto "github.com/prometheus/client_model/go"

	"github.com/coredns-safebrowsing/safebrowsing/internal/say"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

var (
	verdictsTotal = newCounter("verdicts_total", "Counter of names checked, by verdict and by who decided it.", "verdict", "decided_by")

	blockedTotal = newCounter("blocked_total", "Counter of names blocked, by the list that they matched.", "list")

	keptTotal = newCounter("kept_total", "Counter of queries that are answered here so that clients stay, by reason.", "reason")

	frameOnlyTotal = newCounter("frame_only_total", "Counter of names whose threat the server marks FRAME_ONLY, by what became of them.", "action")
)

// namesChecked returns how many names the process has decided about: the sum of verdicts_total.
func namesChecked() (n int64) { // an int has 32 bits on some machines
	all := make(chan prometheus.Metric)
	go func() {
		verdictsTotal.Collect(all)
		close(all)
	}()
	for m := range all {
		var value dto.Metric
		if m.Write(&value) == nil {
			n += int64(value.GetCounter().GetValue())
		}
	}
	return n
}

// newCounter registers a counter of queries, by server and view and by labels.
func newCounter(name, help string, labels ...string) *prometheus.CounterVec {
	return promauto.NewCounterVec(prometheus.CounterOpts{
		Namespace: plugin.Namespace,
		Subsystem: say.Plugin,
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

// count counts a query by the one label of a counter. It is for what happens to few queries.
func count(ctx context.Context, c *prometheus.CounterVec, label string) {
	c.WithLabelValues(metrics.WithServer(ctx), metrics.WithView(ctx), say.Shown(label)).Inc() // of a file: it may not be UTF-8
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
