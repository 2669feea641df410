package protocoltest

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
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

// defaultPageSize is the number of lists per page when the client names none.
const defaultPageSize = 100

// hashLists returns the answer of batchGet or get, all its lists known, and notes what
// it says about each list.
func (s *Server) hashLists(q *query, f *Fault, a *reply) (proto.Message, error) {
	var messages []*sbv5.HashList
	for _, name := range q.names {
		l := s.lists[name]
		u := l.updateTo(l.limited(q.maxDatabase), s.versionFor(q, name), q.maxUpdate)
		s.owners[string(u.target.id)] = name
		spoilt := f.spoils(q, name)
		if spoilt {
			messages = append(messages, f.spoil(u))
		} else {
			messages = append(messages, u.message())
		}
		say := served{name: name, spoilt: spoilt, version: u.target.id, changed: !u.partial || u.changes(), wait: u.wait, entries: u.target.entries}
		if f.NegativeWait {
			say.wait = 0 // it was not told
		}
		a.served = append(a.served, say)
	}
	messages = f.spoilFrame(messages)
	if q.method == methodBatchGet {
		return &sbv5.BatchGetHashListsResponse{HashLists: messages}, nil
	}
	if len(messages) == 0 {
		return &sbv5.HashList{}, nil
	}
	return messages[0], nil
}

// versionOwners returns the list of each version that the service of the request ever
// served.
func (s *Server) versionOwners(q *query) map[string]string {
	if q.webRisk() {
		return s.tokens
	}
	return s.owners
}

// versionFor returns the version that the client sent for a list, nil if none. It
// is found by the version itself, since the order of versions means nothing.
func (s *Server) versionFor(q *query, name string) []byte {
	for _, v := range q.versions {
		if s.owners[string(v)] == name {
			return v
		}
	}
	return nil
}

// spoilFrame applies the faults of names, order and number.
func (f *Fault) spoilFrame(messages []*sbv5.HashList) []*sbv5.HashList {
	wrongName := f.WrongName || f.WrongOrder && len(messages) < 2
	for _, m := range messages {
		if wrongName && (f.List == "" || f.List == m.Name) {
			m.Name = "not-" + m.Name
		}
	}
	if f.WrongOrder {
		slices.Reverse(messages)
	}
	if f.MissingList {
		return messages[:len(messages)-1]
	}
	return messages
}

// page returns one page of hashLists.list, whose token is the number of lists on
// the pages before.
func (s *Server) page(q *query, _ *Fault, _ *reply) (proto.Message, error) {
	var names []string
	for _, name := range slices.Sorted(maps.Keys(s.lists)) {
		if s.offers(q, name) {
			names = append(names, name)
		}
	}
	start, err := strconv.Atoi("0" + q.pageToken)
	if err != nil || start > len(names) {
		return nil, errors.New("pageToken is not one of ours")
	}
	end := start + min(len(names)-start, cmp.Or(q.pageSize, defaultPageSize))
	m := &sbv5.ListHashListsResponse{}
	for _, name := range names[start:end] {
		m.HashLists = append(m.HashLists, &sbv5.HashList{Name: name, Metadata: metadata(name)})
	}
	if end < len(names) {
		m.NextPageToken = strconv.Itoa(end)
	}
	return m, nil
}

func metadata(name string) *sbv5.HashListMetadata {
	m := &sbv5.HashListMetadata{Description: "test list " + name}
	if isLikelySafe(name) {
		m.LikelySafeTypes = []sbv5.LikelySafeType{sbv5.LikelySafeType_GENERAL_BROWSING}
	} else {
		m.ThreatTypes = []sbv5.ThreatType{threatOf(name)}
	}
	m.HashLength = map[int]sbv5.HashListMetadata_HashLength{
		4:  sbv5.HashListMetadata_FOUR_BYTES,
		8:  sbv5.HashListMetadata_EIGHT_BYTES,
		16: sbv5.HashListMetadata_SIXTEEN_BYTES,
		32: sbv5.HashListMetadata_THIRTY_TWO_BYTES,
	}[listWidth(name)]
	return m
}

// isLikelySafe reports whether a list holds likely-safe hashes: the global cache.
func isLikelySafe(name string) bool { return strings.HasPrefix(name, "gc-") }

// threatOf returns the threat type that a list name implies.
func threatOf(name string) sbv5.ThreatType {
	base, _, _ := strings.Cut(name, "-")
	switch base {
	case "se":
		return sbv5.ThreatType_SOCIAL_ENGINEERING
	case "uws", "uwsa":
		return sbv5.ThreatType_UNWANTED_SOFTWARE
	case "pha":
		return sbv5.ThreatType_POTENTIALLY_HARMFUL_APPLICATION
	}
	return sbv5.ThreatType_MALWARE
}
