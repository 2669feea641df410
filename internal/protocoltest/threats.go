package protocoltest

import (
	"bytes"
	"crypto/sha256"
	"slices"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol/pb/sbv5"
)

// ThreatDetail is one threat type with its attributes, as hashes.search tells it.
type ThreatDetail = sbv5.FullHash_FullHashDetail

// AddThreat makes hashes.search confirm an expression such as "evil.example.com/",
// by way of every service; only v5 knows attributes. Further calls for the same expression add further details.
func (s *Server) AddThreat(expression string, threat sbv5.ThreatType, attributes ...sbv5.ThreatAttribute) {
	hash := sha256.Sum256([]byte(expression))
	s.AddFullHash(hash[:], &ThreatDetail{ThreatType: threat, Attributes: attributes})
}

// RemoveThreat takes back all that AddThreat and AddExtendedThreat told about an expression.
func (s *Server) RemoveThreat(expression string) {
	hash := sha256.Sum256([]byte(expression))
	s.locked(func() {
		delete(s.threats, string(hash[:]))
		delete(s.extended, string(hash[:]))
	})
}

// AddFullHash adds a raw entry, which is answered to every prefix it begins with.
// The hash need not have 32 bytes, so that malformed answers can be made.
func (s *Server) AddFullHash(hash []byte, details ...*ThreatDetail) {
	s.locked(func() {
		known := s.threats[string(hash)]
		if known == nil {
			known = &sbv5.FullHash{FullHash: bytes.Clone(hash)}
			s.threats[string(hash)] = known
		}
		known.FullHashDetails = append(known.FullHashDetails, details...)
	})
}

// SetCacheDuration sets the cache_duration of later answers of searches, or of each match
// in them, 300 seconds at the start; in Web Risk expire_time is so much later than the
// answer. A negative one leaves the field out.
func (s *Server) SetCacheDuration(d time.Duration) { s.locked(func() { s.cacheFor = d }) }

// search returns the answer of hashes.search for some prefixes, ordered by hash.
func (s *Server) search(prefixes [][]byte) *sbv5.SearchHashesResponse {
	m := &sbv5.SearchHashesResponse{}
	var found []string
	for hash := range s.threats {
		if slices.ContainsFunc(prefixes, func(prefix []byte) bool { return matches([]byte(hash), prefix) }) {
			found = append(found, hash)
		}
	}
	slices.Sort(found) // after the search: a flood makes thousands of them a second
	for _, hash := range found {
		m.FullHashes = append(m.FullHashes, s.threats[hash])
	}
	if s.cacheFor >= 0 {
		m.CacheDuration = durationpb.New(s.cacheFor)
	}
	return m
}

// matches reports whether hash, which may be malformed and shorter than prefix,
// belongs to prefix.
func matches(hash, prefix []byte) bool {
	return bytes.HasPrefix(hash, prefix) || bytes.HasPrefix(prefix, hash)
}
