package protocoltest

import (
	"bytes"
	"slices"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol/pb/sbv4"
)

// listUpdate is the answer of threatListUpdates.fetch about one list.
type listUpdate = sbv4.FetchThreatListUpdatesResponse_ListUpdateResponse

// SetFetchWait sets the minimum_wait_duration of later answers of
// threatListUpdates.fetch. With 0, as at the start, they carry the shortest of the
// waits of the lists asked for, see SetMinimumWait.
func (s *Server) SetFetchWait(d time.Duration) { s.locked(func() { s.fetchWait = d }) }

// SetRawRemovals makes the server send the removals of v4 and Web Risk as plain
// indices instead of Rice-coded ones.
func (s *Server) SetRawRemovals(on bool) { s.locked(func() { s.rawRemovals = on }) }

// OmitUnchanged makes the server leave lists in which nothing changed out of the
// answers of threatListUpdates.fetch: there may be fewer answers than requests
// (reference of the Update API).
func (s *Server) OmitUnchanged(on bool) { s.locked(func() { s.omitUnchanged = on }) }

// fetchAnswer returns the answer of threatListUpdates.fetch, all its lists known, and
// what it says about each list. The answers come in the reverse order of the
// requests, since only their types tell what they belong to.
func (s *Server) fetchAnswer(q *query, f *Fault) (*sbv4.FetchThreatListUpdatesResponse, []served) {
	m := &sbv4.FetchThreatListUpdatesResponse{}
	var updates []update
	for _, w := range q.wants {
		u := s.lists[w.list()].updateFrom(w.state, w.maxUpdate)
		u.setCodings(s, w.rice())
		updates = append(updates, u)
	}
	wait := s.waitAfter(updates)
	if wait > 0 {
		m.MinimumWaitDuration = durationpb.New(wait)
	}
	var says []served
	for _, u := range updates {
		say := served{name: u.list.name, wait: wait, version: u.target.id, entries: u.target.entries}
		say.spoilt = f.spoils(q, u.list.name)
		say.changed = !u.partial || u.changes()
		sameState := bytes.Equal(u.sent, u.target.id) // else there is a state to tell
		say.omitted = s.omitUnchanged && sameState && !say.changed && !say.spoilt && !f.breaksFrame(q)
		says = append(says, say)
		if say.omitted {
			continue
		}
		s.owners[string(u.target.id)] = u.list.name
		if u.checksum == nil {
			u.checksum = checksum(u.target.entries) // v4 has it in every answer
		}
		if say.spoilt {
			m.ListUpdateResponses = append(m.ListUpdateResponses, f.spoilV4(u))
		} else {
			m.ListUpdateResponses = append(m.ListUpdateResponses, u.response())
		}
	}
	slices.Reverse(m.ListUpdateResponses)
	f.spoilFetch(m)
	return m, says
}

// setCodings chooses how an update is written for a client that takes Rice coding or
// does not.
func (u *update) setCodings(s *Server, takesRice bool) {
	u.rice, u.riceRemovals = takesRice && !s.rawAdditions, takesRice && !s.rawRemovals
}

// waitAfter returns the minimum wait after an answer, which is one for the whole
// method ("Request Frequency"): none while the rest of a list may be fetched.
func (s *Server) waitAfter(updates []update) time.Duration {
	halfway := func(u update) bool { return u.halfway }
	if slices.ContainsFunc(updates, halfway) {
		return 0
	}
	if s.fetchWait > 0 {
		return s.fetchWait
	}
	return slices.MinFunc(updates, func(a, b update) int { return int(a.wait - b.wait) }).wait
}

// response returns the update as v4 puts it on the wire.
func (u *update) response() *listUpdate {
	t := tripleOf(u.list.name)
	m := &listUpdate{
		ThreatType: t.threat, PlatformType: t.platform, ThreatEntryType: t.entry,
		ResponseType:   sbv4.FetchThreatListUpdatesResponse_ListUpdateResponse_FULL_UPDATE,
		Additions:      entrySets(u.additions, u.rice),
		Removals:       removalSets(u.removals, u.riceRemovals),
		NewClientState: u.target.id,
		Checksum:       &sbv4.Checksum{Sha256: u.checksum},
	}
	if u.partial {
		m.ResponseType = sbv4.FetchThreatListUpdatesResponse_ListUpdateResponse_PARTIAL_UPDATE
	}
	return m
}

// threatLists returns the answer of threatLists.list.
func (s *Server) threatLists() *sbv4.ListThreatListsResponse {
	m := &sbv4.ListThreatListsResponse{}
	for _, known := range triples {
		if !s.published(known.name) {
			continue
		}
		m.ThreatLists = append(m.ThreatLists, &sbv4.ThreatListDescriptor{
			ThreatType: known.threat, PlatformType: known.platform, ThreatEntryType: known.entry,
		})
	}
	return m
}
