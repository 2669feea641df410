package protocoltest

import (
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol/pb/sbv4"
	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol/pb/sbv5"
	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol/pb/wrv1"
)

// Methods of the v5 service, as Request.Method and Break name them.
const (
	methodBatchGet = "batchGet" // /v5/hashLists:batchGet
	methodGet      = "get"      // /v5/hashList/{name}
	methodList     = "list"     // /v5/hashLists
	methodSearch   = "search"   // /v5/hashes:search; asked for by name, searchOne of Web Risk too

	// methodUpdate stands for all methods that fetch the contents of lists:
	// batchGet, get, fetch of v4, and computeDiff of Web Risk.
	methodUpdate = "update"
)

// minUpdateEntries is the smallest sizeConstraints.maxUpdateEntries except 0.
const minUpdateEntries = 1024

// query is a request as the server understands it.
type query struct {
	method      string   // empty: unknown path
	names       []string // of lists; in v4 a text like a triple if there is no such list
	versions    [][]byte
	prefixes    [][]byte
	maxUpdate   int // 0: no limit; in v4 the greatest
	maxDatabase int // as maxUpdate
	pageSize    int
	pageToken   string
	json        bool   // the client asks for JSON
	undecoded   string // what could not be decoded: a parameter that is not base64, or "body"
	badRequest  string // why the answer is 400; empty: well formed
	body        []byte

	// The Update API v4 only.
	client  *sbv4.ClientInfo
	wants   []wanted         // of a fetch, one for each of names
	threats *sbv4.ThreatInfo // of find

	// Web Risk only.
	risks        []wrv1.ThreatType // asked about
	unknownTypes []string          // threat types that do not exist
	compressions []sbv4.CompressionType
}

// updatesLists reports whether the request fetches list contents.
func (q *query) updatesLists() bool {
	return q.method == methodBatchGet || q.method == methodGet || q.method == methodFetch || q.method == methodDiff
}

// searches reports whether the request searches full hashes.
func (q *query) searches() bool {
	return q.method == methodSearch || q.method == methodFind || q.method == methodSearchOne
}

// is reports whether a method, or what stands for several, names that of the
// request. "" stands for all.
func (q *query) is(method string) bool {
	return method == "" || method == q.method || method == methodUpdate && q.updatesLists() ||
		method == methodSearch && q.method == methodSearchOne
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
func (q *query) verb() string {
	if q.method == methodFetch || q.method == methodFind {
		return http.MethodPost
	}
	return http.MethodGet
}

// parseQuery never fails: what cannot be understood is noted in badRequest.
func parseQuery(r *http.Request) query {
	values, err := url.ParseQuery(r.URL.RawQuery)
	q := query{json: values.Get("alt") == "json", pageToken: values.Get("pageToken"), body: readBody(r)}
	if err != nil {
		q.badRequest = "query cannot be parsed"
	}
	q.setMethod(r.URL.Path, values["names"])
	if q.v4() {
		q.parseBody()
		return q
	}
	if q.webRisk() {
		q.parseWebRisk(values, r.Header)
		return q
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
	return q
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

// setMethod finds the method of a path; names count for batchGet only.
func (q *query) setMethod(path string, names []string) {
	switch path {
	case "/v5/hashLists:batchGet":
		q.method, q.names = methodBatchGet, names
	case "/v5/hashLists":
		q.method = methodList
	case "/v5/hashes:search":
		q.method = methodSearch
	case "/v4/threatListUpdates:fetch":
		q.method = methodFetch
	case "/v4/fullHashes:find":
		q.method = methodFind
	case "/v4/threatLists":
		q.method = methodThreatLists
	case webRiskPath + "threatLists:computeDiff":
		q.method = methodDiff
	case webRiskPath + "hashes:search":
		q.method = methodSearchOne
	default:
		name, found := strings.CutPrefix(path, "/v5/hashList/")
		if found && name != "" && !strings.Contains(name, "/") {
			q.method, q.names = methodGet, []string{name}
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
