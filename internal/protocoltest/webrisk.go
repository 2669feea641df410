package protocoltest

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"maps"
	"math"
	"math/bits"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol/pb/sbv5"
	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol/pb/wrv1"
)

// extendedList is a list that only Web Risk has.
const extendedList = "se-ext-4b"

// riskLists are the lists that Web Risk has, by the names they have here. The threat
// types of Safe Browsing have other numbers: 4 is another type there.
var riskLists = []struct {
	name   string
	risk   wrv1.ThreatType
	threat sbv5.ThreatType // unspecified if Safe Browsing has none
}{
	{"se-4b", wrv1.ThreatType_SOCIAL_ENGINEERING, sbv5.ThreatType_SOCIAL_ENGINEERING},
	{"mw-4b", wrv1.ThreatType_MALWARE, sbv5.ThreatType_MALWARE},
	{"uws-4b", wrv1.ThreatType_UNWANTED_SOFTWARE, sbv5.ThreatType_UNWANTED_SOFTWARE},
	{extendedList, wrv1.ThreatType_SOCIAL_ENGINEERING_EXTENDED_COVERAGE, sbv5.ThreatType_THREAT_TYPE_UNSPECIFIED},
}

// riskList returns the name of the list with this threat type, or a text that is no
// list's name.
func riskList(risk wrv1.ThreatType) string {
	for _, l := range riskLists {
		if l.risk == risk {
			return l.name
		}
	}
	return risk.String()
}

// riskOf returns the threat type of Web Risk that means the same. A number that Safe
// Browsing does not know stays as it is: clients must drop unknown types. The result
// is unspecified for a threat that Web Risk has no list of.
func riskOf(threat sbv5.ThreatType) wrv1.ThreatType {
	if _, known := sbv5.ThreatType_name[int32(threat)]; !known {
		return wrv1.ThreatType(threat)
	}
	for _, l := range riskLists {
		if l.threat == threat {
			return l.risk
		}
	}
	return wrv1.ThreatType_THREAT_TYPE_UNSPECIFIED
}

// tokenTag begins every version token, so that no version of Safe Browsing is one:
// the two services do not know each other's. It is "++++" in standard base64.
var tokenTag = []byte{0xfb, 0xef, 0xbe}

// tokenOf returns the version token of a version.
func tokenOf(id []byte) []byte { return append(bytes.Clone(tokenTag), id...) }

// versionOf is the reverse of tokenOf. The result for another text is no version.
func versionOf(token []byte) []byte {
	if len(token) == 0 {
		return nil
	}
	if id, ours := bytes.CutPrefix(token, tokenTag); ours {
		return id
	}
	return tokenOf(token)
}

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

// diffMessage is the answer of threatLists.computeDiff.
type diffMessage = wrv1.ComputeThreatListDiffResponse

// SetRawAdditions makes the server send all additions raw, even if the client takes
// Rice coding. It does not hold for v5, which knows no raw ones.
func (s *Server) SetRawAdditions(on bool) { s.locked(func() { s.rawAdditions = on }) }

// SetRawRemovals is SetRawAdditions for removals: they are plain indices.
func (s *Server) SetRawRemovals(on bool) { s.locked(func() { s.rawRemovals = on }) }

// diffAnswer returns the answer of threatLists.computeDiff, its list known, and notes
// what it says about the list.
func (s *Server) diffAnswer(q *query, f *Fault, a *reply) (proto.Message, error) {
	name := q.names[0]
	var token []byte
	if len(q.versions) > 0 {
		token = q.versions[0]
	}
	u := s.diffTo(name, versionOf(token), q.maxUpdate, takesRice(q.compressions))
	u.target.id = tokenOf(u.target.id)
	s.tokens[string(u.target.id)] = name
	say := served{
		name: name, spoilt: f.spoils(q, name), version: u.target.id,
		changed: !u.partial || u.changes(), entries: u.target.entries,
		next: f.spoilNextDiff(nextDiff(u.wait)),
	}
	a.served = []served{say}
	m := u.diff()
	if say.spoilt {
		m = f.spoilDiff(u)
	}
	m.RecommendedNextDiff = timestamp(say.next)
	return m, nil
}

