package protocoltest

import (
	"net/http"
	"time"
)

const (
	prefixBytes = 4    // hashes.search takes no other length
	maxPrefixes = 1000 // per request of hashes.search

	searchStrikes = 3 // failures in a row that start a pause
	searchPause   = 5 * time.Minute
	maxPause      = 30 * time.Minute
)

// prefix is a hash prefix as hashes.search takes it.
type prefix [prefixBytes]byte

// searchState is what the client must know of hashes.search. It dies with the
// client's process.
type searchState struct {
	fresh    map[prefix]time.Time // until then the client knows the answer
	inFlight map[prefix]int       // requests under way that ask for it
	backoff  searchBackoff
	judged   bool // whether the back-off is judged
}

func newSearchState() searchState {
	return searchState{fresh: map[prefix]time.Time{}, inFlight: map[prefix]int{}}
}

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

// unique returns the well-formed prefixes without duplicates, in order.
func unique(prefixes [][]byte) []prefix {
	var all []prefix
	seen := map[prefix]bool{}
	for _, b := range prefixes {
		if len(b) != prefixBytes || seen[prefix(b)] {
			continue
		}
		seen[prefix(b)] = true
		all = append(all, prefix(b))
	}
	return all
}

// judgeSearch judges a request of hashes.search. If a prefix was undecodable that
// has been reported and the number says nothing.
func (r *referee) judgeSearch(prefixes [][]byte, undecoded bool, now time.Time) {
	distinct := unique(prefixes)
	r.judgePrefixes(prefixes, len(distinct), undecoded)
	b := &r.searches.backoff
	if r.searches.judged && now.Before(b.notBefore) {
		r.violation("Request Frequency, back-off of searches", "hashes.search asked %s", tooEarly(now, b.notBefore))
	}
	r.judgeKnown(distinct, now)
	for _, p := range distinct {
		r.searches.inFlight[p]++
	}
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

// judgeKnown judges whether the client could know the answer for a prefix: from its
// cache ("Local List Mode", answers without a hit too) or from a request under way. Each is
// reported once per request.
func (r *referee) judgeKnown(prefixes []prefix, now time.Time) {
	var fresh, inFlight []prefix
	for _, p := range prefixes {
		switch {
		case r.searches.inFlight[p] > 0:
			inFlight = append(inFlight, p)
		case now.Before(r.searches.fresh[p]):
			fresh = append(fresh, p)
		}
	}
	if len(fresh) > 0 {
		r.violation("Local List Mode, cache", "%d hash prefixes asked for again while the answer is fresh, the first, %x, %s",
			len(fresh), fresh[0], tooEarly(now, r.searches.fresh[fresh[0]]))
	}
	if len(inFlight) > 0 {
		r.violation("Local List Mode, cache", "%d hash prefixes asked for at %s while another request for them is under way, the first is %x",
			len(inFlight), stamp(now), inFlight[0])
	}
}

// learnSearch takes in the outcome of a search.
func (r *referee) learnSearch(x *exchange, how outcome, at time.Time) {
	for _, p := range unique(x.query.prefixes) {
		r.searches.inFlight[p]--
		if r.searches.inFlight[p] <= 0 {
			delete(r.searches.inFlight, p)
		}
		if how == received && x.reply.cacheFor > 0 {
			r.searches.fresh[p] = at.Add(x.reply.cacheFor)
		}
	}
	switch how {
	case failed:
		r.updatesBefore, r.searchesBefore = r.updates, r.searches.backoff
		r.searches.backoff.fail(x.note.Status, at)
	case received:
		// One that was under way when another was refused does not end the wait.
		if !at.Before(r.searches.backoff.notBefore) {
			r.searches.backoff = searchBackoff{}
		}
	}
}
