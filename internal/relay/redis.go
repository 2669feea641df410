package relay

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/coredns-safebrowsing/safebrowsing/internal/engine"
	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol"
	"github.com/coredns-safebrowsing/safebrowsing/internal/sharing"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
	"github.com/coredns-safebrowsing/safebrowsing/updater"
)

// RedisPasswordVariable is the environment variable with the password of Redis, and
// SentinelPasswordVariable the one with its Sentinels' password.
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

// redisPrefix returns the prefix of all keys that relays of one origin and key share.
func redisPrefix(o updater.Origin) string { return sharing.Prefix(updater.Asker(o.Name, o.Asker)) }

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

// redisLog logs in what state Redis is: one line when a state begins. Requests of clients and
// lists use Redis by themselves, and when it dies both find out, one some seconds after the
// other. That is one state. It is safe for concurrent use.
type redisLog struct {
	target sharing.Target
	fleet  bool          // lists use Redis, too; set before use
	beat   time.Duration // mean time between two looks of the lists at Redis

	mu       sync.Mutex
	requests use
	lists    use
	said     redisState
	timer    *time.Timer // says that only requests of clients cannot use Redis; nil: not pending
	differs  bool        // the clocks of Redis and of this machine differ, as was said last
}

// use is what one of the two knows of Redis.
type use struct {
	known bool
	err   error // nil: it can use Redis
}

// errNewer stands for data of a newer format.
var errNewer = errors.New("redis has data of a newer format")

// redisState is what the log has said last.
type redisState uint8

const (
	saidNothing  redisState = iota
	saidWorks               // for all that uses it
	saidRequests            // requests of clients cannot use it
	saidLost                // nothing can use it
)

const (
	// listsFindOut is how much longer than a beat and a half the lists take to find out that
	// Redis is lost: they wait for a connection, and for an answer.
	listsFindOut = 5 * time.Second
	// requestsFindOut is how long requests of clients may take to find out that Redis works:
	// they try it again within 30 seconds.
	requestsFindOut = 45 * time.Second
)

// State notes that requests of clients can use Redis, or why they cannot.
func (l *redisLog) State(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.requests = use{true, err}
	l.update()
}

// report notes whether the lists can use Redis. Other events say nothing about that.
func (l *redisLog) report(e sharing.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch e.Kind {
	case sharing.Back:
		l.lists = use{known: true}
		l.update()
	case sharing.Lost:
		l.lists = use{true, e.Err}
		l.lost()
		log.Errorf("Cannot use Redis at %s: %v. This relay serves the lists it has, with answers and limits of its own. If it fetches lists now, it stops before its lease ends. It tries again all the time. %s", l.target, e.Err, sharing.Cure(e.Err))
	case sharing.Newer:
		l.lists = use{true, errNewer}
		l.lost()
		log.Errorf("Redis at %s has data of a newer format, written by version %s. This relay leaves it alone, serves the lists it has and fetches none. Upgrade this relay", l.target, e.Holder)
	}
}

const (
	// clockWrong is how much this machine's clock may differ from Redis's: this much is
	// lost of the life of an answer.
	clockWrong = 5 * time.Second
	// clockRight is what ends the state of a clock that is wrong.
	clockRight = 2 * time.Second
)

// clock notes by how much this machine's clock is ahead of Redis's; negative: behind.
func (l *redisLog) clock(ahead time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch by := ahead.Abs().Round(time.Second); {
	case !l.differs && by >= clockWrong:
		l.differs = true
		where := "ahead of"
		if ahead < 0 {
			where = "behind"
		}
		log.Warningf("The clock of this machine is %s %s the clock of Redis at %s. Until they differ by less than 2 seconds, this relay and others ask the server about more names, since each may take answers of the other for older than they are. Set the clocks of all relays and of Redis by NTP: \"chronyc tracking\" shows whether one is", by, where, l.target)
	case l.differs && by < clockRight:
		l.differs = false
		log.Infof("The clock of this machine agrees with the clock of Redis at %s again", l.target)
	}
}

// lost notes that a line has told of the loss. The caller holds mu.
func (l *redisLog) lost() {
	l.said = saidLost
	l.stop()
}

// update logs the state, if it is another one than before. The caller holds mu.
func (l *redisLog) update() {
	switch {
	case l.lists.err != nil: // was told
	case l.requests.err != nil && !l.fleet:
		l.onlyRequests()
	case l.requests.err != nil && l.timer == nil && l.said != saidRequests:
		patience := cmp.Or(l.beat, sharing.DefaultBeat)*3/2 + listsFindOut
		if l.said == saidLost {
			patience = requestsFindOut
		}
		l.timer = time.AfterFunc(patience, func() {
			l.mu.Lock()
			defer l.mu.Unlock()
			if l.timer != nil {
				l.timer = nil
				l.onlyRequests()
			}
		})
	case l.requests.err == nil && l.requests.known && l.lists.known == l.fleet:
		l.works()
	}
}

// onlyRequests tells that requests of clients cannot use Redis. The caller holds mu.
func (l *redisLog) onlyRequests() {
	if l.said == saidRequests {
		return
	}
	l.said = saidRequests
	log.Errorf("Cannot use Redis at %s for requests of clients: %v. Until that works, this relay has answers and limits of its own. It tries again within 30 seconds", l.target, l.requests.err)
}

// works tells that all can use Redis. The caller holds mu.
func (l *redisLog) works() {
	l.stop()
	if l.said == saidWorks {
		return
	}
	l.said = saidWorks
	what := "answers and limits"
	if l.fleet {
		what = "lists, clocks, answers and limits"
	}
	log.Infof("This relay shares %s over Redis at %s", what, l.target)
}

// stop ends the timer. The caller holds mu.
func (l *redisLog) stop() {
	if l.timer != nil {
		l.timer.Stop()
		l.timer = nil
	}
}

// close ends the log.
func (l *redisLog) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stop()
}
