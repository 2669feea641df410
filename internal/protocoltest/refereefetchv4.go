package protocoltest

import (
	"net/http"
	"slices"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol/pb/wrv1"
)

// judgeFetch judges a request of threatListUpdates.fetch: its time, its lists and
// their states.
func (r *referee) judgeFetch(q *query, now time.Time, owners map[string]string) {
	early := r.judgeFetchTime(now)
	r.v4.fetching++
	wants := q.fetch().wants
	if len(wants) == 0 && q.undecoded == "" {
		r.violation("Update API, fetch", "no list asked for")
	}
	for i, name := range q.names {
		if r.judgeTwice(q.names, i) {
			continue
		}
		w := &wants[i]
		r.judgeWanted(name, w)
		r.judgeAlone(q, name, r.v4.clocks.list(name))
		if !early {
			r.judgeList(name, r.v4.clocks.list(name), now)
		}
		r.judgeState(v4States, name, w.state, owners)
	}
}

// judgeFetchTime judges whether any list may be fetched now and reports whether it
// is too early. The waits hold for the method, not for single lists.
func (r *referee) judgeFetchTime(now time.Time) (early bool) {
	b := &r.backoffs.v4.fetches
	switch {
	case r.v4.fetching > 0:
		r.violation(ruleFrequency, "lists fetched at %s while another fetch is under way", stamp(now))
	case now.Before(b.notBefore):
		r.violation(ruleFrequency+", back-off", "lists fetched %s, after %d failed fetches in a row",
			tooEarly(now, b.notBefore), b.failures)
	case now.Before(r.v4.clocks.fetchWait):
		r.violation(ruleFrequency+", minimum wait", "lists fetched %s", tooEarly(now, r.v4.clocks.fetchWait))
	default:
		return false
	}
	return true
}

// judgeWanted judges the form of what a fetch says about one list.
func (r *referee) judgeWanted(name string, w *wanted) {
	if !w.specified() {
		r.violation("Update API, fetch", "list %q lacks one of its three types", name)
	}
	if !takesRice(w.compressions) || !slices.Contains(w.compressions, wrv1.CompressionType_RAW) {
		r.violation("Compression", "list %q is asked for with compressions %v, want RICE and RAW", name, w.compressions)
	}
	if !w.legalDatabase() {
		r.violation("Update Constraints", "list %q is asked for with max_database_entries %d, want 0 or a power of two from %d to %d",
			name, w.maxDatabase, minDatabaseEntries, maxDatabaseEntries)
	}
}

// v4States is what v4 calls the versions of lists.
const v4States stateWord = "state"

// fetchRequests are the list requests of v4.
func (r *referee) fetchRequests() listRequests {
	return listRequests{
		backoff: &r.backoffs.v4.fetches, state: r.state, clock: r.v4.clocks.list,
	}
}

// learnFetch takes in the outcome of a fetch.
func (r *referee) learnFetch(x *exchange, how outcome, at time.Time) {
	r.v4.fetching = max(0, r.v4.fetching-1)
	switch how {
	case failed:
		r.learnRefusal(x, at, r.fetchRequests())
	case received:
		r.backoffs.v4.fetches = backoff{}
		changed := slices.ContainsFunc(x.reply.served, func(s served) bool { return s.changed || s.spoilt })
		for _, s := range x.reply.served {
			// A wait is one for the whole method, and so is the lack of one: what
			// makes one list fetched at once takes the others along.
			s.changed = changed
			r.state(s.name).learn(s, at)
			r.v4.clocks.list(s.name).learn(s, at)
			r.v4.clocks.fetchWait = later(r.v4.clocks.fetchWait, at, s.wait)
		}
	}
}

// later returns the later of a time and the end of a wait.
func later(t, at time.Time, wait time.Duration) time.Time {
	if end := at.Add(wait); wait > 0 && end.After(t) {
		return end
	}
	return t
}

// judgeMessage judges a body of the Update API v4, whatever it asks for.
func (r *referee) judgeMessage(q *query, req *http.Request) {
	const rule = "Update API, request body"
	if got := req.Header.Get("Content-Type"); got != "application/x-protobuf" {
		r.violation(rule, "%s came with content type %q, want application/x-protobuf", q, got)
	}
	if q.undecoded != "" {
		r.violation(rule, "the body of %s is not the message of the method", q)
		return
	}
	if client := q.clientV4(); client.GetClientId() == "" || client.GetClientVersion() == "" {
		r.violation("Update API, client identity", "%s does not name its software in client_id %q and client_version %q",
			q, client.GetClientId(), client.GetClientVersion())
	}
}
