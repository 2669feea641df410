package lookup

import (
	"context"
	"slices"
	"strings"
	"time"
)

// PrefixAnswer is what the server knows about one prefix. It is for programs that answer
// other clients, as a relay does.
type PrefixAnswer struct {
	// Threats are the full hashes that begin with the prefix. Their TTL is without
	// meaning: TTL holds for them, too.
	Threats []ThreatHash
	TTL     time.Duration // how long the answer may still be cached; zero: use it once
	From    Origin
}

// Origin says where a PrefixAnswer comes from.
type Origin uint8

// The origins. The later ones cost more.
const (
	FromLists  Origin = iota // no list holds the prefix
	FromCache                // an answer was cached
	FromMerged               // a search was under way
	FromShared               // the Searcher knew the answer, see Answer.Earlier
	FromServer               // the server was asked
	numOrigins
)

// String returns the origin as metrics spell it.
func (o Origin) String() string {
	return [...]string{"unlisted", "cache", "merged", "redis", "upstream"}[o]
}

// Origins returns all origins.
func Origins() (all []Origin) {
	for o := range numOrigins {
		all = append(all, o)
	}
	return all
}

const (
	// transit is the most time from a PrefixAnswer to its use: a client drops an answer
	// that takes longer, see Config.Timeout. A threat must not be older than
	// maxVerdictAge then. The TTL of a threat is shorter by it, so that a client that
	// answers others itself, a relay behind a relay, ends with it when this one does.
	transit = 10 * time.Second
	// unlistedTTL is the TTL of an answer about a prefix that no list holds. It is short,
	// because the next update may bring the prefix.
	unlistedTTL = time.Minute
	// maxStored is the most entries of the lists that a search sends in place of the 4 bytes
	// that they begin with.
	maxStored = 30
)

// Search returns what the server knows about prefixes of 4 bytes, in their order. Like
// Confirm it uses the cache and shares searches. It asks the server only about prefixes
// that a list holds; with unlisted, or if the mode is not Local, about all. If one search
// fails, Search returns its error, or that of ctx if that ends first: an answer about
// some of the prefixes would make the others look safe. The searches run on, and the
// cache keeps their answers.
//
// Search calls admit, unless that is nil, at most once: with one search for each
// Config.PerSearch prefixes that the server must be asked about. If admit returns an error,
// none of them is sent.
//
// Search calls wait, unless that is nil, at most once: if it has to wait for the server. If wait
// returns false, Search returns ErrLimited at once; else it calls leave when it no longer waits.
func (c *Checker) Search(ctx context.Context, prefixes []Prefix, unlisted bool, admit AdmitAll, wait func() (leave func(), ok bool)) ([]PrefixAnswer, error) {
	lists := c.database.Lists()
	all := make([]prefixSearch, 0, len(prefixes))
	for _, p := range prefixes {
		all = append(all, c.prefixSearch(lists, p, unlisted || c.mode != Local))
	}
	if err := c.askFor(all, admit); err != nil {
		return nil, err
	}
	if wait != nil && slices.ContainsFunc(all, prefixSearch.underWay) {
		leave, ok := wait()
		if !ok {
			return nil, ErrLimited
		}
		defer leave()
	}
	answers := make([]PrefixAnswer, 0, len(all))
	for _, s := range all {
		answer, err := s.wait(ctx)
		if err != nil {
			return nil, err
		}
		answers = append(answers, answer)
	}
	return answers, nil
}

// prefixSearch is the part of a Search about one prefix.
type prefixSearch struct {
	listed   bool      // the server may be asked
	prefixes []Prefix  // to ask about; searches[i] is for prefixes[i]
	searches []*search // nil: none is needed
	from     Origin
}

// prefixSearch returns the prefixes that the server is asked about: p, or with asStored
// the entries of the lists that begin with it. With unlisted no list needs to hold p.
func (c *Checker) prefixSearch(lists []List, p Prefix, unlisted bool) prefixSearch {
	var stored []Prefix
	for i := range lists {
		if lists[i].LikelySafe {
			continue
		}
		for _, entry := range lists[i].Set.Under([minPrefix]byte([]byte(p)), maxStored+1) {
			stored = append(stored, Prefix(entry))
		}
	}
	s := prefixSearch{listed: len(stored) > 0 || unlisted, prefixes: []Prefix{p}}
	stored = shortest(stored)
	if c.asStored && len(stored) > 0 && len(stored) <= maxStored { // more cost less as their common prefix
		s.prefixes = stored
	}
	s.searches = make([]*search, len(s.prefixes))
	return s
}

