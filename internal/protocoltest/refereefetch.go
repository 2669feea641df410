package protocoltest

import (
	"slices"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol/pb/sbv4"
)

// judgeFetch judges a request of threatListUpdates.fetch: its time, its lists and
// their states.
func (r *referee) judgeFetch(q *query, now time.Time, owners map[string]string) {
	early := r.judgeFetchTime(now)
	r.fetching++
	if len(q.wants) == 0 && q.undecoded == "" {
		r.violation("Update API, fetch", "no list asked for")
	}
	for i, name := range q.names {
		if r.judgeTwice(q.names, i) {
			continue
		}
		w := &q.wants[i]
		r.judgeWanted(name, w)
		r.judgeAlone(q, name, &r.state(name).v4)
		if !early {
			r.judgeList(name, &r.state(name).v4, now)
		}
		r.judgeState(v4States, name, w.state, owners)
	}
}

// judgeFetchTime judges whether any list may be fetched now and reports whether it
// is too early. The waits hold for the method, not for single lists.
func (r *referee) judgeFetchTime(now time.Time) (early bool) {
	b := &r.backoffs.fetches
	switch {
	case r.fetching > 0:
		r.violation(ruleFrequency, "lists fetched at %s while another fetch is under way", stamp(now))
	case now.Before(b.notBefore):
		r.violation(ruleFrequency+", back-off", "lists fetched %s, after %d failed fetches in a row",
			tooEarly(now, b.notBefore), b.failures)
	case now.Before(r.fetchWait):
		r.violation(ruleFrequency+", minimum wait", "lists fetched %s", tooEarly(now, r.fetchWait))
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
	if !w.rice() || !slices.Contains(w.compressions, sbv4.CompressionType_RAW) {
		r.violation("Compression", "list %q is asked for with compressions %v, want RICE and RAW", name, w.compressions)
	}
	if !w.legalDatabase() {
		r.violation("Update Constraints", "list %q is asked for with max_database_entries %d, want 0 or a power of two from %d to %d",
			name, w.maxDatabase, minDatabaseEntries, maxDatabaseEntries)
	}
}

// stateWord is what a protocol calls the version of a list.
type stateWord string

const (
	v4States   stateWord = "state"
	riskTokens stateWord = "version token"
)

// judgeState judges the state, or the version token, that was sent for one list.
func (r *referee) judgeState(word stateWord, name string, state []byte, owners map[string]string) {
	if len(state) == 0 {
		return
	}
	rule := "Local Databases, " + string(word)
	owner, known := owners[string(state)]
	switch {
	case !known:
		r.violation(rule, "the %s %x sent for %q was never served", word, state, name)
	case owner != name:
		r.violation(rule, "the %s %x of list %q was sent for %q", word, state, owner, name)
	case word == riskTokens:
		r.judgeVersion(r.riskLists, name, state)
	default:
		r.judgeVersion(r.lists, name, state)
	}
}

// fetchRequests are the list requests of v4.
func (r *referee) fetchRequests() listRequests {
	return listRequests{
		backoff: &r.backoffs.fetches, state: r.state,
		clock: func(name string) *listClock { return &r.state(name).v4 },
	}
}

// learnFetch takes in the outcome of a fetch.
func (r *referee) learnFetch(x *exchange, how outcome, at time.Time) {
	r.fetching = max(0, r.fetching-1)
	switch how {
	case failed:
		r.learnRefusal(x, at, r.fetchRequests())
	case received:
		r.backoffs.fetches = backoff{}
		changed := slices.ContainsFunc(x.reply.served, func(s served) bool { return s.changed || s.spoilt })
		for _, s := range x.reply.served {
			// A wait is one for the whole method, and so is the lack of one: what
			// makes one list fetched at once takes the others along.
			s.changed = changed
			l := r.state(s.name)
			l.learn(s, at)
			l.v4.learn(s, at)
			r.fetchWait = later(r.fetchWait, at, s.wait)
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
