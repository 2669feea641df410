package protocoltest

import (
	"net/http"
	"net/url"
	"time"
)

// serviceV4 is the Update API, version 4 of Safe Browsing. Its lists go by a threat type,
// a platform type and a threat entry type; here they are named as in v5, see triples. A
// state is a version of v5: either serves for both, but waits and back-offs of the two
// protocols know nothing of each other. What it says of a list is what Web Risk says of
// it, in other messages.
var serviceV4 = &service{
	parse:     func(q *query, _ url.Values, _ http.Header) { q.parseBody() },
	shows:     func(f *Fault, _ *query) bool { return !f.onlyV5() && !f.oddNextDiff() && !f.oddExpiry() },
	frame:     func(f *Fault) bool { return f.WrongName || f.V4.TwoAnswers || f.NegativeWait },
	content:   func(f *Fault) bool { return f.breaksList() || f.breaksDiff() || f.V4.NoCompression },
	judgeBody: (*referee).judgeMessage,
}

func init() {
	serviceV4.add(
		method{
			name: methodFetch, path: "/v4/threatListUpdates:fetch", verb: http.MethodPost, updates: true,
			answer: (*Server).fetchAnswer, judge: (*referee).judgeFetch, learn: (*referee).learnFetch,
		},
		method{
			name: methodFind, path: "/v4/fullHashes:find", verb: http.MethodPost, searches: true,
			refuse: (*Server).refuseFind, answer: (*Server).findAnswer, judge: (*referee).judgeFind, learn: (*referee).learnFind,
		},
		method{name: methodThreatLists, path: "/v4/threatLists", answer: (*Server).threatLists})
	cacheRules = append(cacheRules, ruleCacheV4)
}

// serverV4 is what the server says in v4 only.
type serverV4 struct {
	fetchWait     time.Duration // minimum_wait_duration, see SetFetchWait
	findWait      time.Duration // likewise, see SetFindWait
	omitUnchanged bool          // see OmitUnchanged
}

// backoffsV4 are the back-offs of the methods.
type backoffsV4 struct{ fetches, finds backoff }

// refereeV4 is what the referee knows of v4 only. The zero value knows nothing.
type refereeV4 struct {
	finds    cache               // of fullHashes.find; made by clientStarted
	fetching int                 // requests of threatListUpdates.fetch under way
	clocks   clocksV4            // of the key that is asked with
	others   map[string]clocksV4 // by the keys that were asked with before
}

// clocksV4 are what the minimum waits demand of those who ask with one key.
type clocksV4 struct {
	fetchWait time.Time             // no threatListUpdates.fetch before
	findWait  time.Time             // likewise for fullHashes.find
	lists     map[string]*listClock // by name
}

// list returns the clock of a list, made when there is none yet.
func (c *clocksV4) list(name string) *listClock {
	if c.lists == nil {
		c.lists = map[string]*listClock{}
	}
	if c.lists[name] == nil {
		c.lists[name] = &listClock{}
	}
	return c.lists[name]
}

// clientStarted forgets what dies with the client's process.
func (v *refereeV4) clientStarted() { v.finds, v.fetching = newCache(), 0 }

// clientLostState forgets what the client has on disk.
func (v *refereeV4) clientLostState() { v.clocks, v.others = clocksV4{}, nil }

// as changes to the clocks of another key.
func (v *refereeV4) as(key, next string) {
	if v.others == nil {
		v.others = map[string]clocksV4{}
	}
	v.others[key] = v.clocks
	v.clocks = v.others[next]
}
