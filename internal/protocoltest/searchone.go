package protocoltest

import (
	"bytes"
	"crypto/sha256"
	"maps"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol/pb/wrv1"
)

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
	expires, negative := expiry(now, s.cacheFor), expiry(now, s.negativeFor)
	expires = f.spoilExpiry(expires, now)
	negative = f.spoilNegativeExpiry(negative, now)
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
