package lookup

import (
	"math"
	"net/netip"
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
)

// Limiter decides whether a client may cause one more search. It is safe for
// concurrent use.
type Limiter interface {
	// Admit records a request of client at now and reports whether it is admitted.
	Admit(client netip.Addr, now time.Time) bool
}

// LeakyBucket is a rule for one client: each admitted request adds 1 to a bucket, and
// the bucket leaks. A request that would overflow it is refused.
type LeakyBucket struct {
	Rate     float64 // requests that leak out per second; more than 0
	Capacity float64 // in requests; at least 1
}

// Level is the state of a LeakyBucket. The zero Level is an empty bucket.
type Level struct {
	filled float64 // in requests
	at     time.Time
}

// Admit returns the level after a request at now, and whether the request is admitted.
// It is a pure function. If now is before l, the clock was set back: nothing leaks.
func (b LeakyBucket) Admit(l Level, now time.Time) (Level, bool) {
	if !l.at.IsZero() {
		if passed := now.Sub(l.at); passed > 0 {
			l.filled = max(0, l.filled-b.Rate*passed.Seconds())
		} else {
			now = l.at
		}
	}
	l.at = now
	if l.filled+1 > b.Capacity {
		return l, false
	}
	l.filled++
	return l, true
}

// EMA is a rule for one client. It learns the mean gap between requests and its
// standard deviation, as exponential moving averages. It refuses a request whose gap is
// more than Threshold deviations shorter than the mean. When a client keeps a new rate,
// the rule learns it and no longer refuses.
//
// The rule finds bursts of clients that were regular; it does not limit a rate. A gap
// is never negative, so it is at most mean/deviation deviations too short. Random
// requests (Poisson) have a deviation equal to their mean: a threshold of 1 or more
// never refuses them.
type EMA struct {
	Threshold float64 // in deviations; more than 0
}

const (
	emaWeight = 0.1 // of a new gap, against the average so far
	emaWarmUp = 10  // gaps to learn before the first request can be refused
	emaFloor  = 0.1 // smallest deviation, as a fraction of the mean
)

// Gaps is the state of an EMA. The zero Gaps has seen no request.
type Gaps struct {
	seen           int     // gaps learnt, up to emaWarmUp
	mean, variance float64 // in seconds, and in seconds squared
	last           time.Time
}

// Admit returns the state after a request at now, and whether the request is admitted.
// The rule learns from refused requests too: otherwise a client with a new rate would
// be refused for ever. It is a pure function.
func (e EMA) Admit(g Gaps, now time.Time) (Gaps, bool) {
	if g.last.IsZero() {
		return Gaps{last: now}, true
	}
	gap := max(0, now.Sub(g.last).Seconds())
	deviation := max(math.Sqrt(g.variance), emaFloor*g.mean)
	admitted := g.seen < emaWarmUp || g.mean-gap <= e.Threshold*deviation
	g.last = now
	if g.seen == 0 {
		g.mean = gap
	} else {
		difference := gap - g.mean
		g.mean += emaWeight * difference
		g.variance = (1 - emaWeight) * (g.variance + emaWeight*difference*difference)
	}
	g.seen = min(g.seen+1, emaWarmUp)
	return g, admitted
}

// maxClients is the most clients that a limiter remembers. It forgets the one that
// has been quiet for the longest time.
const maxClients = 1 << 14

// perClient keeps one state of a rule for each client.
type perClient[S any] struct {
	rule func(S, time.Time) (S, bool)

	mu     sync.Mutex
	states *lru.Cache[netip.Addr, S] // guarded by mu: read, change and write back are one step
}

// PerClient returns a Limiter that applies a rule to each client separately. The rule
// is the method Admit of a LeakyBucket or an EMA. A client is an IPv4 address or an
// IPv6 network of 56 bits, because a site has that many addresses. The Limiter remembers
// the 16,384 clients that it saw last.
func PerClient[S any](rule func(S, time.Time) (S, bool)) Limiter {
	return &perClient[S]{rule: rule, states: bySite[S]()}
}

// bySite returns an empty cache with a value for each of maxClients sites.
func bySite[V any]() *lru.Cache[netip.Addr, V] { return newLRU[netip.Addr, V](maxClients, nil) }

// Admit implements Limiter.
func (p *perClient[S]) Admit(client netip.Addr, now time.Time) bool {
	key := Site(client)
	p.mu.Lock()
	defer p.mu.Unlock()
	state, _ := p.states.Get(key)
	state, admitted := p.rule(state, now)
	p.states.Add(key, state)
	return admitted
}

// Site returns what tells clients apart: the IPv4 address of a client, or its IPv6 network.
func Site(client netip.Addr) netip.Addr {
	client = client.Unmap().WithZone("")
	if client.Is6() {
		return netip.PrefixFrom(client, 56).Masked().Addr()
	}
	return client
}
