package lookup

import (
	"fmt"
	"math"
	"net/netip"
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
)

// Limiter decides whether a client may cause one more search. It is safe for
// concurrent use.
type Limiter interface {
	// Admit notes a request of client at now, and reports whether it may be
	// carried out.
	Admit(client netip.Addr, now time.Time) bool
}

// LeakyBucket is a rule for one client: a bucket that each admitted request
// fills by one and that leaks. A request that would make it run over is refused.
type LeakyBucket struct {
	Rate     float64 // that leaks out, per second; more than 0
	Capacity float64 // at least 1
}

// Level is the state of a LeakyBucket. The zero Level is an empty bucket.
type Level struct {
	filled float64
	at     time.Time
}

// Admit returns the level after a request at now, and whether it is admitted. It
// is a pure function; a now before that of the last call counts as equal to it.
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

// EMA is a rule for one client: it learns the mean of the gaps between requests
// and their deviation, as exponential moving averages, and refuses a request
// whose gap is shorter than the mean by more than Threshold deviations. A rate
// that lasts is learnt and no longer refused.
//
// A gap is never negative, so z is at most mean/deviation. Requests at random
// (Poisson) have a mean equal to their deviation: for them a threshold of 1 and
// more never refuses. The rule finds bursts of clients that were regular; it
// does not bound a rate.
type EMA struct {
	Threshold float64 // in deviations; more than 0
}

const (
	emaWeight = 0.1 // of a new gap
	emaWarmUp = 10  // gaps that are learnt before one is judged
	emaFloor  = 0.1 // least deviation, as a part of the mean
)

// Gaps is the state of an EMA. The zero Gaps has seen nothing.
type Gaps struct {
	seen           int // gaps, up to emaWarmUp
	mean, variance float64
	last           time.Time
}

// Admit returns the state after a request at now, and whether it is admitted.
// Refused requests are learnt too. It is a pure function.
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

// maxClients bounds the clients that a limiter remembers: those that were seen
// last.
const maxClients = 1 << 14

// perClient applies a rule to each client by itself.
type perClient[S any] struct {
	rule func(S, time.Time) (S, bool)

	mu     sync.Mutex
	states *lru.Cache[netip.Addr, S] // guarded by mu: a state is read, changed and put back
}

// PerClient returns a Limiter that applies a rule, the method Admit of
// LeakyBucket or EMA, to each client by itself. A client is an IPv4 address or
// an IPv6 network of 56 bits, which is what one site has. Of clients that were
// not seen for long their state is forgotten.
func PerClient[S any](rule func(S, time.Time) (S, bool)) Limiter {
	states, err := lru.New[netip.Addr, S](maxClients)
	if err != nil {
		panic(fmt.Sprintf("lookup: a cache of %d entries: %v", maxClients, err))
	}
	return &perClient[S]{rule: rule, states: states}
}

// Admit implements Limiter.
func (p *perClient[S]) Admit(client netip.Addr, now time.Time) bool {
	key := site(client)
	p.mu.Lock()
	defer p.mu.Unlock()
	state, _ := p.states.Get(key)
	state, admitted := p.rule(state, now)
	p.states.Add(key, state)
	return admitted
}

// site returns what stands for a client: its address, or its /56.
func site(client netip.Addr) netip.Addr {
	client = client.Unmap().WithZone("")
	if client.Is6() {
		return netip.PrefixFrom(client, 56).Masked().Addr()
	}
	return client
}
