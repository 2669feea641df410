package protocoltest

import (
	"bytes"
	"fmt"
	"net/http"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol/pb/sbv4"
)

// SetFindWait sets the minimum_wait_duration of later answers of fullHashes.find;
// 0, as at the start, leaves it out.
func (s *Server) SetFindWait(d time.Duration) { s.locked(func() { s.v4.findWait = d }) }

// found is what a client may keep of an answer of fullHashes.find.
type found struct {
	wait        time.Duration            // minimum wait of the method
	negativeFor time.Duration            // of every prefix asked for
	positiveFor map[string]time.Duration // by full hash
}

// refuseFind refuses hashes that fullHashes.find does not take.
func (s *Server) refuseFind(q *query) (status int, why string) {
	if len(q.names) == 0 {
		return http.StatusBadRequest, "no list named"
	}
	if len(q.prefixes) > maxFindEntries || !legalEntries(q.prefixes) {
		return http.StatusBadRequest, fmt.Sprintf("1 to %d hashes of %d to %d bytes expected", maxFindEntries, minEntryBytes, maxEntryBytes)
	}
	return 0, ""
}

// findAnswer returns the answer of fullHashes.find. A hash matches in each list
// asked about that has its threat type; whether the list holds it does not matter.
func (s *Server) findAnswer(q *query, f *Fault, a *reply) (proto.Message, error) {
	m := &sbv4.FindFullHashesResponse{}
	know := found{wait: s.v4.findWait, negativeFor: max(s.negativeFor, 0), positiveFor: map[string]time.Duration{}}
	for _, h := range s.search(q.prefixes).FullHashes {
		for _, detail := range h.FullHashDetails {
			for _, name := range q.names {
				if tripleOf(name).threat != sbv4.ThreatType(detail.ThreatType) {
					continue
				}
				match := s.match(h.FullHash, name)
				same := func(m *sbv4.ThreatMatch) bool { return proto.Equal(m, match) }
				if !slices.ContainsFunc(m.Matches, same) {
					m.Matches = append(m.Matches, match)
				}
				know.positiveFor[string(h.FullHash)] = max(s.cacheFor, 0)
			}
		}
	}
	if f.ShortHash {
		short := append(bytes.Clone(q.prefixes[0]), make([]byte, 31)...)[:31]
		m.Matches = append(m.Matches, s.match(short, q.names[0]))
	}
	if know.wait > 0 {
		m.MinimumWaitDuration = durationpb.New(know.wait)
	}
	if s.negativeFor >= 0 {
		m.NegativeCacheDuration = durationpb.New(s.negativeFor)
	}
	a.own = know
	return m, nil
}

// match returns one match of a list.
func (s *Server) match(hash []byte, list string) *sbv4.ThreatMatch {
	t := tripleOf(list)
	m := &sbv4.ThreatMatch{
		ThreatType: t.threat, PlatformType: t.platform, ThreatEntryType: t.entry,
		Threat: &sbv4.ThreatEntry{Hash: bytes.Clone(hash)},
	}
	if s.cacheFor >= 0 {
		m.CacheDuration = durationpb.New(s.cacheFor)
	}
	return m
}
