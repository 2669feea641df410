package protocoltest

import (
	"cmp"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol/pb/sbv4"
	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol/pb/wrv1"
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

// Methods of the Update API v4, as Request.Method and Break name them.
const (
	methodFetch       = "fetch"       // /v4/threatListUpdates:fetch
	methodFind        = "find"        // /v4/fullHashes:find
	methodThreatLists = "threatLists" // /v4/threatLists
)

const (
	maxFindEntries     = 500     // per request of fullHashes.find
	minDatabaseEntries = 1 << 10 // the smallest max_database_entries except 0
	maxDatabaseEntries = 1 << 20
)

// wanted is what a fetch says about one list.
type wanted struct {
	triple
	state        []byte                 // empty if none
	maxUpdate    int                    // 0: no limit
	maxDatabase  int                    // 0: no limit
	compressions []wrv1.CompressionType // the same numbers as in v4
}

// fetchQuery is what a fetch asks.
type fetchQuery struct {
	client *sbv4.ClientInfo
	wants  []wanted // one for each of names
}

// fetch returns what a fetch asks, nothing for another request.
func (q *query) fetch() fetchQuery {
	m, _ := q.own.(fetchQuery)
	return m
}

// find returns what a find asks, nil for another request.
func (q *query) find() *sbv4.FindFullHashesRequest {
	m, _ := q.own.(*sbv4.FindFullHashesRequest)
	return m
}

// clientV4 returns how the client names itself.
func (q *query) clientV4() *sbv4.ClientInfo { return cmp.Or(q.fetch().client, q.find().GetClient()) }

// parseBody understands the body of a v4 request.
func (q *query) parseBody() {
	switch q.method {
	case methodFetch:
		q.parseFetch()
	case methodFind:
		q.parseFind()
	}
}

// parseFetch understands the body of threatListUpdates.fetch.
func (q *query) parseFetch() {
	var m sbv4.FetchThreatListUpdatesRequest
	if !q.unmarshal(&m) {
		return
	}
	own := fetchQuery{client: m.Client}
	for _, r := range m.ListUpdateRequests {
		c := r.GetConstraints()
		w := wanted{
			triple: triple{r.GetThreatType(), r.GetPlatformType(), r.GetThreatEntryType()}, state: r.GetState(),
			maxUpdate: int(c.GetMaxUpdateEntries()), maxDatabase: int(c.GetMaxDatabaseEntries()),
		}
		for _, c := range c.GetSupportedCompressions() {
			w.compressions = append(w.compressions, wrv1.CompressionType(c))
		}
		own.wants = append(own.wants, w)
		q.names = append(q.names, w.list())
		if len(w.state) > 0 {
			q.versions = append(q.versions, w.state)
		}
		q.maxUpdate = max(q.maxUpdate, w.maxUpdate)
		q.maxDatabase = max(q.maxDatabase, w.maxDatabase)
		if w.maxUpdate != 0 && w.maxUpdate < minUpdateEntries {
			q.badRequest = fmt.Sprintf("max_update_entries must be 0 or at least %d", minUpdateEntries)
		}
		if !w.legalDatabase() {
			q.badRequest = fmt.Sprintf("max_database_entries must be 0 or a power of two from %d to %d", minDatabaseEntries, maxDatabaseEntries)
		}
	}
	q.own = own
}

// legalDatabase reports whether max_database_entries has a legal value.
func (w *wanted) legalDatabase() bool {
	return powerOfTwo(w.maxDatabase, minDatabaseEntries, maxDatabaseEntries)
}

// parseFind understands the body of fullHashes.find.
func (q *query) parseFind() {
	var m sbv4.FindFullHashesRequest
	if !q.unmarshal(&m) {
		return
	}
	q.own = &m
	q.versions = m.ClientStates
	q.names = listsAbout(m.ThreatInfo)
	for _, e := range m.GetThreatInfo().GetThreatEntries() {
		q.prefixes = append(q.prefixes, e.GetHash())
	}
}

// unmarshal reads the body into m and reports whether it could.
func (q *query) unmarshal(m proto.Message) bool {
	if err := proto.Unmarshal(q.body, m); err != nil {
		q.undecoded, q.badRequest = "body", "body is not the request message in protobuf"
		return false
	}
	return true
}

// triple is how the Update API v4 names a list.
type triple struct {
	threat   sbv4.ThreatType
	platform sbv4.PlatformType
	entry    sbv4.ThreatEntryType
}

// triples are the lists that the server knows in v4, by their names in v5. Any
// other combination is unknown, as with Google's server (page "Safe Browsing
// Lists").
var triples = []struct {
	name string
	triple
}{
	{"se-4b", triple{sbv4.ThreatType_SOCIAL_ENGINEERING, sbv4.PlatformType_ANY_PLATFORM, sbv4.ThreatEntryType_URL}},
	{"mw-4b", triple{sbv4.ThreatType_MALWARE, sbv4.PlatformType_ANY_PLATFORM, sbv4.ThreatEntryType_URL}},
	{"uws-4b", triple{sbv4.ThreatType_UNWANTED_SOFTWARE, sbv4.PlatformType_ANY_PLATFORM, sbv4.ThreatEntryType_URL}},
	{"uwsa-4b", triple{sbv4.ThreatType_UNWANTED_SOFTWARE, sbv4.PlatformType_ANDROID, sbv4.ThreatEntryType_URL}},
	{"pha-4b", triple{sbv4.ThreatType_POTENTIALLY_HARMFUL_APPLICATION, sbv4.PlatformType_ANDROID, sbv4.ThreatEntryType_URL}},
}

// tripleOf returns the triple of a list, all unspecified if it has none.
func tripleOf(name string) triple {
	for _, known := range triples {
		if known.name == name {
			return known.triple
		}
	}
	return triple{}
}

// list returns the name of the list, or a text that is no list's name.
func (t triple) list() string {
	for _, known := range triples {
		if known.triple == t {
			return known.name
		}
	}
	return strings.Join([]string{t.threat.String(), t.platform.String(), t.entry.String()}, "/")
}

// specified reports whether all three types are set.
func (t triple) specified() bool { return t.threat != 0 && t.platform != 0 && t.entry != 0 }

// listsAbout returns the lists that the types of a threat_info cover, every type of
// it with every other, in the order of triples.
func listsAbout(info *sbv4.ThreatInfo) (names []string) {
	for _, known := range triples {
		if slices.Contains(info.GetThreatTypes(), known.threat) &&
			slices.Contains(info.GetPlatformTypes(), known.platform) &&
			slices.Contains(info.GetThreatEntryTypes(), known.entry) {
			names = append(names, known.name)
		}
	}
	return names
}
