package relay

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/coredns-safebrowsing/safebrowsing/internal/engine"
	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol"
	"github.com/coredns-safebrowsing/safebrowsing/internal/sharing"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
	"github.com/coredns-safebrowsing/safebrowsing/updater"
)

// RedisPasswordVariable is the environment variable with the password of Redis, and
// SentinelPasswordVariable the one with that of its Sentinels.
const (
	RedisPasswordVariable    = "SAFEBROWSING_REDIS_PASSWORD"
	SentinelPasswordVariable = "SAFEBROWSING_REDIS_SENTINEL_PASSWORD"
)

// openRedis opens the Redis that relays share, if the configuration names one. It does not
// wait for Redis.
func (r *Relay) openRedis() error {
	if r.cfg.Redis == nil {
		return nil
	}
	cfg := *r.cfg.Redis
	r.redisLog = &redisLog{target: cfg.Target, fleet: r.cfg.Settings.DB != "", beat: r.cfg.fleetTimes.Beat}
	m := newRedisMetrics(r.redisLog)
	r.handler.metrics.registry.MustRegister(m.all()...)
	cfg.Observer = m
	cfg.Prefix = redisPrefix(r.cfg.Settings.Origin(r.cfg.Key))
	cfg.Resolver = protocol.Resolver(strings.Fields(r.cfg.Settings.Resolvers))
	var err error
	if r.redis, err = sharing.Open(cfg); err != nil {
		return err
	}
	r.cfg.Edge.Searcher = func(next lookup.Searcher) lookup.Searcher {
		a := sharing.NewAnswers(r.redis, next)
		a.LeastPatience, a.Scope = r.cfg.patience, searchScope(r.cfg.Settings)
		a.Clock = r.redisLog.clock
		return a
	}
	return nil
}

// searchScope names what a search asks about a prefix. Version 5 asks about everything; the others
// ask about the threat types of their lists, and "nothing" means nothing of these (Web Risk, "Caching").
func searchScope(s engine.Settings) string {
	if s.Dialect() == protocol.DialectV5 {
		return ""
	}
	lists := strings.Fields(s.Lists)
	slices.Sort(lists)
	sum := sha256.Sum256([]byte(strings.Join(slices.Compact(lists), " ")))
	return hex.EncodeToString(sum[:8])
}

// closeRedis ends what openRedis has opened, after the engine.
func (r *Relay) closeRedis() {
	if r.redis != nil {
		r.redis.Close()
		r.redisLog.close()
	}
}

// redisPrefix returns the prefix of all keys that relays of one origin and key share. The
// number is that of the format. Redis Cluster keeps keys with the same text in braces on
// one node, and scripts need that.
func redisPrefix(o updater.Origin) string {
	return "safebrowsing:1:{" + updater.Asker(o.Name, o.Asker) + "}:"
}

// redisMetrics counts what happens to Redis, and tells the log of its state. It implements
// sharing.Observer.
type redisMetrics struct {
	log      *redisLog
	up       prometheus.Gauge
	errors   *prometheus.CounterVec
	dropped  *prometheus.CounterVec
	duration *prometheus.HistogramVec
}

func newRedisMetrics(l *redisLog) *redisMetrics {
	return &redisMetrics{
		log:      l,
		up:       prometheus.NewGauge(prometheus.GaugeOpts{Namespace: metricsPrefix, Name: "redis_up", Help: "Gauge that is 1 while Redis is used for requests of clients, and 0 while it is left alone because it failed."}),
		errors:   prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: metricsPrefix, Name: "redis_errors_total", Help: "Counter of calls of Redis that failed, by operation."}, []string{"operation"}),
		dropped:  prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: metricsPrefix, Name: "redis_dropped_total", Help: "Counter of writes to Redis that were not made, because Redis was away or slow, by operation."}, []string{"operation"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{Namespace: metricsPrefix, Name: "redis_call_seconds", Help: "Histogram of the time that calls of Redis took, by operation.", Buckets: []float64{.0002, .0005, .001, .002, .003, .01, .1, 1}}, []string{"operation"}),
	}
}

// all returns what is to be registered.
func (m *redisMetrics) all() []prometheus.Collector {
	return []prometheus.Collector{m.up, m.errors, m.dropped, m.duration}
}

// Done implements sharing.Observer.
func (m *redisMetrics) Done(operation string, took time.Duration, err error) {
	m.duration.WithLabelValues(operation).Observe(took.Seconds())
	if err != nil {
		m.errors.WithLabelValues(operation).Inc()
	}
}

// Dropped implements sharing.Observer.
func (m *redisMetrics) Dropped(operation string) { m.dropped.WithLabelValues(operation).Inc() }

// State implements sharing.Observer.
func (m *redisMetrics) State(err error) {
	up := 1.0
	if err != nil {
		up = 0
	}
	m.up.Set(up)
	m.log.State(err)
}
