package protocoltest

import (
	"bytes"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol/pb/sbv4"
	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol/pb/wrv1"
)

// listUpdate is the answer of threatListUpdates.fetch about one list.
type listUpdate = sbv4.FetchThreatListUpdatesResponse_ListUpdateResponse

// SetFetchWait sets the minimum_wait_duration of later answers of
// threatListUpdates.fetch. With 0, as at the start, they carry the shortest of the
// waits of the lists asked for, see SetMinimumWait.
func (s *Server) SetFetchWait(d time.Duration) { s.locked(func() { s.v4.fetchWait = d }) }

// OmitUnchanged makes the server leave lists in which nothing changed out of the
// answers of threatListUpdates.fetch: there may be fewer answers than requests
// (reference of the Update API).
func (s *Server) OmitUnchanged(on bool) { s.locked(func() { s.v4.omitUnchanged = on }) }

// fetchAnswer returns the answer of threatListUpdates.fetch, all its lists known, and
// notes what it says about each list. The answers come in the reverse order of the
// requests, since only their types tell what they belong to.
func (s *Server) fetchAnswer(q *query, f *Fault, a *reply) (proto.Message, error) {
	m := &sbv4.FetchThreatListUpdatesResponse{}
	var updates []update
	for _, w := range q.fetch().wants {
		updates = append(updates, s.diffTo(w.list(), w.state, w.maxUpdate, takesRice(w.compressions)))
	}
	wait := s.waitAfter(updates)
	if wait > 0 {
		m.MinimumWaitDuration = durationpb.New(wait)
	}
	for _, u := range updates {
		say := served{name: u.list.name, wait: wait, version: u.target.id, entries: u.target.entries}
		say.spoilt = f.spoils(q, u.list.name)
		say.changed = !u.partial || u.changes()
		sameState := bytes.Equal(u.sent, u.target.id) // else there is a state to tell
		say.omitted = s.v4.omitUnchanged && sameState && !say.changed && !say.spoilt && !f.breaksFrame(q)
		a.served = append(a.served, say)
		if say.omitted {
			continue
		}
		s.owners[string(u.target.id)] = u.list.name
		response := u.list.responseV4(u.diff())
		if say.spoilt {
			response = f.spoilV4(u)
		}
		m.ListUpdateResponses = append(m.ListUpdateResponses, response)
	}
	slices.Reverse(m.ListUpdateResponses)
	f.spoilFetch(m)
	return m, nil
}

// waitAfter returns the minimum wait after an answer, which is one for the whole
// method ("Request Frequency"): none while the rest of a list may be fetched.
func (s *Server) waitAfter(updates []update) time.Duration {
	halfway := func(u update) bool { return u.halfway }
	if slices.ContainsFunc(updates, halfway) {
		return 0
	}
	if s.v4.fetchWait > 0 {
		return s.v4.fetchWait
	}
	return slices.MinFunc(updates, func(a, b update) int { return int(a.wait - b.wait) }).wait
}

// responseV4 returns what Web Risk says about the list as v4 puts it on the wire: response
// types have the same numbers, and each set tells its compression type.
func (l *list) responseV4(diff *diffMessage) *listUpdate {
	t := tripleOf(l.name)
	m := &listUpdate{
		ThreatType: t.threat, PlatformType: t.platform, ThreatEntryType: t.entry,
		ResponseType:   sbv4.FetchThreatListUpdatesResponse_ListUpdateResponse_ResponseType(diff.ResponseType),
		NewClientState: diff.NewVersionToken,
	}
	if diff.Checksum != nil {
		m.Checksum = &sbv4.Checksum{Sha256: diff.Checksum.Sha256}
	}
	if rice := diff.GetAdditions().GetRiceHashes(); rice != nil {
		m.Additions = append(m.Additions, &sbv4.ThreatEntrySet{CompressionType: sbv4.CompressionType_RICE, RiceHashes: riceV4(rice)})
	}
	for _, raw := range diff.GetAdditions().GetRawHashes() {
		m.Additions = append(m.Additions, &sbv4.ThreatEntrySet{
			CompressionType: sbv4.CompressionType_RAW,
			RawHashes:       &sbv4.RawHashes{PrefixSize: raw.PrefixSize, RawHashes: raw.RawHashes},
		})
	}
	if rice := diff.GetRemovals().GetRiceIndices(); rice != nil {
		m.Removals = append(m.Removals, &sbv4.ThreatEntrySet{CompressionType: sbv4.CompressionType_RICE, RiceIndices: riceV4(rice)})
	}
	if raw := diff.GetRemovals().GetRawIndices(); raw != nil {
		m.Removals = append(m.Removals, &sbv4.ThreatEntrySet{CompressionType: sbv4.CompressionType_RAW, RawIndices: &sbv4.RawIndices{Indices: raw.Indices}})
	}
	return m
}

// riceV4 returns a Rice coding of Web Risk as v4 writes it.
func riceV4(rice *wrv1.RiceDeltaEncoding) *sbv4.RiceDeltaEncoding {
	return &sbv4.RiceDeltaEncoding{
		FirstValue: rice.FirstValue, RiceParameter: rice.RiceParameter,
		NumEntries: rice.EntryCount, EncodedData: rice.EncodedData,
	}
}

// threatLists returns the answer of threatLists.list.
func (s *Server) threatLists(*query, *Fault, *reply) (proto.Message, error) {
	m := &sbv4.ListThreatListsResponse{}
	for _, known := range triples {
		if !s.published(known.name) {
			continue
		}
		m.ThreatLists = append(m.ThreatLists, &sbv4.ThreatListDescriptor{
			ThreatType: known.threat, PlatformType: known.platform, ThreatEntryType: known.entry,
		})
	}
	return m, nil
}
