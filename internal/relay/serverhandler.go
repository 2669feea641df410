package relay

import (
	"cmp"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol"
	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol/pb/sbv5"
)

// method is a method of version 5 that the relay has.
type method struct {
	name       string // in metrics
	parameters []string
	message    func() proto.Message // of the parameter $req; nil: it is not taken
	answer     func(h *handler, r *http.Request, client netip.Addr, q query) (reply, *failure)
}

var (
	listParameters = []string{"version", "sizeConstraints.maxUpdateEntries", "sizeConstraints.maxDatabaseEntries"}

	batchGet = method{"batchGet", append([]string{"names"}, listParameters...),
		func() proto.Message { return new(sbv5.BatchGetHashListsRequest) }, (*handler).batchGet}
	listAll = method{"list", []string{"pageSize", "pageToken"}, nil, (*handler).listAll}
	search  = method{"search", []string{"hashPrefixes"},
		func() proto.Message { return new(sbv5.SearchHashesRequest) }, (*handler).search}
)

// getList returns the method that fetches the list of a path.
func getList(name string) method {
	return method{"get", listParameters, nil, func(h *handler, r *http.Request, client netip.Addr, q query) (reply, *failure) {
		q.names = []string{name}
		return h.get(r, q)
	}}
}

// methodOf returns the method at a path.
func methodOf(path string) (method, bool) {
	switch path {
	case "/v5/hashLists:batchGet":
		return batchGet, true
	case "/v5/hashLists":
		return listAll, true
	case "/v5/hashes:search":
		return search, true
	}
	name, ok := strings.CutPrefix(path, "/v5/hashList/")
	if !ok || name == "" || strings.Contains(name, "/") {
		return method{name: "other"}, false
	}
	return getList(name), true
}

// reply is the body of an answer: its parts, one after the other. They may be shared by
// several replies and must not be changed.
type reply struct {
	parts      [][]byte
	compress   bool   // gzip makes it shorter
	unanswered string // value of protocol.UnansweredHeader; "": none
	outcome    string // in metrics; "": outcomeSuccess
}

func (p reply) size() (n int) {
	for _, part := range p.parts {
		n += len(part)
	}
	return n
}

// failure is an answer other than 200, in words and in the form of Google's servers.
type failure struct {
	code       int
	outcome    string // in metrics
	message    string
	retryAfter time.Duration // 0: no header
	unanswered string        // value of protocol.UnansweredHeader; "": none
	lists      string        // value of protocol.ListsHeader; "": none
}

// statusWords are the canonical words for HTTP statuses (google.rpc.Code).
var statusWords = map[int]string{
	http.StatusBadRequest: "INVALID_ARGUMENT", http.StatusForbidden: "PERMISSION_DENIED", http.StatusNotFound: "NOT_FOUND",
	http.StatusMethodNotAllowed: "UNIMPLEMENTED", http.StatusRequestURITooLong: "INVALID_ARGUMENT", http.StatusServiceUnavailable: "UNAVAILABLE",
	http.StatusInternalServerError: "INTERNAL",
}

// maxURL is the most bytes of a URL: 1,000 prefixes take 26,000.
const maxURL = 32 << 10

// ServeHTTP implements http.Handler. It has the four methods of version 5 that a client
// for hosts needs, and nothing else.
func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	m, found := methodOf(r.URL.Path)
	if _, advisory := h.provider(); advisory != "" {
		w.Header().Set(protocol.AdvisoryHeader, advisory)
	}
	counted := &countingWriter{ResponseWriter: w, bytes: h.metrics.bytes}
	answer, failed := h.answer(m, found, counted, r)
	if failed != nil {
		h.metrics.requests.WithLabelValues(m.name, failed.outcome).Inc()
		if counted.begun {
			panic(http.ErrAbortHandler) // the documented way to break off an answer
		}
		failed.write(counted)
		return
	}
	h.metrics.requests.WithLabelValues(m.name, cmp.Or(answer.outcome, outcomeSuccess)).Inc()
	answer.write(counted, r)
}

