package protocoltest

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strconv"
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

	fault bool // a queued fault was applied
}

// served is what a reply says about one list.
type served struct {
	name    string
	spoilt  bool // the client must refuse it
	version []byte
	changed bool
	wait    time.Duration // 0: no minimum wait
}

// answer returns the reply to a request.
func (s *Server) answer(q *query, r *http.Request) reply {
	if status, why := s.refusal(q, r); status != 0 {
		return errorReply(status, why)
	}
	f, broken := s.takeFault(q)
	a, replaced := f.replacement()
	if !replaced {
		a = s.goodReply(q, &f)
	}
	a.fault = broken
	a.delay = f.Delay
	a.cut = f.CutBody
	a.useless = a.useless || f.breaksRequest()
	return a
}

// refusal returns the status of a request that gets no proper answer, 0 if it gets
// one. The reason must not quote the request, since it may hold the key.
func (s *Server) refusal(q *query, r *http.Request) (status int, why string) {
	switch {
	case q.method == "":
		return http.StatusNotFound, "no such method"
	case r.Method != http.MethodGet:
		return http.StatusMethodNotAllowed, "only GET is allowed"
	case s.key != "" && r.Header.Get("X-Goog-Api-Key") != s.key:
		return http.StatusForbidden, "API key not valid"
	case q.badRequest != "":
		return http.StatusBadRequest, q.badRequest
	}
	var known bool
	for i, name := range q.names {
		l := s.lists[name]
		known = l != nil && len(l.versions) > 0
		if !known || slices.Contains(q.names[:i], name) {
			return http.StatusBadRequest, "list unknown or named twice"
		}
	}
	switch {
	case q.updatesLists() && !known:
		return http.StatusBadRequest, "no list named"
	case q.method == methodSearch && !legalPrefixes(q.prefixes):
		return http.StatusBadRequest, fmt.Sprintf("1 to %d hash prefixes of 4 bytes expected", maxPrefixes)
	case q.updatesLists() && s.versionTwice(q):
		return http.StatusBadRequest, "two versions for one list"
	}
	return 0, ""
}

func legalPrefixes(prefixes [][]byte) bool {
	short := func(p []byte) bool { return len(p) != prefixBytes }
	return len(prefixes) > 0 && len(prefixes) <= maxPrefixes && !slices.ContainsFunc(prefixes, short)
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

// errorReply returns Google's JSON error object with this status.
func errorReply(status int, why string) reply {
	body, _ := json.Marshal(map[string]any{
		"error": map[string]any{"code": status, "message": why, "status": http.StatusText(status)},
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
	a := reply{status: http.StatusOK, cacheFor: s.cacheFor}
	var m proto.Message
	switch q.method {
	case methodSearch:
		found := s.search(q.prefixes)
		if f.ShortHash {
			short := append(bytes.Clone(q.prefixes[0]), make([]byte, 27)...)
			found.FullHashes = append(found.FullHashes, &sbv5.FullHash{FullHash: short})
		}
		m = found
	case methodList:
		page, err := s.page(q)
		if err != nil {
			return errorReply(http.StatusBadRequest, err.Error())
		}
		m = page
	default:
		m, a.served = s.hashLists(q, f)
	}
	var err error
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
