package protocoltest

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol/pb/sbv5"
)

// reply is an answer before it is sent.
type reply struct {
	delay   time.Duration
	closed  bool // close the connection instead of answering
	status  int
	header  http.Header
	body    []byte
	cut     bool // send half of the body, then break off
	endless bool // never stop sending, whatever body says

	// What the client may conclude from a reply that it read to the end.
	useless  bool // nothing: the request failed
	served   []served
	cacheFor time.Duration // hashes.search only
	found    found         // fullHashes.find only
	known    knownUntil    // hashes.search of Web Risk only
	wait     time.Duration // fullHashes.find only: minimum wait of the method

	fault bool // a queued fault was applied
}

// served is what a reply says about one list.
type served struct {
	name    string
	spoilt  bool // the client must refuse it
	version []byte
	changed bool
	wait    time.Duration // 0: no minimum wait
	next    time.Time     // recommended_next_diff of Web Risk; zero: none
	entries []string      // of the version
	omitted bool          // the answer says nothing about the list
}

// answer returns the reply to a request.
func (s *Server) answer(q *query, r *http.Request) reply {
	if status, why := s.refusal(q, r); status != 0 {
		a := errorReply(status, why)
		if status == http.StatusNotFound && s.referee.relay {
			a.header.Set("Safebrowsing-Lists", strings.Join(slices.Sorted(maps.Keys(s.lists)), " "))
		}
		return a
	}
	f, broken := s.takeFault(q)
	a, replaced := f.replacement()
	if !replaced {
		a = s.goodReply(q, &f)
	}
	a.fault = broken
	a.delay = f.Delay
	a.cut = f.CutBody
	a.closed = a.closed || f.CutBody && len(a.body) == 0 // nothing is left to cut
	a.useless = a.useless || f.breaksRequest(q)
	return a
}

// refusal returns the status of a request that gets no proper answer, 0 if it gets
// one. The reason must not quote the request, since it may hold the key.
func (s *Server) refusal(q *query, r *http.Request) (status int, why string) {
	switch {
	case q.method == "":
		return http.StatusNotFound, "no such method"
	case r.Method != q.verb():
		return http.StatusMethodNotAllowed, "only " + q.verb() + " is allowed"
	case s.key != "" && keyOf(r) != s.key:
		return http.StatusForbidden, "API key not valid"
	case s.token != "" && r.Header.Get("Authorization") != bearer+s.token:
		return http.StatusUnauthorized, "access token not valid"
	case q.badRequest != "":
		return http.StatusBadRequest, q.badRequest
	}
	for i, name := range q.names {
		if !s.offers(q, name) || slices.Contains(q.names[:i], name) {
			if s.referee.relay {
				return http.StatusNotFound, "the relay lacks a list"
			}
			return http.StatusBadRequest, "list unknown or named twice"
		}
	}
	switch {
	case len(q.names) == 0 && (q.updatesLists() || q.method == methodFind):
		return http.StatusBadRequest, "no list named"
	case q.method == methodSearch && !legalPrefixes(q.prefixes):
		return http.StatusBadRequest, fmt.Sprintf("1 to %d hash prefixes of 4 bytes expected", maxPrefixes)
	case q.method == methodFind && !legalEntries(q.prefixes):
		return http.StatusBadRequest, fmt.Sprintf("1 to %d hashes of %d to %d bytes expected", maxFindEntries, minEntryBytes, maxEntryBytes)
	case q.method == methodSearchOne && (len(q.risks) == 0 || len(q.prefixes) != 1 || !legalEntries(q.prefixes)):
		return http.StatusBadRequest, fmt.Sprintf("threat types and 1 hash prefix of %d to %d bytes expected", minEntryBytes, maxEntryBytes)
	case q.updatesLists() && !q.v4() && !q.webRisk():
		return s.refusalV5(q)
	}
	return 0, ""
}

// refusalV5 is refusal for a list request of v5 whose lists are known.
func (s *Server) refusalV5(q *query) (status int, why string) {
	if s.versionTwice(q) {
		return http.StatusBadRequest, "two versions for one list"
	}
	if name := s.misfit(q.names); name != "" {
		s.referee.violation("misuse of the server", "list %q was asked for by way of v5, but holds entries of other lengths than its name says", name)
		return http.StatusInternalServerError, "list cannot be told in v5"
	}
	return 0, ""
}

// published reports whether a list is known.
func (s *Server) published(name string) bool {
	l := s.lists[name]
	return l != nil && len(l.versions) > 0
}

// offers reports whether a list is known to the service that the request asks.
func (s *Server) offers(q *query, name string) bool {
	return s.published(name) && (q.webRisk() || name != extendedList)
}

// misfit returns the first of some known lists whose entries are not as long as its
// name says, empty if there is none.
func (s *Server) misfit(names []string) string {
	for _, name := range names {
		if v := s.lists[name].newest(); len(v.entries) > 0 && v.width != listWidth(name) {
			return name
		}
	}
	return ""
}

