package protocoltest

import (
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol/pb/wrv1"
)

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
	u := s.lists[list].updateFrom(sent, maxEntries)
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