// diffTo returns the update of a list for a client that sent this version and takes Rice
// coding or does not. It has a checksum even if nothing is new.
func (s *Server) diffTo(list string, sent []byte, maxEntries int, takesRice bool) update {
	l := s.lists[list]
	u := l.updateTo(l.newest(), sent, maxEntries)
	u.rice, u.riceRemovals = takesRice && !s.rawAdditions, takesRice && !s.rawRemovals
	if u.checksum == nil {
		u.checksum = checksum(u.target.entries)
	}
	return u
}

// nextDiff returns the recommended_next_diff after a wait, zero if there is none:
// then "clients may update as soon as they want" (webrisk.proto).
func nextDiff(wait time.Duration) time.Time {
	if wait <= 0 {
		return time.Time{}
	}
	return time.Now().Add(wait)
}

// diff returns the update as Web Risk puts it on the wire.
func (u *update) diff() *diffMessage {
	m := &diffMessage{
		ResponseType:    wrv1.ComputeThreatListDiffResponse_RESET,
		Additions:       additionsOf(u.additions, u.rice),
		Removals:        removalsOf(u.removals, u.riceRemovals),
		NewVersionToken: u.target.id,
		Checksum:        &wrv1.ComputeThreatListDiffResponse_Checksum{Sha256: u.checksum},
	}
	if u.partial {
		m.ResponseType = wrv1.ComputeThreatListDiffResponse_DIFF
	}
	return m
}

// timestamp returns a time as it is sent, where the zero time is absent.
func timestamp(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
}

// EncodeRiceWebRisk is EncodeRice32 for Web Risk, whose parameter is 2 to 28.
func EncodeRiceWebRisk(values []uint32) *wrv1.RiceDeltaEncoding {
	if len(values) == 0 {
		return nil
	}
	m := &wrv1.RiceDeltaEncoding{FirstValue: int64(values[0])}
	m.RiceParameter, m.EntryCount, m.EncodedData = encodeGaps32(values, minParameter, maxParameter)
	return m
}

// The Rice parameters that Web Risk allows (Web Risk, "Compression").
const (
	minParameter = 2
	maxParameter = 28
)

// additionsOf returns entries in order and of any lengths as additions, nil for none:
// prefixes of 4 bytes in Rice coding, unless that is not wanted, and of each other
// length raw.
func additionsOf(entries []string, rice bool) *wrv1.ThreatEntryAdditions {
	if len(entries) == 0 {
		return nil
	}
	byWidth := map[int][]string{}
	for _, e := range entries {
		byWidth[len(e)] = append(byWidth[len(e)], e)
	}
	m := &wrv1.ThreatEntryAdditions{}
	for _, width := range slices.Sorted(maps.Keys(byWidth)) {
		if width == 4 && rice {
			m.RiceHashes = EncodeRiceWebRisk(riceNumbers(byWidth[width]))
			continue
		}
		m.RawHashes = append(m.RawHashes, &wrv1.RawHashes{PrefixSize: int32(width), RawHashes: []byte(strings.Join(byWidth[width], ""))})
	}
	return m
}

// riceNumbers returns the entries of 4 bytes among some as the numbers that are coded.
// They are little-endian, and ordered as such (Web Risk, "Compression").
func riceNumbers(entries []string) (values []uint32) {
	for _, e := range entries {
		if len(e) == 4 {
			values = append(values, binary.LittleEndian.Uint32([]byte(e)))
		}
	}
	slices.Sort(values)
	return values
}