func legalPrefixes(prefixes [][]byte) bool {
	short := func(p []byte) bool { return len(p) != prefixBytes }
	return len(prefixes) > 0 && len(prefixes) <= maxPrefixes && !slices.ContainsFunc(prefixes, short)
}

// legalEntries reports whether fullHashes.find takes these hashes.
func legalEntries(hashes [][]byte) bool {
	illegal := func(h []byte) bool { return len(h) < minEntryBytes || len(h) > maxEntryBytes }
	return len(hashes) > 0 && len(hashes) <= maxFindEntries && !slices.ContainsFunc(hashes, illegal)
}

func (s *Server) versionTwice(q *query) bool {
	seen := map[string]bool{}
	for _, v := range q.versions {
		owner := s.owners[string(v)]
		if owner != "" && seen[owner] {
			return true
		}
		seen[owner] = true
	}
	return false
}

// statusWords are the words for HTTP statuses in Google's error object (google.rpc.Code).
var statusWords = map[int]string{
	http.StatusBadRequest: "INVALID_ARGUMENT", http.StatusUnauthorized: "UNAUTHENTICATED", http.StatusForbidden: "PERMISSION_DENIED",
	http.StatusNotFound: "NOT_FOUND", http.StatusTooManyRequests: "RESOURCE_EXHAUSTED", http.StatusInternalServerError: "INTERNAL",
	http.StatusServiceUnavailable: "UNAVAILABLE", http.StatusGatewayTimeout: "DEADLINE_EXCEEDED",
}

// errorReply returns Google's JSON error object with this status.
func errorReply(status int, why string) reply {
	words := cmp.Or(statusWords[status], http.StatusText(status))
	body, _ := json.Marshal(map[string]any{
		"error": map[string]any{"code": status, "message": why, "status": words},
	})
	if status == http.StatusNoContent {
		body = nil
	}
	return reply{status: status, header: contentType("application/json"), body: body, useless: true}
}

func contentType(t string) http.Header { return http.Header{"Content-Type": {t}} }

// replacement returns the reply of a fault that leaves nothing of the good one.
func (f *Fault) replacement() (a reply, replaced bool) {
	protobuf := contentType("application/x-protobuf")
	switch {
	case f.CloseConnection:
		return reply{closed: true}, true
	case f.Status != 0 && f.Status != http.StatusOK:
		a = errorReply(f.Status, "queued fault")
		if f.RetryAfter > 0 {
			a.header.Set("Retry-After", strconv.Itoa(int(math.Ceil(f.RetryAfter.Seconds()))))
		}
		return a, true
	case f.Redirect != "":
		return reply{status: http.StatusFound, header: http.Header{"Location": {f.Redirect}}}, true
	case f.WrongContentType:
		page := "<!DOCTYPE html><title>Welcome</title><p>Please accept our terms.\n"
		return reply{status: http.StatusOK, header: contentType("text/html"), body: []byte(page)}, true
	case f.Garbage:
		return reply{status: http.StatusOK, header: protobuf, body: garbage()}, true
	case f.EndlessBody:
		return reply{status: http.StatusOK, header: protobuf, endless: true}, true
	}
	return reply{}, false
}

// garbage returns bytes that look random and are no protobuf message: eleven bytes
// with the high bit set are too long for a tag.
func garbage() []byte {
	noise := sha256.Sum256([]byte("garbage"))
	return append(bytes.Repeat([]byte{0xff}, 11), noise[:]...)
}

// goodReply returns the proper answer, with the faults of frame and contents.
func (s *Server) goodReply(q *query, f *Fault) reply {
	a := reply{status: http.StatusOK}
	m, err := s.message(q, f, &a)
	if err != nil {
		return errorReply(http.StatusBadRequest, err.Error())
	}
	if q.json || s.json {
		a.header = contentType("application/json")
		a.body, err = protojson.Marshal(m)
	} else {
		a.header = contentType("application/x-protobuf")
		a.body, err = proto.Marshal(m)
	}
	if err != nil {
		return errorReply(http.StatusInternalServerError, "answer cannot be encoded")
	}
	return a
}

// message returns the message of an answer and notes in a what it tells the client.
func (s *Server) message(q *query, f *Fault, a *reply) (m proto.Message, err error) {
	switch q.method {
	case methodSearch:
		found := s.search(q.prefixes)
		if f.ShortHash {
			short := append(bytes.Clone(q.prefixes[0]), make([]byte, 27)...)
			found.FullHashes = append(found.FullHashes, &sbv5.FullHash{FullHash: short})
		}
		m, a.cacheFor = found, s.cacheFor
	case methodList:
		return s.page(q)
	case methodFetch:
		m, a.served = s.fetchAnswer(q, f)
	case methodFind:
		m, a.found = s.findAnswer(q, f)
		a.wait = s.findWait
	case methodThreatLists:
		m = s.threatLists()
	case methodDiff:
		m, a.served = s.diffAnswer(q, f)
	case methodSearchOne:
		m, a.known = s.searchOneAnswer(q, f)
	default:
		m, a.served = s.hashLists(q, f)
	}
	return m, nil
}
