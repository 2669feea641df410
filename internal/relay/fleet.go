package relay

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/coredns-safebrowsing/safebrowsing/internal/say"
	"github.com/coredns-safebrowsing/safebrowsing/internal/sharing"
	"github.com/coredns-safebrowsing/safebrowsing/updater"
)

// sharedLists is what a relay shares with others over Redis.
type sharedLists struct {
	relay   *Relay
	store   *sharing.Store
	metrics *fleetMetrics
}

// openFleet makes the engine share lists, clocks and counts over the Redis of openRedis, if there is
// one.
func (r *Relay) openFleet() {
	switch {
	case r.redis == nil:
		return
	case r.cfg.Settings.DB == "": // Redis may be away: a folder is the second memory
		log.Warning("This relay fetches its lists for itself, since it has no folder. Give -db to share lists and clocks with other relays")
		return
	}
	m := newFleetMetrics()
	r.handler.metrics.registry.MustRegister(m.leader, m.changes, m.age)
	r.fleet = &sharedLists{relay: r, metrics: m}
	r.cfg.Edge.Share = r.fleet.share
}

// share makes what the engine shares.
func (f *sharedLists) share(origin updater.Origin) updater.Shared {
	c := f.relay.cfg.fleetTimes
	c.Client, c.Origin, c.Folder, c.Writer, c.Report = f.relay.redis, origin, f.relay.cfg.Settings.DB, say.Version, f.report
	f.store = sharing.OpenStore(c)
	f.metrics.age.store = f.store
	return fleetStore{f.store, origin, c.Client}
}

// fleetStore is a Store whose client shares answers and limits with the relays of the same key, too.
type fleetStore struct {
	*sharing.Store
	origin updater.Origin
	client *sharing.Client
}

// Rekey implements updater.Shared.
func (s fleetStore) Rekey(asker string) {
	s.origin.Asker = asker
	s.client.SetPrefix(redisPrefix(s.origin))
	s.Store.Rekey(asker)
}

// close ends the fleet, after the engine. A nil fleet has nothing to end.
func (f *sharedLists) close() {
	if f != nil && f.store != nil {
		f.store.Close()
	}
}

// report logs and counts what happens to the lease and to Redis.
func (f *sharedLists) report(e sharing.Event) {
	f.metrics.note(e)
	switch e.Kind {
	case sharing.Lost, sharing.Back, sharing.Newer:
		f.relay.redisLog.report(e)
	case sharing.LeaseTaken:
		log.Info("This relay fetches lists for all relays on this Redis")
	case sharing.LeaseLost:
		log.Info("This relay no longer fetches lists")
	case sharing.Follows:
		log.Infof("Relay %s fetches lists for all relays on this Redis", e.Holder)
	case sharing.Alone:
		log.Warningf("Redis at %s has been away since %s. This relay knows of no other that fetches lists, so it continues by itself, with the clocks in %s, until Redis is back", f.relay.cfg.Redis.Target, say.Time(e.Since), f.relay.cfg.Settings.DB)
	case sharing.Repaired:
		log.Warning("Lists were missing or damaged in Redis. This relay publishes them again")
	}
}

// fleetMetrics are the metrics of a relay that shares lists.
type fleetMetrics struct {
	leader  prometheus.Gauge
	changes prometheus.Counter
	age     *headAge
}

func newFleetMetrics() *fleetMetrics {
	return &fleetMetrics{
		leader:  prometheus.NewGauge(prometheus.GaugeOpts{Namespace: metricsPrefix, Name: "leader", Help: "Gauge that is 1 while this relay fetches lists for all relays on its Redis, otherwise 0."}),
		changes: prometheus.NewCounter(prometheus.CounterOpts{Namespace: metricsPrefix, Name: "lease_changes_total", Help: "Counter of how often this relay began or ceased to fetch lists for all relays on its Redis."}),
		age:     &headAge{desc: prometheus.NewDesc(metricsPrefix+"_redis_list_updated_timestamp_seconds", "Gauge of the Unix time when the content of a list in Redis was fetched, by list.", []string{"list"}, nil)},
	}
}

// note counts an event.
func (m *fleetMetrics) note(e sharing.Event) {
	switch e.Kind {
	case sharing.LeaseTaken, sharing.Alone:
		m.leader.Set(1)
		m.changes.Inc()
	case sharing.LeaseLost:
		m.leader.Set(0)
		m.changes.Inc()
	}
}

// headAge collects when the lists in Redis were fetched.
type headAge struct {
	desc  *prometheus.Desc
	store *sharing.Store // nil: not opened yet; set before the first collection
}

// Describe implements prometheus.Collector.
func (h *headAge) Describe(c chan<- *prometheus.Desc) { c <- h.desc }

// Collect implements prometheus.Collector.
func (h *headAge) Collect(c chan<- prometheus.Metric) {
	if h.store == nil {
		return
	}
	for list, received := range h.store.Received() {
		c <- prometheus.MustNewConstMetric(h.desc, prometheus.GaugeValue, float64(received.Unix()), list)
	}
}
