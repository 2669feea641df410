package protocoltest

import (
	"fmt"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// referee knows what a client may do next. It reads no clock and takes no lock:
// the server's lock guards it. It is never stricter than a client can know: a wait
// begins when the server begins its answer, and of a random wait only the lower
// bound is judged.
type referee struct {
	violations []string // not yet reported
	oneOfMany  bool     // see Server.OneOfMany
	life       int      // counts the starts of the client; the dead learn nothing
	lists      listStates
	riskLists  listStates // of Web Risk, which does not share versions with Safe Browsing
	searches   cache      // of hashes.search
	risks      cache      // of hashes.search of Web Risk
	budget     budget

	backoffs backoffs
	before   backoffs // as they were before the last failure, for undoFailure
	lenient  bool     // the back-off of hashes.search is not judged
	relay    bool     // the server is a relay: a batch that it refuses with 404 is no failure

	key    string            // that is asked with; see as
	others map[string]clocks // by the keys that were asked with before
	denied bool              // the last request that ended had status 400, 401 or 403
	v4     refereeV4
}

// backoffs are the back-offs of the methods, which know nothing of each other.
type backoffs struct {
	updates  backoff // batchGet and get together
	searches searchBackoff
	diffs    backoff     // computeDiff of Web Risk
	risks    riskBackoff // hashes.search of Web Risk
	v4       backoffsV4
}

func newReferee() *referee {
	r := &referee{lists: listStates{}, riskLists: listStates{}, lenient: true}
	r.clientStarted()
	return r
}

// violation notes a broken rule.
func (r *referee) violation(rule, format string, args ...any) {
	r.violations = append(r.violations, "protocoltest: "+rule+": "+fmt.Sprintf(format, args...))
}

// Rules that a client keeps by what it remembers.
const (
	ruleCacheV5   = "Local List Mode, cache"
	ruleCacheRisk = "Web Risk, caching"
	ruleFrequency = "Request Frequency" // with the wait or the back-off after a comma
)

// cacheRules are the rules of judgeKnown.
var cacheRules = []string{ruleCacheV5, ruleCacheRisk}

// Excuse returns how a client may have come to a reported violation although it
// keeps all rules that it can know of, in a few words, or "": then it has none.
// The server cannot tell a restart from a client that forgets.
func Excuse(violation string) string {
	rule, _, _ := strings.Cut(strings.TrimPrefix(violation, "protocoltest: "), ": ")
	switch {
	case slices.Contains(cacheRules, rule):
		return "the client was restarted"
	case strings.HasPrefix(rule, ruleFrequency), strings.HasPrefix(rule, ourFloor), rule == ruleBudget:
		return "the client was restarted and keeps nothing on disk"
	}
	return ""
}

// takeViolations returns what was noted since the last call.
func (r *referee) takeViolations() []string {
	taken := r.violations
	r.violations = nil
	return taken
}

// String names a request in violations.
func (q *query) String() string {
	if q.method == "" {
		return "a request for an unknown path"
	}
	return "the request " + q.method
}

// judge judges whether a well-formed request may be made now. Owners tells the list
// of each version ever served.
func (r *referee) judge(q *query, now time.Time, owners map[string]string) {
	if q.searches() {
		r.judgeBudget(now)
	}
	if judge := q.to().judge; judge != nil {
		judge(r, q, now, owners)
	}
}

// learn takes in how an exchange ended for the client.
func (r *referee) learn(x *exchange, how outcome, at time.Time) {
	if x.life != r.life {
		return
	}
	r.denied = how == failed && deniesKey(x.note.Status)
	if learn := x.query.to().learn; learn != nil {
		learn(r, x, how, at)
	}
}

func (r *referee) clientStarted() {
	r.life++
	r.searches, r.risks = newCache(), newCache()
	r.v4.clientStarted()
	for _, lists := range []listStates{r.lists, r.riskLists} {
		for _, l := range lists {
			l.restarted, l.unsure = true, true
			l.v5.inFlight, l.risk.inFlight = 0, 0
		}
	}
}

func (r *referee) clientLostState() {
	r.backoffs, r.others = backoffs{}, nil
	r.v4.clientLostState()
	r.lists, r.riskLists = listStates{}, listStates{}
	r.budget.spent = 0
}

// undoFailure takes back the last failure of a request.
func (r *referee) undoFailure() { r.backoffs = r.before }

// backoff counts failures in a row. The zero value knows of none.
type backoff struct {
	failures  int
	notBefore time.Time
}

// fail counts a failure at a time: page "Request Frequency", MIN(2^(N-1) * 15
// minutes * (RAND + 1), 24 hours); the least of it is demanded.
func (b *backoff) fail(at time.Time) {
	b.failures++
	doublings := min(b.failures-1, 7) // 2^7 * 15 minutes are more than a day
	b.notBefore = at.Add(min(15*time.Minute<<doublings, 24*time.Hour))
}

// longestRetry is how long a client obeys Retry-After, which no page of Google's mentions: as long as the longest
// back-off. Of searches a server that is down, with status 5xx, stops no more than a pause does.
const longestRetry = 24 * time.Hour

// retryAt returns the later one of a time and what the header Retry-After of an answer at a time demands.
func (x *exchange) retryAt(t, at time.Time) time.Time {
	longest := longestRetry
	if x.query.searches() && x.note.Status >= http.StatusInternalServerError {
		longest = maxPause
	}
	seconds, _ := strconv.ParseInt(x.reply.header.Get("Retry-After"), 10, 64)
	if x.note.Status == 0 { // it has not come
		return t
	}
	return later(t, at, min(time.Duration(min(seconds, math.MaxInt32))*time.Second, longest))
}

// later returns the later of a time and the end of a wait.
func later(t, at time.Time, wait time.Duration) time.Time {
	if end := at.Add(wait); wait > 0 && end.After(t) {
		return end
	}
	return t
}

// stamp writes a time as violations show it.
func stamp(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.999999999Z") }

// tooEarly describes by how much now is before a time.
func tooEarly(now, notBefore time.Time) string {
	return fmt.Sprintf("at %s, %v before %s", stamp(now), notBefore.Sub(now), stamp(notBefore))
}
