package protocoltest

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
)

const (
	prefixBytes = 4    // hashes.search takes no other length
	maxPrefixes = 1000 // per request of hashes.search

	searchStrikes = 3 // failures in a row that start a pause
	searchPause   = 5 * time.Minute
	maxPause      = 30 * time.Minute
)

// searchBackoff counts refusals (429, 403) and other failures apart.
type searchBackoff struct {
	refused   backoff
	strikes   int // other failures since the last pause or success
	pauses    int // since the last success
	notBefore time.Time
}

// fail counts a failure, except during a pause: then the request was under way
// when the pause began, or the client was told off already.
func (b *searchBackoff) fail(status int, at time.Time) {
	if at.Before(b.notBefore) {
		return
	}
	if status == http.StatusTooManyRequests || status == http.StatusForbidden {
		b.refused.fail(at)
		b.notBefore = b.refused.notBefore
		return
	}
	b.strikes++
	if b.strikes < searchStrikes {
		return
	}
	b.notBefore = at.Add(min(searchPause<<min(b.pauses, 3), maxPause))
	b.strikes = 0
	b.pauses++
}

// judgeSearch judges a request of hashes.search. If a prefix was undecodable that
// has been reported and the number says nothing.
func (r *referee) judgeSearch(q *query, now time.Time, _ map[string]string) {
	distinct := searchable(q.prefixes)
	r.judgePrefixes(q.prefixes, len(distinct), q.undecoded != "")
	b := &r.backoffs.searches
	if !r.lenient && now.Before(b.notBefore) {
		r.violation(ruleFrequency+", back-off of searches", "hashes.search asked %s", tooEarly(now, b.notBefore))
	}
	r.judgeKnown(ruleCacheV5, &r.searches, distinct, now)
	r.searches.begin(distinct)
}

// searchable returns the prefixes that hashes.search takes, without duplicates.
func searchable(prefixes [][]byte) []string {
	wrong := func(p string) bool { return len(p) != prefixBytes }
	return slices.DeleteFunc(unique(prefixes), wrong)
}

// judgePrefixes judges number and form of the prefixes.
func (r *referee) judgePrefixes(prefixes [][]byte, distinct int, undecoded bool) {
	const rule = "REST reference, hashes.search"
	wellFormed := 0
	for _, p := range prefixes {
		if len(p) == prefixBytes {
			wellFormed++
		}
	}
	if len(prefixes) == 0 && !undecoded {
		r.violation(rule, "no hash prefix asked for")
	}
	if len(prefixes) > maxPrefixes {
		r.violation(rule, "%d hash prefixes asked for, at most %d are allowed", len(prefixes), maxPrefixes)
	}
	if bad := len(prefixes) - wellFormed; bad > 0 {
		r.violation(rule, "%d hash prefixes do not have %d bytes", bad, prefixBytes)
	}
	if twice := wellFormed - distinct; twice > 0 {
		r.violation(rule, "%d hash prefixes are duplicates", twice)
	}
}

// learnSearch takes in the outcome of a search.
func (r *referee) learnSearch(x *exchange, how outcome, at time.Time) {
	asked := searchable(x.query.prefixes)
	r.searches.end(asked)
	switch how {
	case failed:
		r.before = r.backoffs
		r.backoffs.searches.fail(x.note.Status, at)
		r.backoffs.searches.notBefore = x.retryAt(r.backoffs.searches.notBefore, at)
	case received:
		r.searches.learn(asked, at, x.reply.cacheFor)
		// One that was under way when another was refused does not end the wait.
		if !at.Before(r.backoffs.searches.notBefore) {
			r.backoffs.searches = searchBackoff{}
		}
	}
}

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

// ruleBudget begins violations of the budget. It is the operator's, not Google's,
// which bills every search of Web Risk.
const ruleBudget = "budget of searches"

// budget is how many searches the client may send a day. The zero budget has no limit.
type budget struct {
	limit int
	start time.Time // of some day
	day   int64     // that the last search was sent in, counted from start
	spent int       // searches of that day
}

// SetBudget makes the referee judge the number of searches of a day, of any protocol
// and with any outcome: more than n are reported. A day has 24 hours; one begins at
// dayStart. With n below 1, as at the start, there is no limit. What was sent before
// does not count.
func (s *Server) SetBudget(n int, dayStart time.Time) {
	s.locked(func() { s.referee.budget = budget{limit: n, start: dayStart} })
}

// judgeBudget counts a search and judges whether the day had one left.
func (r *referee) judgeBudget(now time.Time) {
	b := &r.budget
	if b.limit < 1 {
		return
	}
	if day := b.dayOf(now); day != b.day {
		b.day, b.spent = day, 0
	}
	b.spent++
	if b.spent > b.limit {
		next := b.start.Add(time.Duration(b.day+1) * 24 * time.Hour)
		r.violation(ruleBudget, "search %d of a day that has %d, %s", b.spent, b.limit, tooEarly(now, next))
	}
}

// dayOf returns the number of the day that a time is in, negative before start.
func (b *budget) dayOf(t time.Time) int64 {
	since := t.Sub(b.start)
	day := int64(since / (24 * time.Hour))
	if since < 0 && since%(24*time.Hour) != 0 {
		day--
	}
	return day
}
