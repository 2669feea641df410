package protocoltest

import (
	"cmp"
	"encoding/base64"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol/pb/wrv1"
)

// methodUpdate stands for all methods that fetch the contents of lists.
const methodUpdate = "update"

// minUpdateEntries is the smallest sizeConstraints.maxUpdateEntries except 0.
const minUpdateEntries = 1024

// query is a request as the server understands it.
type query struct {
	method      string   // empty: unknown path
	names       []string // of lists; a text that is no list's name for one that the service lacks
	versions    [][]byte
	prefixes    [][]byte
	maxUpdate   int // 0: no limit; of several the greatest
	maxDatabase int // as maxUpdate
	pageSize    int
	pageToken   string
	json        bool   // the client asks for JSON
	undecoded   string // what could not be decoded: a parameter that is not base64, or "body"
	badRequest  string // why the answer is 400; empty: well formed
	body        []byte
	own         any // what only the service knows of it

	// Web Risk only.
	risks        []wrv1.ThreatType // asked about
	unknownTypes []string          // threat types that do not exist
	compressions []wrv1.CompressionType
}

// updatesLists reports whether the request fetches list contents.
func (q *query) updatesLists() bool { return q.to().updates }

// searches reports whether the request searches full hashes.
func (q *query) searches() bool { return q.to().searches }

// is reports whether a method, or what stands for several, names the one of the
// request. "" stands for all.
func (q *query) is(method string) bool {
	return method == "" || method == q.method || method == methodUpdate && q.updatesLists() ||
		method == methodSearch && q.searches()
}

// refusesOneList reports whether an answer with this status says no more than that
// the one list of the request cannot be had. About a batch it says nothing of the
// single lists: they are to be asked for by themselves.
func (q *query) refusesOneList(status int) bool {
	return q.updatesLists() && len(q.names) == 1 && refusesLists(status)
}

func refusesLists(status int) bool {
	return status == http.StatusBadRequest || status == http.StatusNotFound
}

// verb returns the HTTP method that the method of the service wants.
func (q *query) verb() string { return cmp.Or(q.to().verb, http.MethodGet) }

// parseQuery never fails: what cannot be understood is noted in badRequest.
func parseQuery(r *http.Request) query {
	values, err := url.ParseQuery(r.URL.RawQuery)
	q := query{json: values.Get("alt") == "json", pageToken: values.Get("pageToken"), body: readBody(r)}
	if err != nil {
		q.badRequest = "query cannot be parsed"
	}
	q.setMethod(r.URL.Path)
	q.to().service.parse(&q, values, r.Header)
	return q
}

// setMethod finds the method of a path, and the list that get has in it.
func (q *query) setMethod(path string) {
	name, found := strings.CutPrefix(path, getPath)
	if found && name != "" && !strings.Contains(name, "/") {
		q.method, q.names = methodGet, []string{name}
		return
	}
	for _, m := range methods {
		if m.path == path && m.name != methodGet {
			q.method = m.name
		}
	}
}

// decodeAll reads base64 in the standard or the URL-safe alphabet, padded or not:
// the JSON mapping of protobuf takes all four.
func (q *query) decodeAll(parameter string, texts []string) [][]byte {
	var decoded [][]byte
	for _, text := range texts {
		text = strings.NewReplacer("-", "+", "_", "/").Replace(strings.TrimRight(text, "="))
		b, err := base64.RawStdEncoding.DecodeString(text)
		if err != nil {
			q.undecoded, q.badRequest = parameter, parameter+" is not base64"
			continue
		}
		decoded = append(decoded, b)
	}
	return decoded
}

// number reads a count, 0 if absent.
func (q *query) number(values url.Values, parameter string) int {
	text := values.Get(parameter)
	if text == "" {
		return 0
	}
	n, err := strconv.ParseInt(text, 10, 32)
	if err != nil || n < 0 {
		q.badRequest = parameter + " is not a count"
		return 0
	}
	return int(n)
}

// maxBodyBytes is more than any request needs.
const maxBodyBytes = 1 << 20

// readBody reads what the request sends, as far as it arrives.
func readBody(r *http.Request) []byte {
	if r.Body == nil {
		return nil
	}
	body, _ := io.ReadAll(io.LimitReader(r.Body, maxBodyBytes))
	return body
}

// service is one of the protocols that the server speaks: what is the same for all its
// methods. Each is in files of its own, which add it to methods.
type service struct {
	// parse understands a request whose method is known. It never fails: what cannot be
	// understood is noted in badRequest.
	parse func(q *query, values url.Values, header http.Header)
	// shows reports whether the answer to a request has what a fault changes. Of such faults
	// frame reports whether it makes the client refuse a whole list answer that arrived well,
	// and content whether it spoils single lists.
	shows          func(f *Fault, q *query) bool
	frame, content func(f *Fault) bool
	// judgeBody judges the body of a POST request.
	judgeBody func(r *referee, q *query, req *http.Request)
}

// method is one method of a service. A function that is nil has nothing to do.
type method struct {
	name     string // as Request.Method and Break name it
	path     string
	verb     string // HTTP method; "": GET
	updates  bool   // fetches the contents of lists
	searches bool   // searches full hashes
	service  *service

	// refuse returns the status of a request that names known lists and gets no proper
	// answer, 0 if it gets one.
	refuse func(s *Server, q *query) (status int, why string)
	// answer returns the message of an answer and notes in a what it tells the client.
	answer func(s *Server, q *query, f *Fault, a *reply) (proto.Message, error)
	// judge judges whether a well-formed request may be made now, and learn takes in how it
	// ended. Owners tells the list of each version ever served.
	judge func(r *referee, q *query, now time.Time, owners map[string]string)
	learn func(r *referee, x *exchange, how outcome, at time.Time)
}

// methods are all methods by their names. It is filled at the start of the program and then
// only read.
var methods = map[string]*method{}

// unknownMethod stands for the method of an unknown path.
var unknownMethod = &method{service: v5}

// add makes methods known.
func (s *service) add(all ...method) {
	for _, m := range all {
		m.service = s
		methods[m.name] = &m
	}
}

// to returns the method that a request asks for.
func (q *query) to() *method {
	if m := methods[q.method]; m != nil {
		return m
	}
	return unknownMethod
}
