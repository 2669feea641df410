package protocoltest

import (
	"bytes"
	"net/http"
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
	if f.NegativeWait {
		wait = 0 // it is not told
	}
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

// judgeFetch judges a request of threatListUpdates.fetch: its time, its lists and
// their states.
func (r *referee) judgeFetch(q *query, now time.Time, owners map[string]string) {
	early := r.judgeFetchTime(now)
	r.v4.fetching++
	wants := q.fetch().wants
	if len(wants) == 0 && q.undecoded == "" {
		r.violation("Update API, fetch", "no list asked for")
	}
	for i, name := range q.names {
		if r.judgeTwice(q.names, i) {
			continue
		}
		w := &wants[i]
		r.judgeWanted(name, w)
		r.judgeAlone(q, name, r.v4.clocks.list(name))
		if !early {
			r.judgeList(name, r.v4.clocks.list(name), now)
		}
		r.judgeState("state", r.lists, name, w.state, owners)
	}
}

// judgeFetchTime judges whether any list may be fetched now and reports whether it
// is too early. The waits hold for the method, not for single lists.
func (r *referee) judgeFetchTime(now time.Time) (early bool) {
	b := &r.backoffs.v4.fetches
	switch {
	case r.v4.fetching > 0:
		r.violation(ruleFrequency, "lists fetched at %s while another fetch is under way", stamp(now))
	case now.Before(b.notBefore):
		r.violation(ruleFrequency+", back-off", "lists fetched %s, after %d failed fetches in a row",
			tooEarly(now, b.notBefore), b.failures)
	case now.Before(r.v4.clocks.fetchWait):
		r.violation(ruleFrequency+", minimum wait", "lists fetched %s", tooEarly(now, r.v4.clocks.fetchWait))
	default:
		return false
	}
	return true
}

// judgeWanted judges the form of what a fetch says about one list.
func (r *referee) judgeWanted(name string, w *wanted) {
	if !w.specified() {
		r.violation("Update API, fetch", "list %q lacks one of its three types", name)
	}
	if !takesRice(w.compressions) || !slices.Contains(w.compressions, wrv1.CompressionType_RAW) {
		r.violation("Compression", "list %q is asked for with compressions %v, want RICE and RAW", name, w.compressions)
	}
	if !w.legalDatabase() {
		r.violation("Update Constraints", "list %q is asked for with max_database_entries %d, want 0 or a power of two from %d to %d",
			name, w.maxDatabase, minDatabaseEntries, maxDatabaseEntries)
	}
}

// fetchRequests are the list requests of v4.
func (r *referee) fetchRequests() listRequests {
	return listRequests{
		backoff: &r.backoffs.v4.fetches, state: r.state, clock: r.v4.clocks.list,
	}
}

// learnFetch takes in the outcome of a fetch.
func (r *referee) learnFetch(x *exchange, how outcome, at time.Time) {
	r.v4.fetching = max(0, r.v4.fetching-1)
	switch how {
	case failed:
		r.learnRefusal(x, at, r.fetchRequests())
		for _, s := range x.reply.served {
			if x.reply.refused && x.note.Status != 0 { // the wait is one for the whole method
				r.v4.clocks.fetchWait = later(r.v4.clocks.fetchWait, at, s.wait)
			}
		}
	case received:
		r.backoffs.v4.fetches = backoff{}
		changed := slices.ContainsFunc(x.reply.served, func(s served) bool { return s.changed || s.spoilt })
		for _, s := range x.reply.served {
			// A wait is one for the whole method, and so is the lack of one: what
			// makes one list fetched at once takes the others along.
			s.changed = changed
			r.state(s.name).learn(s, at)
			r.v4.clocks.list(s.name).learn(s, at)
			r.v4.clocks.fetchWait = later(r.v4.clocks.fetchWait, at, s.wait)
		}
	}
}

// judgeMessage judges a body of the Update API v4, whatever it asks for.
func (r *referee) judgeMessage(q *query, req *http.Request) {
	const rule = "Update API, request body"
	if got := req.Header.Get("Content-Type"); got != "application/x-protobuf" {
		r.violation(rule, "%s came with content type %q, want application/x-protobuf", q, got)
	}
	if q.undecoded != "" {
		r.violation(rule, "the body of %s is not the message of the method", q)
		return
	}
	if client := q.clientV4(); client.GetClientId() == "" || client.GetClientVersion() == "" {
		r.violation("Update API, client identity", "%s does not name its software in client_id %q and client_version %q",
			q, client.GetClientId(), client.GetClientVersion())
	}
}

// spoilV4 applies the content faults to an update and returns its message of v4.
func (f *Fault) spoilV4(u update) *listUpdate {
	if f.V4.NoCompression {
		u.ensureAdditions(4, 1)
	}
	m := u.list.responseV4(f.spoilDiff(u))
	if f.V4.NoCompression {
		for _, set := range m.Additions {
			set.CompressionType = sbv4.CompressionType_COMPRESSION_TYPE_UNSPECIFIED
		}
	}
	return m
}

// spoilFetch applies the faults that belong to no single list.
func (f *Fault) spoilFetch(m *sbv4.FetchThreatListUpdatesResponse) {
	if f.NegativeWait {
		m.MinimumWaitDuration = durationpb.New(-time.Second)
	}
	for _, answer := range m.ListUpdateResponses {
		t := triple{answer.ThreatType, answer.PlatformType, answer.ThreatEntryType}
		if f.List != "" && f.List != t.list() {
			continue
		}
		if f.WrongName {
			answer.PlatformType = sbv4.PlatformType_CHROME
		}
		if f.V4.TwoAnswers {
			m.ListUpdateResponses = append(m.ListUpdateResponses, proto.CloneOf(answer))
		}
	}
}

// FaultV4 are the faults that only answers of v4 can have.
type FaultV4 struct {
	TwoAnswers    bool // a second answer for a list
	NoCompression bool // additions of unspecified compression type
}

// shownBy reports whether the answer to a request has what the fault changes.
func (f FaultV4) shownBy(q *query) bool { return f == FaultV4{} || q.to().service == serviceV4 }

// ListFaultsV4 returns every fault that a client of threatListUpdates.fetch must
// survive, by name; for "slow" see ListFaults.
func ListFaultsV4() map[string]Fault {
	faults := ListFaultsWebRisk()
	delete(faults, "status 401") // v4 takes no access token
	faults["wrong types"] = Fault{WrongName: true}
	faults["two answers for one list"] = Fault{V4: FaultV4{TwoAnswers: true}}
	faults["negative minimum wait"] = Fault{NegativeWait: true}
	faults["no compression type"] = Fault{V4: FaultV4{NoCompression: true}}
	return faults
}
