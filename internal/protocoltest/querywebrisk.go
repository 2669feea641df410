package protocoltest

import (
	"fmt"
	"math"
	"math/bits"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol/pb/wrv1"
)

// Methods of Web Risk v1, as Request.Method and Break name them.
const (
	methodDiff      = "computeDiff" // /v1/threatLists:computeDiff
	methodSearchOne = "searchOne"   // /v1/hashes:search
)

// webRiskPath begins the path of every method of Web Risk.
const webRiskPath = "/v1/"

// minConstraint is the smallest constraint except 0. There is no largest: Google's
// page "Update Constraints" recommends 2^24 although the schema names 2^20.
const minConstraint = 1 << 10

// riskService is Web Risk.
var riskService = &service{
	parse: (*query).parseWebRisk,
	shows: func(f *Fault, q *query) bool {
		return !f.notWebRisk() && (!f.oddNextDiff() || q.method == methodDiff) && (!f.oddExpiry() || q.method == methodSearchOne)
	},
	frame:   func(*Fault) bool { return false },
	content: func(f *Fault) bool { return f.breaksList() || f.breaksDiff() },
}

func init() {
	riskService.add(
		method{
			name: methodDiff, path: webRiskPath + "threatLists:computeDiff", updates: true,
			answer: (*Server).diffAnswer, judge: (*referee).judgeDiff, learn: (*referee).learnDiff,
		},
		method{
			name: methodSearchOne, path: webRiskPath + "hashes:search", searches: true, refuse: (*Server).refuseSearchOne,
			answer: (*Server).searchOneAnswer, judge: (*referee).judgeSearchOne, learn: (*referee).learnSearchOne,
		})
}

// webRisk reports whether the method is one of Web Risk.
func (q *query) webRisk() bool { return q.to().service == riskService }

// refuseSearchOne refuses threat types and prefixes that hashes.search does not take.
func (s *Server) refuseSearchOne(q *query) (status int, why string) {
	if len(q.risks) == 0 || len(q.prefixes) != 1 || !legalEntries(q.prefixes) {
		return http.StatusBadRequest, fmt.Sprintf("threat types and 1 hash prefix of %d to %d bytes expected", minEntryBytes, maxEntryBytes)
	}
	return 0, ""
}

// parseWebRisk understands the parameters of a Web Risk request.
func (q *query) parseWebRisk(values url.Values, header http.Header) {
	q.json = !asksProtobuf(values, header)
	switch q.method {
	case methodDiff:
		q.parseDiff(values)
	case methodSearchOne:
		q.risks = q.riskTypes("threatTypes", values["threatTypes"])
		for _, risk := range q.risks {
			if name := riskList(risk); !slices.Contains(q.names, name) {
				q.names = append(q.names, name)
			}
		}
		q.prefixes = q.decodeAll("hashPrefix", values["hashPrefix"])
	}
}

// parseDiff understands the parameters of threatLists.computeDiff.
func (q *query) parseDiff(values url.Values) {
	q.risks = q.riskTypes("threatType", values["threatType"])
	for _, risk := range q.risks {
		q.names = append(q.names, riskList(risk))
	}
	if len(values["threatType"]) > 1 || len(values["versionToken"]) > 1 {
		q.badRequest = "one threatType and at most one versionToken expected"
	}
	q.versions = q.decodeAll("versionToken", values["versionToken"])
	q.maxUpdate = q.number(values, "constraints.maxDiffEntries")
	q.maxDatabase = q.number(values, "constraints.maxDatabaseEntries")
	if !legalConstraint(q.maxUpdate) || !legalConstraint(q.maxDatabase) {
		q.badRequest = fmt.Sprintf("constraints must be 0 or a power of two from %d", minConstraint)
	}
	for _, text := range values["constraints.supportedCompressions"] {
		n, known := enumNumber(text, wrv1.CompressionType_value, wrv1.CompressionType_name)
		if !known {
			q.badRequest = "unknown compression type"
			continue
		}
		q.compressions = append(q.compressions, wrv1.CompressionType(n))
	}
}

// takesRice reports whether a client takes Rice coding.
func takesRice(compressions []wrv1.CompressionType) bool {
	return slices.Contains(compressions, wrv1.CompressionType_RICE)
}

// riskTypes reads threat types. Those it cannot read are noted in unknownTypes.
func (q *query) riskTypes(parameter string, texts []string) (types []wrv1.ThreatType) {
	for _, text := range texts {
		n, known := enumNumber(text, wrv1.ThreatType_value, wrv1.ThreatType_name)
		if !known {
			q.unknownTypes = append(q.unknownTypes, text)
			q.badRequest = parameter + " is unknown"
			continue
		}
		types = append(types, wrv1.ThreatType(n))
	}
	return types
}

// enumNumber reads the name or the number of an enum value, which must be known and
// not 0, as the JSON mapping of protobuf takes them.
func enumNumber(text string, numbers map[string]int32, names map[int32]string) (n int32, known bool) {
	n, named := numbers[text]
	if !named {
		parsed, err := strconv.ParseInt(text, 10, 32)
		if err != nil {
			return 0, false
		}
		n = int32(parsed)
	}
	_, known = names[n]
	return n, known && n != 0
}

// legalConstraint reports whether a limit of entries has a legal value.
func legalConstraint(n int) bool { return powerOfTwo(n, minConstraint, math.MaxInt32) }

// powerOfTwo reports whether n is 0 or a power of two from least to most.
func powerOfTwo(n, least, most int) bool {
	return n == 0 || n >= least && n <= most && bits.OnesCount(uint(n)) == 1
}

// asksProtobuf reports whether the client asks for protobuf instead of JSON, the
// default (cloud.google.com/apis/docs/system-parameters, alt).
func asksProtobuf(values url.Values, header http.Header) bool {
	if alt := values.Get("alt") + values.Get("$alt"); alt != "" {
		return alt == "proto"
	}
	return strings.Contains(header.Get("Accept"), "application/x-protobuf")
}
