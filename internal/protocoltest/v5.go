package protocoltest

import (
	"bytes"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol/pb/sbv5"
)

// Methods of the v5 service, as Request.Method and Break name them.
const (
	methodBatchGet = "batchGet" // /v5/hashLists:batchGet
	methodGet      = "get"      // /v5/hashList/{name}
	methodList     = "list"     // /v5/hashLists
	methodSearch   = "search"   // /v5/hashes:search; asked for by name, the searches of the other services too
)

// getPath begins the path of get; the name of the list follows.
const getPath = "/v5/hashList/"

// v5 is version 5 of Safe Browsing.
var v5 = &service{
	parse:   (*query).parseV5,
	shows:   func(f *Fault, _ *query) bool { return !f.notV5() },
	frame:   func(f *Fault) bool { return f.WrongName || f.WrongOrder || f.MissingList },
	content: func(f *Fault) bool { return f.breaksList() || f.WrongWidth || f.NegativeWait },
}

func init() {
	lists := method{
		updates: true, refuse: (*Server).refuseV5, answer: (*Server).hashLists,
		judge: (*referee).judgeV5, learn: (*referee).learnV5,
	}
	batchGet, get := lists, lists
	batchGet.name, batchGet.path = methodBatchGet, "/v5/hashLists:batchGet"
	get.name, get.path = methodGet, getPath
	v5.add(batchGet, get,
		method{name: methodList, path: "/v5/hashLists", answer: (*Server).page},
		method{
			name: methodSearch, path: "/v5/hashes:search", searches: true, refuse: (*Server).refuseSearch,
			answer: (*Server).searchAnswer, judge: (*referee).judgeSearch, learn: (*referee).learnSearch,
		})
}

// parseV5 understands the parameters of a v5 request.
func (q *query) parseV5(values url.Values, _ http.Header) {
	if q.method == methodBatchGet {
		q.names = values["names"]
	}
	q.versions = q.decodeAll("version", values["version"])
	q.prefixes = q.decodeAll("hashPrefixes", values["hashPrefixes"])
	q.maxUpdate = q.number(values, "sizeConstraints.maxUpdateEntries")
	q.maxDatabase = q.number(values, "sizeConstraints.maxDatabaseEntries")
	q.pageSize = q.number(values, "pageSize")
	if values.Has("$req") {
		q.parseMessage(values.Get("$req"))
	}
	if q.maxUpdate > 0 && q.maxUpdate < minUpdateEntries {
		q.badRequest = fmt.Sprintf("maxUpdateEntries must be 0 or at least %d", minUpdateEntries)
	}
}

// parseMessage reads the parameter $req, in which browsers send the whole request as a
// message, of batchGet and search.
func (q *query) parseMessage(text string) {
	var batch sbv5.BatchGetHashListsRequest
	var search sbv5.SearchHashesRequest
	for _, raw := range q.decodeAll("$req", []string{text}) {
		var err error
		switch q.method {
		case methodBatchGet:
			err = proto.Unmarshal(raw, &batch)
			q.names, q.versions = batch.GetNames(), batch.GetVersion()
			q.maxUpdate, q.maxDatabase = int(batch.GetSizeConstraints().GetMaxUpdateEntries()), int(batch.GetSizeConstraints().GetMaxDatabaseEntries())
		case methodSearch:
			err = proto.Unmarshal(raw, &search)
			q.prefixes = search.GetHashPrefixes()
		}
		if err != nil || q.maxUpdate < 0 || q.maxDatabase < 0 {
			q.undecoded, q.badRequest = "$req", "$req is not a message of the method"
		}
	}
}

// refuseV5 refuses a list request whose lists are known.
func (s *Server) refuseV5(q *query) (status int, why string) {
	if s.versionTwice(q) {
		return http.StatusBadRequest, "two versions for one list"
	}
	if name := s.misfit(q.names); name != "" {
		s.referee.violation("misuse of the server", "list %q was asked for by way of v5, but holds entries of other lengths than its name says", name)
		return http.StatusInternalServerError, "list cannot be told in v5"
	}
	return 0, ""
}

// refuseSearch refuses prefixes that hashes.search does not take.
func (s *Server) refuseSearch(q *query) (status int, why string) {
	if !legalPrefixes(q.prefixes) {
		return http.StatusBadRequest, fmt.Sprintf("1 to %d hash prefixes of 4 bytes expected", maxPrefixes)
	}
	return 0, ""
}

// searchAnswer returns the answer of hashes.search.
func (s *Server) searchAnswer(q *query, f *Fault, a *reply) (proto.Message, error) {
	m := s.search(q.prefixes)
	if f.ShortHash {
		short := append(bytes.Clone(q.prefixes[0]), make([]byte, 27)...)
		m.FullHashes = append(m.FullHashes, &sbv5.FullHash{FullHash: short})
	}
	a.cacheFor = s.cacheFor
	return m, nil
}

// judgeV5 judges a list request: its lists, its time and its versions.
func (r *referee) judgeV5(q *query, now time.Time, owners map[string]string) {
	r.judgeLists(q, now, r.v5Requests())
	r.judgeVersions(q, owners)
}

// learnV5 takes in the outcome of a list request.
func (r *referee) learnV5(x *exchange, how outcome, at time.Time) {
	r.learnLists(x, how, at, r.v5Requests())
}