// answer checks a request, from the cheapest check to the dearest, and answers it. The header
// of the answer may be sent before the rest.
func (h *handler) answer(m method, found bool, w *countingWriter, r *http.Request) (reply, *failure) {
	if len(r.RequestURI) > maxURL {
		return reply{}, &failure{code: http.StatusRequestURITooLong, outcome: outcomeInvalid, message: fmt.Sprintf("the URL has more than %d bytes", maxURL)}
	}
	// A browser says so of what pages ask for (W3C, Fetch Metadata): any page could spend the budget. Its own requests
	// have none.
	if site := r.Header.Get("Sec-Fetch-Site"); site != "" && site != "none" {
		return reply{}, &failure{code: http.StatusForbidden, outcome: outcomeInvalid, message: "web pages may not ask a relay"}
	}
	client, err := h.auth.client(r)
	if err != nil {
		h.denied.note(r.RemoteAddr)
		return reply{}, &failure{code: http.StatusForbidden, outcome: outcomeDenied, message: err.Error()}
	}
	h.metrics.clients.saw(client, time.Now())
	switch {
	case !found:
		return reply{}, &failure{code: http.StatusNotFound, outcome: outcomeInvalid, message: "this relay has no such method"}
	case r.Method != http.MethodGet:
		return reply{}, &failure{code: http.StatusMethodNotAllowed, outcome: outcomeInvalid, message: "this relay takes GET only"}
	case r.ContentLength != 0:
		return reply{}, invalid("a request has no body")
	}
	q, bad := m.parse(r.URL.RawQuery)
	if bad != nil {
		return reply{}, bad
	}
	q.begin, q.client, q.stored = w.begin, client, r.Header.Get(protocol.AsStoredHeader) == "?1"
	if m.name == search.name {
		defer h.announce(w.Header(), client) // what is left after it
	}
	return m.answer(h, r, client, q)
}

// write sends the failure as Google's servers do ("Errors": the object error).
func (f *failure) write(w http.ResponseWriter) {
	type object struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
		Status  string `json:"status"`
	}
	body, err := json.Marshal(map[string]object{"error": {f.code, f.message, statusWords[f.code]}})
	if err != nil {
		body = []byte("{}")
	}
	header := w.Header()
	header.Set("Content-Type", "application/json; charset=UTF-8")
	header.Set("Content-Length", strconv.Itoa(len(body)))
	header.Set("Cache-Control", "no-store")
	if f.retryAfter > 0 {
		header.Set("Retry-After", strconv.Itoa(int(math.Ceil(f.retryAfter.Seconds()))))
	}
	if f.unanswered != "" {
		header.Set(protocol.UnansweredHeader, f.unanswered)
	}
	if f.lists != "" {
		header.Set(protocol.ListsHeader, f.lists)
	}
	if f.code == http.StatusMethodNotAllowed {
		header.Set("Allow", http.MethodGet)
	}
	w.WriteHeader(f.code)
	_, _ = w.Write(body)
}

// setReplyHeader sets what all replies have.
func setReplyHeader(header http.Header) {
	header.Set("Content-Type", "application/x-protobuf")
	header.Set("Cache-Control", "no-store") // the client has a cache of its own, by the rules of version 5
	header.Set("Vary", "Accept-Encoding")
}

// minCompressed is the size from which compression is worth its time.
const minCompressed = 1 << 10

// write sends the reply. An error means that the client has gone away.
func (p reply) write(w http.ResponseWriter, r *http.Request) {
	header := w.Header()
	setReplyHeader(header)
	if p.unanswered != "" {
		header.Set(protocol.UnansweredHeader, p.unanswered)
	}
	if p.compress && p.size() >= minCompressed && acceptsGzip(r) {
		header.Set("Content-Encoding", "gzip")
		z := gzip.NewWriter(w)
		for _, part := range p.parts {
			_, _ = z.Write(part)
		}
		_ = z.Close()
		return
	}
	header.Set("Content-Length", strconv.Itoa(p.size()))
	for _, part := range p.parts {
		if _, err := w.Write(part); err != nil {
			return
		}
	}
}

// acceptsGzip reports whether the client takes gzip (RFC 9110 section 12.5.3).
func acceptsGzip(r *http.Request) bool {
	for _, header := range r.Header.Values("Accept-Encoding") {
		for coding := range strings.SplitSeq(header, ",") {
			name, weight, _ := strings.Cut(coding, ";")
			refused := slices.Contains([]string{"q=0", "q=0.0", "q=0.00", "q=0.000"}, strings.ReplaceAll(strings.TrimSpace(weight), " ", ""))
			if strings.EqualFold(strings.TrimSpace(name), "gzip") && !refused {
				return true
			}
		}
	}
	return false
}
