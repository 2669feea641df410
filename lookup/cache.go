package lookup

import (
	"sync/atomic"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
)

// maxVerdictAge is how long a confirmed threat may be acted on, whatever the
// server says (Safe Browsing terms: a warning rests on data of the last 30
// minutes).
const maxVerdictAge = 30 * time.Minute

// confirmed is the server's answer about one prefix.
type confirmed struct {
	asked   time.Time
	life    time.Duration
	threats []ThreatHash // none: the server knows no threat behind this prefix
}

// fresh reports whether the answer may be used at now. The wall clock and the
// monotonic clock must both agree: the one may be set back, the other stands
// still while a machine sleeps.
func (c confirmed) fresh(now time.Time) bool {
	return now.Sub(c.asked) <= c.life && now.Round(0).Sub(c.asked.Round(0)) <= c.life
}

// cache keeps what the server said about each prefix, also when it said
// nothing. Expiry is checked on reading. Safe for concurrent use.
type cache struct {
	answers *lru.Cache[Prefix, confirmed]
	// threatsUntil is when the last cached threat expires, in nanoseconds of
	// the Unix clock, or 0. Until then a prefix must be looked up here even if
	// no list holds it any more ("Local List Mode": the cache comes first).
	threatsUntil atomic.Int64
}

func newCache(capacity int) (*cache, error) {
	answers, err := lru.New[Prefix, confirmed](capacity)
	return &cache{answers: answers}, err
}

// get returns the fresh answer about a prefix.
func (c *cache) get(p Prefix, now time.Time) (confirmed, bool) {
	answer, ok := c.answers.Get(p)
	if !ok {
		return confirmed{}, false
	}
	if !answer.fresh(now) {
		c.answers.Remove(p)
		return confirmed{}, false
	}
	return answer, true
}

// put keeps the answer about p for its life, one with threats no longer than
// maxVerdictAge.
func (c *cache) put(p Prefix, answer confirmed) {
	if len(answer.threats) > 0 {
		answer.life = min(answer.life, maxVerdictAge)
		until := answer.asked.Add(answer.life).UnixNano()
		for old := c.threatsUntil.Load(); old < until && !c.threatsUntil.CompareAndSwap(old, until); {
			old = c.threatsUntil.Load()
		}
	}
	if answer.life > 0 {
		c.answers.Add(p, answer)
	}
}

// holdsThreats reports whether a fresh threat may be in the cache. While none
// is, which is nearly always, it costs one load and no look at the clock.
func (c *cache) holdsThreats() bool {
	until := c.threatsUntil.Load()
	if until == 0 {
		return false
	}
	if time.Now().UnixNano() > until {
		c.threatsUntil.CompareAndSwap(until, 0)
		return false
	}
	return true
}

// has reports whether the cache holds an answer about p, fresh or not.
func (c *cache) has(p Prefix) bool { return c.answers.Contains(p) }
