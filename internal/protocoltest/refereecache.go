package protocoltest

import (
	"fmt"
	"strings"
	"time"
)

// cache is what the client must know of the hash prefixes it asked for by one
// method. It dies with the client's process.
type cache struct {
	fresh    map[string]time.Time // by prefix: until then the client knows the answer
	positive map[string]time.Time // by full hash: when that part of an answer ends; not in v5
	inFlight map[string]int       // by prefix: requests under way that ask for it
}

func newCache() cache {
	return cache{fresh: map[string]time.Time{}, positive: map[string]time.Time{}, inFlight: map[string]int{}}
}

// unique returns prefixes without duplicates, in order.
func unique(prefixes [][]byte) []string {
	var all []string
	seen := map[string]bool{}
	for _, p := range prefixes {
		if !seen[string(p)] {
			seen[string(p)] = true
			all = append(all, string(p))
		}
	}
	return all
}

// begin notes a request for these prefixes.
func (c *cache) begin(prefixes []string) {
	for _, p := range prefixes {
		c.inFlight[p]++
	}
}

// end notes that a request for these prefixes has ended.
func (c *cache) end(prefixes []string) {
	for _, p := range prefixes {
		c.inFlight[p]--
		if c.inFlight[p] <= 0 {
			delete(c.inFlight, p)
		}
	}
}

// learn notes that the answer for these prefixes is good for some time. It replaces
// all that was known of them.
func (c *cache) learn(prefixes []string, at time.Time, life time.Duration) {
	for _, p := range prefixes {
		delete(c.fresh, p)
		if life > 0 {
			c.fresh[p] = at.Add(life)
		}
		for hash := range c.positive {
			if strings.HasPrefix(hash, p) {
				delete(c.positive, hash)
			}
		}
	}
}

// known reports whether the client knows the answer for a prefix. A match that has
// expired makes it ask again, even while all other hashes of the prefix are known to
// be safe (page "Caching").
func (c *cache) known(prefix string, now time.Time) bool {
	if !now.Before(c.fresh[prefix]) {
		return false
	}
	for hash, end := range c.positive {
		if strings.HasPrefix(hash, prefix) && !now.Before(end) {
			return false
		}
	}
	return true
}

// judgeKnown judges whether the client could know the answer for a prefix: from its
// cache (answers without a hit too) or from a request under way. Each is reported
// once per request.
func (r *referee) judgeKnown(rule string, c *cache, prefixes []string, now time.Time) {
	var fresh, inFlight []string
	for _, p := range prefixes {
		switch {
		case c.inFlight[p] > 0:
			inFlight = append(inFlight, p)
		case c.known(p, now):
			fresh = append(fresh, p)
		}
	}
	if len(fresh) > 0 {
		r.violation(rule, "%s asked for again while the answer is fresh, the first, %x, %s",
			hashPrefixes(len(fresh)), fresh[0], tooEarly(now, c.fresh[fresh[0]]))
	}
	if len(inFlight) > 0 {
		r.violation(rule, "%s asked for at %s while another request for them is under way, the first is %x",
			hashPrefixes(len(inFlight)), stamp(now), inFlight[0])
	}
}

func hashPrefixes(n int) string {
	if n == 1 {
		return "1 hash prefix"
	}
	return fmt.Sprintf("%d hash prefixes", n)
}
