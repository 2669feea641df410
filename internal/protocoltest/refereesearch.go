package protocoltest

import (
	"net/http"
	"slices"
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
	case received:
		r.searches.learn(asked, at, x.reply.cacheFor)
		// One that was under way when another was refused does not end the wait.
		if !at.Before(r.backoffs.searches.notBefore) {
			r.backoffs.searches = searchBackoff{}
		}
	}
}
