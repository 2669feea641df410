package lookup

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
)

// maxVerdictAge limits how long a confirmed threat blocks a host, even if the server
// allows more (Safe Browsing terms: a warning must rest on data of the last 30
// minutes).
const maxVerdictAge = 30 * time.Minute

// serverAnswer is the answer to one search. In the cache it is the part about one
// prefix.
type serverAnswer struct {
	received time.Time
	ttl      time.Duration // of full hashes without an entry in threats
	threats  []ThreatHash  // empty: the server knows no threat
}

// live reports whether a TTL that began with the answer has not ended at now. Both
// clocks must agree: an operator may set the wall clock back, and the monotonic
// clock stops while the machine is suspended. A negative TTL has ended whenever the
// answer came: a query may have read the clock before that.
func (a serverAnswer) live(ttl time.Duration, now time.Time) bool {
	return ttl >= 0 && now.Sub(a.received) <= ttl && now.Round(0).Sub(a.received.Round(0)) <= ttl
}

// answers reports whether the answer may be used for a full hash at now. A threat
// has a TTL of its own. When that has ended, the client must ask the server again,
// even while the TTL of the answer has not ended ("Caching" of the Update API; in
// version 5 both are equal).
func (a serverAnswer) answers(hash FullHash, now time.Time) bool {
	listed := false
	for _, t := range a.threats {
		if t.Hash == hash {
			if !a.live(t.TTL, now) {
				return false
			}
			listed = true
		}
	}
	return listed || a.live(a.ttl, now)
}

// maxThreats is the most full hashes that the cache keeps for one prefix. Google
// rarely lists more than one. An attacker who makes 256 of them, at four billion
// tries each, must not fill the cache.
const maxThreats = 256

// cache keeps the server's answer about each prefix, including negative answers.
// Readers check expiry; no goroutine removes old answers. It is safe for concurrent
// use.
//
// The number of prefixes and the number of full hashes are bounded, and so are the
// bytes: a prefix takes about 250, a full hash 48.
type cache struct {
	answers *lru.Cache[Prefix, serverAnswer] // changed under mu
	sizes   atomic.Uint64                    // bit n: there may be an answer about a prefix of n bytes

	// threatBits has one bit for each value of the first 16 bits of a full hash. The
	// bit is set while the cache may hold a threat that begins with this value. Such
	// a host is looked up in the cache even if no list holds it any more ("Local List
	// Mode": the cache comes first). A query reads the bit without a lock and without
	// the clock.
	//
	// There are two words for each bit. One of them is current and receives new bits.
	// After maxVerdictAge every threat in the other word has expired: that word is
	// cleared and becomes the current one. With a single word, bits would pile up on
	// a server that always has some threat cached.
	threatBits [1 << 16 / 64][2]atomic.Uint64
	anyThreat  atomic.Bool // a bit of threatBits is set

	mu           sync.Mutex // held while answers and threatBits change
	hashes       int        // full hashes in answers; guarded by mu
	maxHashes    int        // immutable
	threatsUntil time.Time  // when the last cached threat expires, or zero; guarded by mu
	current      int        // the word that receives new bits, 0 or 1; guarded by mu
	currentSince time.Time  // guarded by mu
}

// newCache returns a cache for at most capacity prefixes. It keeps as many full
// hashes, and never fewer than maxThreats.
func newCache(capacity int) *cache {
	c := &cache{maxHashes: max(capacity, maxThreats)}
	c.answers = newLRU(capacity, func(_ Prefix, evicted serverAnswer) { c.hashes -= len(evicted.threats) })
	return c
}

// newLRU returns a cache that keeps the capacity values, 1 or more, that were used last. evicted is told of
// each one that goes; it may be nil.
func newLRU[K comparable, V any](capacity int, evicted func(K, V)) *lru.Cache[K, V] {
	c, err := lru.NewWithEvict(capacity, evicted)
	if err != nil {
		panic(fmt.Sprintf("lookup: a cache of %d entries: %v", capacity, err))
	}
	return c
}

// get returns the cached answer about a full hash. If there are several, about
// prefixes of different lengths, the youngest counts, even if it has expired.
func (c *cache) get(hash FullHash, now time.Time) (answer serverAnswer, ok bool) {
	for sizes := c.sizes.Load(); sizes != 0; sizes &^= 1 << bits.TrailingZeros64(sizes) {
		a, found := c.answers.Get(hash.Prefix(bits.TrailingZeros64(sizes)))
		if found && (!ok || a.received.After(answer.received)) {
			answer, ok = a, true
		}
	}
	return answer, ok && answer.answers(hash, now)
}

