package protocoltest

import (
	"cmp"
	"fmt"

	"google.golang.org/protobuf/proto"

	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol/pb/sbv4"
	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol/pb/wrv1"
)

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
