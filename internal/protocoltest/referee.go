package protocoltest

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// referee knows what a client may do next. It reads no clock and takes no lock:
// the server's lock guards it. It is never stricter than a client can know: a wait
// begins when the server begins its answer, and of a random wait only the lower
// bound is judged.
type referee struct {
	violations []string // not yet reported
	life       int      // counts the starts of the client; the dead learn nothing
	updates    backoff  // of batchGet and get together
	lists      map[string]*listState
	searches   searchState

	// As they were before the last failure, for undoFailure.
	updatesBefore  backoff
	searchesBefore searchBackoff
}

func newReferee() *referee {
	return &referee{lists: map[string]*listState{}, searches: newSearchState()}
}

// violation notes a broken rule.
func (r *referee) violation(rule, format string, args ...any) {
	r.violations = append(r.violations, "protocoltest: "+rule+": "+fmt.Sprintf(format, args...))
}

// takeViolations returns what was noted since the last call.
func (r *referee) takeViolations() []string {
	taken := r.violations
	r.violations = nil
	return taken
}

// judgeForm judges what a request looks like, whatever it asks for. Its texts never
// quote the URL, since that may hold the key.
func (r *referee) judgeForm(q *query, req *http.Request, body bool, key string) {
	if req.Response != nil || req.Referer() != "" {
		r.violation("API key", "%s follows a redirect, which could take the key elsewhere", q)
		return // its form is not the client's choice
	}
	values := req.URL.Query()
	agent := req.UserAgent()
	switch {
	case values.Has("key") || values.Has("$key"):
		r.violation("API key", "the URL of %s has a parameter key; the key belongs in X-Goog-Api-Key", q)
	case key != "" && urlHolds(req.URL, key):
		r.violation("API key", "the URL of %s holds the key", q)
	}
	if req.Method != http.MethodGet {
		r.violation("REST reference", "%s came with method %s, want GET", q, req.Method)
	}
	if body {
		r.violation("REST reference", "%s came with a body", q)
	}
	if len(req.Header["Cookie"]) > 0 {
		r.violation("Privacy", "%s came with cookies", q)
	}
	if agent == "" || strings.HasPrefix(agent, "Go-http-client/") {
		r.violation("Client identity", "%s does not name its software in User-Agent, which is %q", q, agent)
	}
	if values.Get("alt") != "proto" && values.Get("$alt") != "proto" {
		r.violation("Answer format", "%s does not ask for alt=proto", q)
	}
	if q.undecoded != "" {
		r.violation("REST reference", "parameter %s of %s is not base64", q.undecoded, q)
	}
}

// urlHolds reports whether a secret stands in a URL, escaped or not.
func urlHolds(u *url.URL, secret string) bool {
	query, _ := url.QueryUnescape(u.RawQuery)
	return strings.Contains(u.String(), secret) || strings.Contains(u.Path, secret) ||
		strings.Contains(query, secret)
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
	if q.updatesLists() {
		r.judgeLists(q, now)
		r.judgeVersions(q, owners)
	}
	if q.method == methodSearch {
		r.judgeSearch(q.prefixes, q.undecoded != "", now)
	}
}

// learn takes in how an exchange ended for the client.
func (r *referee) learn(x *exchange, how outcome, at time.Time) {
	if x.life != r.life {
		return
	}
	switch {
	case x.query.updatesLists():
		r.learnLists(x, how, at)
	case x.query.method == methodSearch:
		r.learnSearch(x, how, at)
	}
}

func (r *referee) clientStarted() {
	r.life++
	judged := r.searches.judged
	r.searches = newSearchState()
	r.searches.judged = judged
	for _, l := range r.lists {
		l.restarted = true
		l.inFlight = 0
	}
}

func (r *referee) clientLostState() {
	r.updates = backoff{}
	r.lists = map[string]*listState{}
}

// undoFailure takes back the last failure of a request.
func (r *referee) undoFailure() {
	r.updates = r.updatesBefore
	r.searches.backoff = r.searchesBefore
}

// backoff counts failures in a row. The zero value knows of none.
type backoff struct {
	failures  int
	notBefore time.Time
}

// fail counts a failure at a time: page "Request Frequency", MIN(2^(N-1) * 15
// minutes * (RAND + 1), 24 hours), of which the least is demanded.
func (b *backoff) fail(at time.Time) {
	b.failures++
	doublings := min(b.failures-1, 7) // 2^7 * 15 minutes are more than a day
	b.notBefore = at.Add(min(15*time.Minute<<doublings, 24*time.Hour))
}

// stamp writes a time as violations show it.
func stamp(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.999999999Z") }

// tooEarly describes by how much now is before a time.
func tooEarly(now, notBefore time.Time) string {
	return fmt.Sprintf("at %s, %v before %s", stamp(now), notBefore.Sub(now), stamp(notBefore))
}
