package lookup

import (
	"encoding/binary"
	"math/bits"
	"slices"
	"sync"
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
	life    time.Duration // for full hashes that threats does not name
	threats []ThreatHash  // none: the server knows no threat behind this prefix
}

// live reports whether a life that began with the answer lasts at now. The wall
// clock and the monotonic clock must both agree: the one may be set back, the
// other stands still while a machine sleeps.
func (c confirmed) live(life time.Duration, now time.Time) bool {
	return now.Sub(c.asked) <= life && now.Round(0).Sub(c.asked.Round(0)) <= life
}

// answers reports whether the answer may be used for a full hash at now. A threat
// that has been told of it and has expired must be asked about again, even while
// the rest of the answer lasts ("Caching" of the Update API; where there is one
// life for all, as in version 5, it makes no difference).
func (c confirmed) answers(hash FullHash, now time.Time) bool {
	listed := false
	for _, t := range c.threats {
		if t.Hash == hash {
			if !c.live(t.Life, now) {
				return false
			}
			listed = true
		}
	}
	return listed || c.live(c.life, now)
}

// maxThreats is the most full hashes of one prefix that are kept. Google lists
// hardly more than one; whoever makes more of them, at four billion tries each, does
// not get the cache.
const maxThreats = 256

// cache keeps what the server said about each prefix, also when it said
// nothing. Expiry is checked on reading. Safe for concurrent use.
//
// It is bounded in prefixes and in full hashes, and so in bytes: a prefix takes some
// 250, a full hash 48.
type cache struct {
	answers *lru.Cache[Prefix, confirmed] // changed under mu
	sizes   atomic.Uint64                 // bit n is set if there may be an answer about a prefix of n bytes

	// threats has a bit for each value of the first 16 bits of a full hash. It is
	// set if a threat so beginning may be cached: such a host must be looked up here
	// even if no list holds it any more ("Local List Mode": the cache comes first).
	// Reading it takes no lock and no look at the clock.
	//
	// Bits are set in one of two words, and the words change their roles when every
	// threat of the time before has expired: else bits would pile up where there is
	// always some threat.
	threats    [1 << 16 / 64][2]atomic.Uint64
	threatened atomic.Bool // a bit of threats is set

	mu           sync.Mutex // held while answers and bits of threats change
	hashes       int        // full hashes in answers; guarded by mu
	maxHashes    int        // never changed
	threatsUntil time.Time  // when the last cached threat expires, or zero; guarded by mu
	setting      int        // which of the two words bits are set in; guarded by mu
	settingSince time.Time  // guarded by mu
}

// newCache returns a cache of at most that many prefixes, and of as many full
// hashes, or maxThreats if that is more.
func newCache(capacity int) (*cache, error) {
	c := &cache{maxHashes: max(capacity, maxThreats)}
	answers, err := lru.NewWithEvict(capacity, func(_ Prefix, evicted confirmed) { c.hashes -= len(evicted.threats) })
	c.answers = answers
	return c, err
}

// get returns the answer that may be used for a full hash: of several, about
// prefixes of different lengths, the youngest.
func (c *cache) get(hash FullHash, now time.Time) (answer confirmed, ok bool) {
	for sizes := c.sizes.Load(); sizes != 0; sizes &= sizes - 1 {
		a, found := c.answers.Get(hash.Prefix(bits.TrailingZeros64(sizes)))
		if found && (!ok || a.asked.After(answer.asked)) {
			answer, ok = a, true
		}
	}
	return answer, ok && answer.answers(hash, now)
}

// put keeps the answer about p for its life, and threats no longer than
// maxVerdictAge. Either way the one before counts no more. Of an answer with more
// than maxThreats nothing is kept: a part of it would make threats safe.
func (c *cache) put(p Prefix, answer confirmed) {
	if len(answer.threats) > maxThreats {
		answer = confirmed{asked: answer.asked, life: -1}
	}
	answer.threats = slices.Clone(answer.threats)
	longest := answer.life
	for i := range answer.threats {
		t := &answer.threats[i]
		t.Life = min(t.Life, maxVerdictAge)
		longest = max(longest, t.Life)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	others := c.sizes.Load() &^ (1 << len(p))
	switch {
	case longest > 0:
		c.mark(answer)
	case others == 0: // nothing of another length that it would have to supersede
		c.answers.Remove(p)
		return
	}
	c.sizes.Or(1 << len(p))
	c.add(p, answer)
}

// add adds an answer and removes the least recently used ones that are too many.
// The caller holds mu.
func (c *cache) add(p Prefix, answer confirmed) {
	if before, ok := c.answers.Peek(p); ok {
		c.hashes -= len(before.threats)
	}
	c.hashes += len(answer.threats)
	c.answers.Add(p, answer)
	for c.hashes > c.maxHashes {
		c.answers.RemoveOldest()
	}
}

// mark sets the bits of the threats of an answer, and clears all before if none of
// the threats cached before is live. The caller holds mu.
func (c *cache) mark(answer confirmed) {
	if len(answer.threats) == 0 {
		return
	}
	c.clearExpired(answer.asked)
	if answer.asked.Sub(c.settingSince) > maxVerdictAge {
		c.setting, c.settingSince = 1-c.setting, answer.asked
		for i := range c.threats {
			c.threats[i][c.setting].Store(0)
		}
	}
	c.threatened.Store(true)
	for _, t := range answer.threats {
		word, bit := threatBit(&t.Hash)
		c.threats[word][c.setting].Or(bit)
		if until := answer.asked.Add(t.Life); until.After(c.threatsUntil) {
			c.threatsUntil = until
		}
	}
}

// sweep clears the bits if no cached threat is live at now.
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
	for i := range c.threats {
		c.threats[i][0].Store(0)
		c.threats[i][1].Store(0)
	}
	c.threatened.Store(false)
	c.threatsUntil = time.Time{}
}

func threatBit(hash *FullHash) (word int, bit uint64) {
	n := binary.BigEndian.Uint16(hash[:])
	return int(n / 64), 1 << (n % 64)
}

// mayThreaten reports whether a threat with this full hash may be cached.
func (c *cache) mayThreaten(hash *FullHash) bool {
	word, bit := threatBit(hash)
	return (c.threats[word][0].Load()|c.threats[word][1].Load())&bit != 0
}

// mayThreatenAny is mayThreaten for some hashes.
func (c *cache) mayThreatenAny(hashes []FullHash) bool {
	if !c.threatened.Load() {
		return false
	}
	for i := range hashes {
		if c.mayThreaten(&hashes[i]) {
			return true
		}
	}
	return false
}
