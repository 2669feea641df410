package protocoltest

import (
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol/pb/wrv1"
)

// diffRequests are the list requests of Web Risk.
func (r *referee) diffRequests() listRequests {
	return listRequests{
		backoff: &r.backoffs.diffs, single: true, state: r.riskLists.get,
		clock: func(name string) *listClock { return &r.riskLists.get(name).risk },
	}
}

// judgeDiff judges a request of threatLists.computeDiff: its time, its list, its
// constraints and its version token.
func (r *referee) judgeDiff(q *query, now time.Time, owners map[string]string) {
	const rule = "Web Risk, computeDiff"
	r.judgeLists(q, now, r.diffRequests())
	if len(q.names) != 1 || len(q.unknownTypes) > 0 {
		r.violation(rule, "threat types %q and unknown ones, %q, asked for, want 1 known type", q.names, q.unknownTypes)
		return
	}
	if !takesRice(q.compressions) || !slices.Contains(q.compressions, wrv1.CompressionType_RAW) {
		r.violation("Compression", "list %q is asked for with compressions %v, want RICE and RAW", q.names[0], q.compressions)
	}
	if !legalConstraint(q.maxUpdate) || !legalConstraint(q.maxDatabase) {
		r.violation("Update Constraints", "list %q is asked for with maxDiffEntries %d and maxDatabaseEntries %d, want 0 or a power of two from %d",
			q.names[0], q.maxUpdate, q.maxDatabase, minConstraint)
	}
	if len(q.versions) > 1 {
		r.violation(rule, "%d version tokens sent, want 1 at most", len(q.versions))
	}
	for _, token := range q.versions {
		r.judgeState("version token", r.riskLists, q.names[0], token, owners)
	}
}

// learnDiff takes in the outcome of threatLists.computeDiff.
func (r *referee) learnDiff(x *exchange, how outcome, at time.Time) {
	r.learnLists(x, how, at, r.diffRequests())
}

// riskBackoff is the back-off of hashes.search of Web Risk; the least of it is demanded.
// Refusals (429, 403) back off as updates do. Other failures follow Google Cloud's service
// level agreements, "Back-off Requirements": a second after the first error, doubling up to
// 32 seconds.
type riskBackoff struct {
	refused   backoff
	errors    int // other failures since the last success
	notBefore time.Time
}

// fail counts a failure.
func (b *riskBackoff) fail(status int, at time.Time) {
	if status == http.StatusTooManyRequests || status == http.StatusForbidden {
		b.refused.fail(at)
		b.notBefore = b.refused.notBefore
		return
	}
	b.errors++
	b.notBefore = at.Add(min(time.Second<<min(b.errors-1, 5), 32*time.Second))
}

// judgeSearchOne judges a request of Web Risk's hashes.search.
func (r *referee) judgeSearchOne(q *query, now time.Time, _ map[string]string) {
	if b := &r.backoffs.risks; now.Before(b.notBefore) {
		r.violation(ruleFrequency+", back-off", "hashes.search of Web Risk asked %s, after %d failures in a row",
			tooEarly(now, b.notBefore), b.errors+b.refused.failures)
	}
	if q.undecoded == "" {
		r.judgeOnePrefix(q)
	}
	r.judgeRiskTypes(q)
	distinct := unique(q.prefixes)
	r.judgeKnown(ruleCacheRisk, &r.risks, distinct, now)
	r.risks.begin(distinct)
}

// judgeOnePrefix judges number and form of the hash prefix: it must be one that the
// client was given, as long as it was given or cut to 4 bytes.
func (r *referee) judgeOnePrefix(q *query) {
	const rule = "Web Risk, hash prefix"
	if len(q.prefixes) != 1 {
		r.violation(rule, "%s asked for, want 1", hashPrefixes(len(q.prefixes)))
		return
	}
	prefix := q.prefixes[0]
	switch {
	case !legalEntries(q.prefixes):
		r.violation(rule, "the hash prefix %x has %d bytes, want %d to %d", prefix, len(prefix), minEntryBytes, maxEntryBytes)
	case len(q.names) > 0 && !r.given(q.names, string(prefix)) && !r.givenLonger(q.names, string(prefix)):
		r.violation(rule, "the hash prefix %x is no entry of the lists %q as they were served, in their length or cut to 4 bytes", prefix, q.names)
	}
}

// given reports whether an entry was in some version of these lists that the client was
// given, by either service: one that moves from one to the other searches by the lists
// it has.
func (r *referee) given(lists []string, entry string) bool {
	return r.lists.hold(lists, entry) || r.riskLists.hold(lists, entry)
}

// givenLonger is given for an entry that was cut to 4 bytes.
func (r *referee) givenLonger(lists []string, cut string) bool {
	return len(cut) == minEntryBytes && (r.lists.holdLonger(lists, cut) || r.riskLists.holdLonger(lists, cut))
}

// judgeRiskTypes judges the threat types asked about.
func (r *referee) judgeRiskTypes(q *query) {
	const rule = "Web Risk, threat types"
	switch {
	case len(q.unknownTypes) > 0:
		r.violation(rule, "the threat types %q do not exist", q.unknownTypes)
	case len(q.risks) == 0:
		r.violation(rule, "no threat type asked about")
	case !sameValues(q.risks, q.risks):
		r.violation(rule, "the threat types %v are not distinct", q.risks)
	}
}

// sameValues reports whether got holds the values of want, each once, and no others.
func sameValues[T ~int32](got, want []T) bool {
	return len(want) > 0 && slices.Equal(slices.Sorted(slices.Values(got)), slices.Compact(slices.Sorted(slices.Values(want))))
}

// learnSearchOne takes in the outcome of Web Risk's hashes.search.
func (r *referee) learnSearchOne(x *exchange, how outcome, at time.Time) {
	asked := unique(x.query.prefixes)
	r.risks.end(asked)
	// Each prefix is a request of its own: one that was under way when another failed
	// neither counts as another failure nor ends the wait.
	late := at.Before(r.backoffs.risks.notBefore)
	switch {
	case how == failed:
		r.before = r.backoffs
		if !late {
			r.backoffs.risks.fail(x.note.Status, at)
			r.backoffs.risks.notBefore = x.retryAt(r.backoffs.risks.notBefore, at)
		}
	case how == received:
		if !late {
			r.backoffs.risks = riskBackoff{}
		}
		r.risks.learn(asked, at, x.reply.known.negative.Sub(at))
		for hash, end := range x.reply.known.positive {
			r.risks.positive[hash] = end
		}
	}
}

// judgePath judges a path that no method has: for a client of Web Risk, and where it takes whole URLs.
func (r *referee) judgePath(q *query, req *http.Request) {
	switch req.URL.Path {
	case "/v5/urls:search", "/v4/threatMatches:find":
		r.violation("Privacy", "%s: %s takes URLs in clear text", q, req.URL.Path)
	}
	if q.method == "" && strings.HasPrefix(req.URL.Path, webRiskPath) {
		r.violation("Web Risk, methods", "%s: this client needs threatLists:computeDiff and hashes:search only", q)
	}
}
