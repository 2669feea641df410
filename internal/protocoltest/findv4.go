package protocoltest

import (
	"bytes"
	"fmt"
	"maps"
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

// applyTime is how long a client may take until it sends the state of an answer
// that it has read: it must check the list and wait for a disk first, which takes seconds on a
// busy machine. The bound is this project's own choice, not a rule of Google's.
const applyTime = time.Minute

// ruleCacheV4 is the rule of judgeKnown.
const ruleCacheV4 = "Caching"

// judgeFind judges a request of fullHashes.find.
func (r *referee) judgeFind(q *query, now time.Time, owners map[string]string) {
	b := &r.backoffs.v4.finds
	switch {
	case now.Before(b.notBefore):
		r.violation(ruleFrequency+", back-off", "fullHashes.find asked %s, after %d failures in a row",
			tooEarly(now, b.notBefore), b.failures)
	case now.Before(r.v4.clocks.findWait):
		r.violation(ruleFrequency+", minimum wait", "fullHashes.find asked %s", tooEarly(now, r.v4.clocks.findWait))
	}
	distinct := unique(q.prefixes)
	if q.undecoded == "" {
		r.judgeEntries(q, distinct)
		r.judgeThreatInfo(q)
		r.judgeStates(q.versions, now, owners)
	}
	r.judgeKnown(ruleCacheV4, &r.v4.finds, distinct, now)
	r.v4.finds.begin(distinct)
}

// judgeEntries judges number and form of the hashes: each must be one that the
// client was given, as long as it was given.
func (r *referee) judgeEntries(q *query, distinct []string) {
	const rule = "Update API, threat entries"
	if len(q.prefixes) == 0 || len(q.prefixes) > maxFindEntries {
		r.violation(rule, "%d hashes asked for, want 1 to %d", len(q.prefixes), maxFindEntries)
	}
	if twice := len(q.prefixes) - len(distinct); twice > 0 {
		r.violation(rule, "%d hashes are duplicates", twice)
	}
	unknown := slices.DeleteFunc(slices.Clone(distinct), func(hash string) bool { return r.given(q.names, hash) })
	if len(unknown) > 0 && len(q.names) > 0 {
		r.violation(rule, "%d hashes are no entries of the lists %q as they were served, in their length; the first is %x",
			len(unknown), q.names, unknown[0])
	}
}

// judgeThreatInfo judges the types asked about: each value once, and none that adds
// no list.
func (r *referee) judgeThreatInfo(q *query) {
	const rule = "Update API, threat info"
	var ofLists sbv4.ThreatInfo
	for _, name := range q.names {
		t := tripleOf(name)
		ofLists.ThreatTypes = append(ofLists.ThreatTypes, t.threat)
		ofLists.PlatformTypes = append(ofLists.PlatformTypes, t.platform)
		ofLists.ThreatEntryTypes = append(ofLists.ThreatEntryTypes, t.entry)
	}
	asked := q.find().ThreatInfo
	if !sameValues(asked.GetThreatTypes(), ofLists.ThreatTypes) ||
		!sameValues(asked.GetPlatformTypes(), ofLists.PlatformTypes) ||
		!sameValues(asked.GetThreatEntryTypes(), ofLists.ThreatEntryTypes) {
		r.violation(rule, "asked about %v, %v, %v, want each type of some lists once; they stand for lists %q",
			asked.GetThreatTypes(), asked.GetPlatformTypes(), asked.GetThreatEntryTypes(), q.names)
	}
}

// judgeStates judges the client states: the one of each list that is held.
func (r *referee) judgeStates(states [][]byte, now time.Time, owners map[string]string) {
	const rule = "Update API, client states"
	sent := map[string]bool{}
	for _, state := range states {
		owner, known := owners[string(state)]
		switch {
		case !known:
			r.violation(rule, "the state %x was never served", state)
		case sent[owner]:
			r.violation(rule, "more than one state was sent for list %q", owner)
		case !r.state(owner).mayHold(state, now):
			r.violation(rule, "list %q: the state %x was sent, want the newest good one, %x", owner, state, r.state(owner).newest)
		}
		sent[owner] = true
	}
	for _, name := range slices.Sorted(maps.Keys(r.lists)) {
		if !sent[name] && tripleOf(name).specified() && r.lists[name].mustHold(now) {
			r.violation(rule, "list %q: no state was sent, want %x", name, r.lists[name].newest)
		}
	}
}

// mayHold reports whether the client may hold this state: the newest, for a moment
// the one before, and after a start any.
func (l *listState) mayHold(state []byte, now time.Time) bool {
	switch {
	case !l.good[string(state)]:
		return false
	case l.unsure || bytes.Equal(state, l.newest):
		return true
	}
	return l.applying(now) && (l.loose || bytes.Equal(state, l.older))
}

// mustHold reports whether the client must hold some state. When the last answer
// was bad it may have dropped the state and kept the entries.
func (l *listState) mustHold(now time.Time) bool {
	return l.newest != nil && !l.restarted && !l.dropped && !(l.loose && l.applying(now))
}

// applying reports whether the client may still be busy with the last answer.
func (l *listState) applying(now time.Time) bool { return now.Before(l.since.Add(applyTime)) }

// learnFind takes in the outcome of a request of fullHashes.find.
func (r *referee) learnFind(x *exchange, how outcome, at time.Time) {
	asked := unique(x.query.prefixes)
	r.v4.finds.end(asked)
	switch how {
	case failed:
		r.before = r.backoffs
		r.backoffs.v4.finds.fail(at)
		r.backoffs.v4.finds.notBefore = x.retryAt(r.backoffs.v4.finds.notBefore, at)
		if know, ok := x.reply.own.(found); ok && x.reply.refused && x.note.Status != 0 {
			r.v4.clocks.findWait = later(r.v4.clocks.findWait, at, know.wait)
		}
	case received:
		// One that was under way when another failed does not end the wait.
		if !at.Before(r.backoffs.v4.finds.notBefore) {
			r.backoffs.v4.finds = backoff{}
		}
		know := x.reply.own.(found)
		r.v4.clocks.findWait = later(r.v4.clocks.findWait, at, know.wait)
		r.v4.finds.learn(asked, at, know.negativeFor)
		for hash, life := range know.positiveFor {
			r.v4.finds.positive[hash] = at.Add(life)
		}
	}
}