// removalsOf returns removals, which are indices into the old list, nil for none.
func removalsOf(indices []uint32, rice bool) *wrv1.ThreatEntryRemovals {
	if len(indices) == 0 {
		return nil
	}
	if rice {
		return &wrv1.ThreatEntryRemovals{RiceIndices: EncodeRiceWebRisk(indices)}
	}
	raw := &wrv1.RawIndices{}
	for _, i := range indices {
		raw.Indices = append(raw.Indices, int32(i))
	}
	return &wrv1.ThreatEntryRemovals{RawIndices: raw}
}

// AddExtendedThreat makes hashes.search of Web Risk confirm an expression as
// SOCIAL_ENGINEERING_EXTENDED_COVERAGE, a threat type that Safe Browsing lacks.
// RemoveThreat takes it back.
func (s *Server) AddExtendedThreat(expression string) {
	hash := sha256.Sum256([]byte(expression))
	s.locked(func() { s.extended[string(hash[:])] = true })
}

// knownUntil is what a client may keep of an answer of Web Risk's hashes.search. The
// zero time is the past.
type knownUntil struct {
	negative time.Time            // of the prefix asked for
	positive map[string]time.Time // by full hash
}

// SetNegativeCacheDuration sets how much later than the answer negative_expire_time is in
// later answers of Web Risk, 300 seconds at the start. A negative one leaves the field out.
// It holds for every service but v5, which has one cache_duration.
func (s *Server) SetNegativeCacheDuration(d time.Duration) {
	s.locked(func() { s.negativeFor = d })
}

// searchOneAnswer returns the answer of Web Risk's hashes.search about one prefix.
func (s *Server) searchOneAnswer(q *query, f *Fault, a *reply) (proto.Message, error) {
	now := time.Now()
	m := &wrv1.SearchHashesResponse{}
	expires := oddTime(expiry(now, s.cacheFor), now, f.NoExpireTime, f.PastExpireTime)
	negative := oddTime(expiry(now, s.negativeFor), now, f.NoNegativeExpireTime, f.PastNegativeExpireTime)
	know := knownUntil{negative: negative, positive: map[string]time.Time{}}
	found := s.searchRisks(q)
	for _, hash := range slices.Sorted(maps.Keys(found)) {
		m.Threats = append(m.Threats, &wrv1.SearchHashesResponse_ThreatHash{
			ThreatTypes: found[hash], Hash: []byte(hash), ExpireTime: timestamp(expires),
		})
		know.positive[hash] = expires
	}
	if f.ShortHash {
		short := append(bytes.Clone(q.prefixes[0]), make([]byte, 31)...)[:31]
		m.Threats = append(m.Threats, &wrv1.SearchHashesResponse_ThreatHash{ThreatTypes: q.risks[:1], Hash: short})
	}
	m.NegativeExpireTime = timestamp(negative)
	a.known = know
	return m, nil
}

// searchRisks returns the full hashes that are threats of the types asked about, and
// types that do not exist.
func (s *Server) searchRisks(q *query) map[string][]wrv1.ThreatType {
	found := map[string][]wrv1.ThreatType{}
	add := func(hash string, risk wrv1.ThreatType) {
		_, exists := wrv1.ThreatType_name[int32(risk)]
		if (slices.Contains(q.risks, risk) || !exists) && !slices.Contains(found[hash], risk) {
			found[hash] = append(found[hash], risk)
		}
	}
	for _, h := range s.search(q.prefixes).FullHashes {
		for _, detail := range h.FullHashDetails {
			add(string(h.FullHash), riskOf(detail.ThreatType))
		}
	}
	for hash := range s.extended {
		if matches([]byte(hash), q.prefixes[0]) {
			add(hash, wrv1.ThreatType_SOCIAL_ENGINEERING_EXTENDED_COVERAGE)
		}
	}
	return found
}

// expiry returns the end of a cached answer, the zero time if its duration is
// negative.
func expiry(now time.Time, d time.Duration) time.Time {
	if d < 0 {
		return time.Time{}
	}
	return now.Add(d)
}
