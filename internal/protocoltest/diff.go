package protocoltest

import (
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol/pb/sbv4"
	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol/pb/wrv1"
)

// SetRawAdditions makes the server of v4 and Web Risk send all additions raw, even if
// the client takes Rice coding.
func (s *Server) SetRawAdditions(on bool) { s.locked(func() { s.rawAdditions = on }) }

// diffAnswer returns the answer of threatLists.computeDiff, its list known, and what it
// says about the list.
func (s *Server) diffAnswer(q *query, f *Fault) (*wrv1.ComputeThreatListDiffResponse, []served) {
	name := q.names[0]
	var token []byte
	if len(q.versions) > 0 {
		token = q.versions[0]
	}
	u := s.lists[name].updateFrom(versionOf(token), q.maxUpdate)
	u.setCodings(s, takesRice(q.compressions))
	u.target.id = tokenOf(u.target.id)
	s.tokens[string(u.target.id)] = name
	if u.checksum == nil {
		u.checksum = checksum(u.target.entries) // Web Risk has it in every answer, as v4
	}
	say := served{
		name: name, spoilt: f.spoils(q, name), version: u.target.id,
		changed: !u.partial || u.changes(), entries: u.target.entries,
		next: f.spoilNextDiff(nextDiff(u.wait)),
	}
	list := u.response()
	if say.spoilt {
		list = f.spoilV4(u)
	}
	m := diffResponse(list)
	if !say.next.IsZero() {
		m.RecommendedNextDiff = timestamppb.New(say.next)
	}
	return m, []served{say}
}

// nextDiff returns the recommended_next_diff after a wait, zero if there is none:
// then "clients may update as soon as they want" (webrisk.proto).
func nextDiff(wait time.Duration) time.Time {
	if wait <= 0 {
		return time.Time{}
	}
	return time.Now().Add(wait)
}

// diffResponse returns the answer of v4 about a list as Web Risk writes it: response
// types have the same numbers, and sets have no compression type.
func diffResponse(list *listUpdate) *wrv1.ComputeThreatListDiffResponse {
	m := &wrv1.ComputeThreatListDiffResponse{
		ResponseType:    wrv1.ComputeThreatListDiffResponse_ResponseType(list.ResponseType),
		NewVersionToken: list.NewClientState,
	}
	if list.Checksum != nil {
		m.Checksum = &wrv1.ComputeThreatListDiffResponse_Checksum{Sha256: list.Checksum.Sha256}
	}
	for _, set := range list.Additions {
		if m.Additions == nil {
			m.Additions = &wrv1.ThreatEntryAdditions{}
		}
		if set.RiceHashes != nil {
			m.Additions.RiceHashes = riskRice(set.RiceHashes)
		}
		if raw := set.RawHashes; raw != nil {
			m.Additions.RawHashes = append(m.Additions.RawHashes, &wrv1.RawHashes{PrefixSize: raw.PrefixSize, RawHashes: raw.RawHashes})
		}
	}
	for _, set := range list.Removals {
		m.Removals = &wrv1.ThreatEntryRemovals{RiceIndices: riskRice(set.RiceIndices)}
		if set.RawIndices != nil {
			m.Removals.RawIndices = &wrv1.RawIndices{Indices: set.RawIndices.Indices}
		}
	}
	return m
}

// riskRice returns a Rice coding of v4 as Web Risk writes it.
func riskRice(rice *sbv4.RiceDeltaEncoding) *wrv1.RiceDeltaEncoding {
	if rice == nil {
		return nil
	}
	return &wrv1.RiceDeltaEncoding{
		FirstValue: rice.FirstValue, RiceParameter: rice.RiceParameter,
		EntryCount: rice.NumEntries, EncodedData: rice.EncodedData,
	}
}