// shortest returns the prefixes that begin with no other one, sorted. It changes all.
func shortest(all []Prefix) (kept []Prefix) {
	slices.Sort(all)
	for _, p := range all {
		if n := len(kept); n == 0 || !strings.HasPrefix(string(p), string(kept[n-1])) {
			kept = append(kept, p)
		}
	}
	return kept
}

// askFor sets the searches of all parts, with new ones where none will do.
func (c *Checker) askFor(all []prefixSearch, admit AdmitAll) error {
	c.mu.Lock()
	missing, closed := c.join(all), c.closed
	c.mu.Unlock()
	switch {
	case missing == 0:
		return nil
	case closed:
		return ErrClosed
	}
	searches := (missing + c.perSearch - 1) / c.perSearch
	refund, err := func() {}, error(nil)
	if admit != nil {
		if refund, err = admit(searches); err != nil { // without the lock: it may take its time
			return err
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	defer c.begin()
	missing, closed = c.join(all), c.closed
	for i := range all {
		if !closed {
			c.enqueueAll(&all[i], &searches, refund)
		}
	}
	for range searches { // others have begun them since
		refund()
	}
	if closed && missing > 0 {
		return ErrClosed
	}
	return nil
}

// join sets the searches of all parts where one has ended or is under way, and returns
// about how many different prefixes there is none. The caller holds mu.
func (c *Checker) join(all []prefixSearch) (missing int) {
	now := time.Now()
	others := make(map[Prefix]bool)
	for i := range all {
		for j, p := range all[i].prefixes {
			if all[i].searches[j] != nil {
				continue
			}
			if s, from := c.about(p, now); s != nil {
				all[i].searches[j], all[i].from = s, max(all[i].from, from)
			} else if all[i].listed {
				others[p] = true
			}
		}
	}
	return len(others)
}

// about returns a search that will answer about a prefix, or has, and where the answer
// comes from, or nil. The caller holds mu.
func (c *Checker) about(p Prefix, now time.Time) (*search, Origin) {
	if s := c.pending[p]; s != nil {
		return s, FromMerged
	}
	answer, ok := c.cache.answers.Get(p)
	if !ok || answer.ttlAt(now) < 0 {
		return nil, FromLists
	}
	return ended(answer, nil), FromCache
}

// enqueueAll adds new searches for the prefixes of s that have none. Each takes one of
// the searches that were admitted, as long as there are some. The caller holds mu.
func (c *Checker) enqueueAll(s *prefixSearch, admitted *int, refund func()) {
	for j, p := range s.prefixes {
		switch {
		case s.searches[j] != nil || !s.listed:
			continue
		case c.pending[p] != nil: // an earlier prefix of this Search
			s.searches[j] = c.pending[p]
		case *admitted > 0:
			*admitted--
			s.searches[j] = c.enqueue(p, refund)
		default:
			s.searches[j] = c.enqueue(p, nil)
		}
		s.from = FromServer
	}
}

// underWay reports whether a search has not ended.
func (s prefixSearch) underWay() bool {
	return slices.ContainsFunc(s.searches, func(search *search) bool {
		return search != nil && !search.over.Load()
	})
}

// wait returns the answer when all searches have ended.
func (s prefixSearch) wait(ctx context.Context) (PrefixAnswer, error) {
	answer := PrefixAnswer{TTL: unlistedTTL, From: s.from}
	known, sent := false, false
	for i, search := range s.searches {
		if search == nil {
			continue
		}
		if !search.finished(ctx) {
			return PrefixAnswer{}, ctx.Err()
		}
		if search.err != nil {
			return PrefixAnswer{}, search.err
		}
		part := search.about(s.prefixes[i])
		_, earlier := search.earlier[s.prefixes[i]]
		sent = sent || !earlier
		ttl := part.ttlAt(time.Now())
		if len(part.threats) > 0 {
			ttl -= transit
		}
		ttl = max(0, ttl)
		if !known || ttl < answer.TTL {
			answer.TTL, known = ttl, true
		}
		answer.Threats = append(answer.Threats, part.threats...)
	}
	if s.from == FromServer && !sent {
		answer.From = FromShared
	}
	return answer, nil
}

// ttlAt returns how long every part of the answer may be used after now, by both clocks,
// see live. Negative: a part of it has expired.
func (a serverAnswer) ttlAt(now time.Time) time.Duration {
	ttl := a.ttl
	for _, t := range a.threats {
		ttl = min(ttl, t.TTL, maxVerdictAge-transit)
	}
	return ttl - max(now.Sub(a.received), now.Round(0).Sub(a.received.Round(0)))
}
