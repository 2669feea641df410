package protocoltest

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"maps"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
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

	refused bool // it comes whole and can be decoded, but the client must refuse what it says
	// What the client may conclude from a reply that it read to the end.
	useless  bool // nothing: the request failed
	served   []served
	whole    int           // of those, how many come before a reply that is cut breaks off
	cacheFor time.Duration // hashes.search only
	known    knownUntil    // hashes.search of Web Risk only
	own      any           // what only the service knows of it

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
	a.refused = !replaced && a.status == http.StatusOK && !a.cut && !a.closed && f.breaksRequest(q)
	a.useless = a.useless || f.breaksRequest(q)
	if a.cut && q.method == methodBatchGet && !f.breaksFrame(q) && !q.json && !s.json {
		for rest := a.body[:len(a.body)/2]; ; a.whole++ {
			_, _, n := protowire.ConsumeField(rest)
			if n < 0 {
				break
			}
			rest = rest[n:]
		}
	}
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
	if len(q.names) == 0 && q.updatesLists() {
		return http.StatusBadRequest, "no list named"
	}
	if refuse := q.to().refuse; refuse != nil {
		return refuse(s, q)
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

// legalEntries reports whether a search that takes prefixes of any length takes these.
func legalEntries(hashes [][]byte) bool {
	illegal := func(h []byte) bool { return len(h) < minEntryBytes || len(h) > maxEntryBytes }
	return len(hashes) > 0 && !slices.ContainsFunc(hashes, illegal)
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
	m, err := q.to().answer(s, q, f, &a)
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