// put keeps the answer about p for its TTL, and threats for at most maxVerdictAge.
// It always replaces the previous answer about p. An answer with more than
// maxThreats full hashes is not kept: with only a part of it, the other threats
// would look safe.
func (c *cache) put(p Prefix, answer serverAnswer) {
	if len(answer.threats) > maxThreats {
		answer = serverAnswer{received: answer.received, ttl: -1}
	}
	answer.threats = slices.Clone(answer.threats)
	longest := answer.ttl
	for i := range answer.threats {
		t := &answer.threats[i]
		t.TTL = min(t.TTL, maxVerdictAge)
		longest = max(longest, t.TTL)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	others := c.sizes.Load() &^ (1 << len(p))
	switch {
	case longest > 0:
		c.mark(answer)
	case others == 0: // no answer about a longer or shorter prefix that it must replace
		c.answers.Remove(p)
		return
	}
	c.sizes.Or(1 << len(p))
	c.add(p, answer)
}

// add adds an answer, then removes the least recently used ones until the full
// hashes are within their bound. The caller holds mu.
func (c *cache) add(p Prefix, answer serverAnswer) {
	if before, ok := c.answers.Peek(p); ok {
		c.hashes -= len(before.threats)
	}
	c.hashes += len(answer.threats)
	c.answers.Add(p, answer)
	for c.hashes > c.maxHashes {
		c.answers.RemoveOldest()
	}
}

// reason returns why a search about p is needed now.
func (c *cache) reason(p Prefix, now time.Time) Reason {
	answer, ok := c.answers.Peek(p)
	switch lived, over := answer.ttlAt(answer.received), -answer.ttlAt(now); {
	case !ok:
		return ReasonNew
	case over > lived:
		return ReasonExpired
	}
	return ReasonPopular
}

// mark sets the bits of the threats in an answer. Before that it clears the bits of
// threats that have expired, where it can tell. The caller holds mu.
func (c *cache) mark(answer serverAnswer) {
	if len(answer.threats) == 0 {
		return
	}
	c.clearExpired(answer.received)
	if answer.received.Sub(c.currentSince) > maxVerdictAge {
		c.current, c.currentSince = 1-c.current, answer.received
		for i := range c.threatBits {
			c.threatBits[i][c.current].Store(0)
		}
	}
	c.anyThreat.Store(true)
	for _, t := range answer.threats {
		word, bit := threatBit(&t.Hash)
		c.threatBits[word][c.current].Or(bit)
		if until := answer.received.Add(t.TTL); until.After(c.threatsUntil) {
			c.threatsUntil = until
		}
	}
}

// sweep clears all threatBits if every cached threat has expired at now.
func (c *cache) sweep(now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.clearExpired(now)
}

// clearExpired is sweep for callers that hold mu.
func (c *cache) clearExpired(now time.Time) {
	if c.threatsUntil.IsZero() || !now.After(c.threatsUntil) {
		return
	}
	for i := range c.threatBits {
		c.threatBits[i][0].Store(0)
		c.threatBits[i][1].Store(0)
	}
	c.anyThreat.Store(false)
	c.threatsUntil = time.Time{}
}

func threatBit(hash *FullHash) (word int, bit uint64) {
	n := binary.BigEndian.Uint16(hash[:])
	return int(n / 64), 1 << (n % 64)
}

// mayThreaten reports whether the cache may hold a threat with this full hash.
func (c *cache) mayThreaten(hash *FullHash) bool {
	word, bit := threatBit(hash)
	return (c.threatBits[word][0].Load()|c.threatBits[word][1].Load())&bit != 0
}

// mayThreatenAny reports whether the cache may hold a threat with one of the hashes.
func (c *cache) mayThreatenAny(hashes []FullHash) bool {
	if !c.anyThreat.Load() {
		return false
	}
	for i := range hashes {
		if c.mayThreaten(&hashes[i]) {
			return true
		}
	}
	return false
}

// Inherit takes over what another Checker of the same server has cached: no prefix is asked about again while its
// answer lives ("Caching"). It is safe for concurrent use.
func (c *Checker) Inherit(from *Checker) {
	for _, p := range from.cache.answers.Keys() { // the one used last comes last
		if answer, ok := from.cache.answers.Peek(p); ok {
			c.cache.put(p, answer)
		}
	}
}

// Confirmed returns when the server answered about an expression, such as "example.com/".
// It is the zero time if no such answer is cached and may still be used.
func (c *Checker) Confirmed(expression string) time.Time {
	answer, ok := c.cache.get(HashExpression(expression), time.Now())
	if !ok {
		return time.Time{}
	}
	return answer.received
}
