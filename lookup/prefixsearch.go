package lookup

import (
	"cmp"
	"context"
	"math"
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
	Reason  Reason // why the server was asked, if From is FromServer
	// Err says why nothing is known but Threats: the server was not asked, has failed, or has not answered yet.
	// If From is FromServer it was asked, or is about to be, and the search may be charged for.
	Err error
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
	NumOrigins               // the number of origins
)

// String returns the origin as metrics spell it.
func (o Origin) String() string {
	return [...]string{"unlisted", "cache", "merged", "redis", "upstream"}[o]
}

// Reason says why the server is asked about a prefix. The zero value is for one that no answer is
// cached about.
type Reason uint8

// The reasons.
const (
	ReasonNew     Reason = iota // no answer is cached: none was given, or it was dropped, by a restart too
	ReasonExpired               // the cached answer has ended, longer ago than it lived
	ReasonPopular               // it has ended, but one that lives twice as long would still be cached
	NumReasons                  // the number of reasons
)

// String returns the reason as metrics spell it.
func (r Reason) String() string { return [...]string{"new", "expired", "popular"}[r] }

const (
	// transit is the most time from a PrefixAnswer to its use: a client drops an answer
	// that takes longer, see Config.Timeout. A threat must not be older than
	// maxVerdictAge then. The TTL of a threat is shorter by it, so that a client that
	// answers others itself, a relay behind a relay, ends with it when this one does.
	transit = 10 * time.Second
	// unlistedTTL is the TTL of an answer about a prefix that no list holds. It is short,
	// because the next update may bring the prefix.
	unlistedTTL = time.Minute
	// maxStored is the most entries of the lists that a search sends instead of the 4 bytes
	// that they begin with.
	maxStored = 30
)

// Search returns what the server knows about prefixes of 4 bytes, in their order. Like
// Confirm it uses the cache and shares searches. It asks the server only about prefixes
// that a list holds; with unlisted, or if the mode is not Local, about all. If a search
// fails, or ctx ends first, the answers about its prefixes have an error, and Search returns
// the first of them: who passes on the other answers must say that these are missing, or they
// look safe. The searches run on, and the cache keeps their answers.
//
// Search calls admit, unless that is nil, at most once: with one search for each
// Config.PerSearch prefixes that the server must be asked about. Those that admit does not allow
// are not sent.
//
// wait is for who answers other clients. Search calls it, unless it is nil, at most once: if it has to
// wait for the server. If wait returns false, Search does not wait: what is not known fails with
// ErrLimited. Else it calls leave when it no longer waits. Then a threat that is known does not wait
// for a server that hangs, either: once a quarter of a second is over, Search returns as soon as it
// knows one, and the answers about the rest have the error ErrSlow.
func (c *Checker) Search(ctx context.Context, prefixes []Prefix, unlisted bool, admit AdmitAll, wait func() (leave func(), ok bool)) (answers []PrefixAnswer, err error) {
	lists := c.cfg.Database.Lists()
	all := make([]prefixSearch, 0, len(prefixes))
	for _, p := range prefixes {
		all = append(all, c.prefixSearch(lists, p, unlisted || c.cfg.Mode != Local))
	}
	c.askFor(all, admit)
	if wait != nil && slices.ContainsFunc(all, prefixSearch.underWay) {
		if leave, ok := wait(); ok {
			defer leave()
		} else {
			crowded, cancel := context.WithCancelCause(ctx)
			cancel(ErrLimited)
			ctx = crowded
		}
	}
	ctx, over := awaitAll(ctx, all, wait != nil)
	defer over()
	for _, s := range all {
		answers = append(answers, c.answerOf(ctx, s))
	}
	for i, s := range all {
		if answers[i].Err != nil { // another search may have found its threat meanwhile
			answers[i] = c.answerOf(ctx, s)
		}
		err = cmp.Or(err, answers[i].Err)
	}
	return answers, err
}

// threatPatience is how long a known threat waits for the answers about other prefixes: half of the
// time that a name server waits for a confirmation.
const threatPatience = 250 * time.Millisecond

// awaitAll waits until all parts have ended or ctx has; for other clients after threatPatience until a threat
// is known, too. Then the context that it returns ends with ErrSlow.
func awaitAll(ctx context.Context, all []prefixSearch, forOthers bool) (_ context.Context, over func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	soon, stop := context.WithTimeout(ctx, threatPatience)
	defer stop()
	var parts []*part
	for _, s := range all {
		parts = append(parts, s.parts...)
	}
	threat := func(p *part) bool { return p != nil && p.over.Load() && len(p.answer.threats) > 0 }
	for ctx.Err() == nil && slices.ContainsFunc(parts, (*part).underWay) {
		switch {
		case soon.Err() == nil:
			oneEnds(soon, parts)
		case forOthers && slices.ContainsFunc(parts, threat):
			cancel(ErrSlow)
		default:
			oneEnds(ctx, parts)
		}
	}
	return ctx, func() { cancel(nil) }
}

// prefixSearch is the part of a Search about one prefix.
type prefixSearch struct {
	listed   bool     // the server may be asked
	prefixes []Prefix // to ask about; parts[i] is for prefixes[i]
	parts    []*part  // nil: none is needed
	from     Origin
	reason   Reason
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
	if c.cfg.AsStored && len(stored) > 0 && len(stored) <= maxStored { // more cost less as their common prefix
		s.prefixes = stored
	}
	s.parts = make([]*part, len(s.prefixes))
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

// askFor sets the searches of all parts, with new ones where none will do. Those that may not
// be sent have failed.
func (c *Checker) askFor(all []prefixSearch, admit AdmitAll) {
	c.mu.Lock()
	missing, closed := c.join(all), c.closed
	c.mu.Unlock()
	if missing == 0 {
		return
	}
	n := admission{searches: (missing + c.cfg.PerSearch - 1) / c.cfg.PerSearch, refund: func() {}, prefixes: math.MaxInt}
	if admit != nil && !closed {
		n.searches, n.refund, n.err = admit(n.searches) // without the lock: it may take its time
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	defer c.begin()
	c.join(all)
	if n.err != nil {
		n.prefixes = n.searches * c.cfg.PerSearch
	}
	if c.closed {
		n.prefixes, n.err = 0, ErrClosed
	}
	for i := range all {
		c.enqueueAll(&all[i], &n)
	}
	for range n.searches { // others have begun them since
		n.refund()
	}
}

// admission is what may be sent.
type admission struct {
	searches int    // that were admitted and are not begun
	refund   func() // of one of them
	prefixes int    // that may still be asked about
	err      error  // why no more than that
}

// join sets the searches of all parts where one has ended or is under way, and returns
// about how many different prefixes there is none. The caller holds mu.
func (c *Checker) join(all []prefixSearch) (missing int) {
	now := time.Now()
	others := make(map[Prefix]bool)
	for i := range all {
		for j, p := range all[i].prefixes {
			if all[i].parts[j] != nil {
				continue
			}
			if s, from := c.about(p, now); s != nil {
				all[i].parts[j], all[i].from = s, max(all[i].from, from)
			} else if all[i].listed {
				others[p] = true
			}
		}
	}
	return len(others)
}

// about returns a part that will answer about a prefix, or has, and where the answer
// comes from, or nil. The caller holds mu.
func (c *Checker) about(p Prefix, now time.Time) (*part, Origin) {
	if under := c.searching.pending[p]; under != nil {
		return under, FromMerged
	}
	answer, ok := c.cache.answers.Get(p)
	if !ok || answer.ttlAt(now) < 0 {
		return c.waiting(p, now), FromCache
	}
	return ended(answer, nil), FromCache
}

// enqueueAll adds new searches for the prefixes of s that have none. Each takes one of
// the searches that were admitted, as long as there are some. The caller holds mu.
func (c *Checker) enqueueAll(s *prefixSearch, n *admission) {
	for j, p := range s.prefixes {
		switch {
		case s.parts[j] != nil || !s.listed:
			continue
		case c.searching.pending[p] != nil: // an earlier prefix of this Search
			s.parts[j] = c.searching.pending[p]
		case n.prefixes == 0:
			s.parts[j] = c.refused(p, n.err)
		case n.searches > 0:
			n.searches--
			s.parts[j] = c.enqueue(p, n.refund)
			n.prefixes--
		default:
			s.parts[j] = c.enqueue(p, nil)
			n.prefixes--
		}
		s.from, s.reason = FromServer, max(s.reason, c.cache.reason(p, time.Now()))
	}
}

// underWay reports whether a search has not ended.
func (s prefixSearch) underWay() bool {
	return slices.ContainsFunc(s.parts, (*part).underWay)
}

// answerOf returns the answer about a prefix. All its searches have ended, or ctx has.
func (c *Checker) answerOf(ctx context.Context, s prefixSearch) PrefixAnswer {
	answer := PrefixAnswer{TTL: unlistedTTL, From: s.from, Reason: s.reason}
	known, sent := false, false
	for i, of := range s.parts {
		if of == nil {
			continue
		}
		part, err := serverAnswer{}, error(nil)
		if of.over.Load() { // what has ended together with ctx counts
			part, err = of.answer, of.err
			sent = sent || !of.earlier && !unsent(err)
		} else {
			err = context.Cause(ctx)
			sent = sent || of.refusal == nil // the search runs on
		}
		if err != nil {
			answer.Err = cmp.Or(answer.Err, err)
			if part = c.threatsUnder(s.prefixes[i], part); len(part.threats) == 0 {
				continue
			}
		}
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
	return answer
}

// threatsUnder returns the threats under p that are known although a search has failed: those that
// came with its error, or those in the cache that have not expired while the rest of their answer
// has.
func (c *Checker) threatsUnder(p Prefix, answer serverAnswer) serverAnswer {
	if len(answer.threats) == 0 {
		answer, _ = c.cache.answers.Peek(p)
	}
	now := time.Now()
	live := serverAnswer{received: answer.received, ttl: maxVerdictAge}
	for _, t := range answer.threats {
		if answer.live(min(t.TTL, maxVerdictAge-transit), now) {
			live.threats = append(live.threats, t)
		}
	}
	return live
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

// Listing is what is known here about one prefix. The zero Listing is that no list holds it. A program that
// looks up many prefixes at once, such as one that measures what the lists hold, first asks for it, and lets
// Search confirm the rest when no query waits, see Idle.
type Listing struct {
	Lists []string // that hold it, or an entry that begins with it
	Ask   int      // prefixes that the server would have to be asked about
}

// Listings returns what is known about prefixes of 4 bytes, in their order. It sends nothing. Lists of
// likely safe hosts do not count.
func (c *Checker) Listings(prefixes []Prefix) []Listing {
	lists, now := c.cfg.Database.Lists(), time.Now()
	all := make([]Listing, len(prefixes))
	for i, p := range prefixes {
		for _, l := range lists {
			if !l.LikelySafe && len(l.Set.Under([minPrefix]byte([]byte(p)), 1)) > 0 {
				all[i].Lists = append(all[i].Lists, l.Name)
			}
		}
		if all[i].Lists != nil {
			all[i].Ask = c.unknownParts(c.prefixSearch(lists, p, false), now)
		}
	}
	return all
}

// unknownParts returns how many of the prefixes of a search have no answer, and none under way.
func (c *Checker) unknownParts(s prefixSearch, now time.Time) (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range s.prefixes {
		if known, _ := c.about(p, now); known == nil {
			n++
		}
	}
	return n
}

// PerSearch returns the most prefixes of one search.
func (c *Checker) PerSearch() int { return c.cfg.PerSearch }

// CheckURL decides on a URL with its path and query, as a program that is no name server can ("Local List Mode"). It
// waits for the server if a list holds the prefix of an expression, until ctx ends: then, and if no search may be sent
// now, the decision is Unsure and Err says why. A mode other than Local makes it ask about all expressions.
func (c *Checker) CheckURL(ctx context.Context, u URL) Decision {
	if !u.Host().Public() {
		return Decision{}
	}
	expressions := u.Expressions(c.cfg.Rule)
	hashes, prefixes := make([]FullHash, len(expressions)), make([]Prefix, len(expressions))
	for i, e := range expressions {
		hashes[i] = HashExpression(e.Text)
		prefixes[i] = hashes[i].Prefix(minPrefix)
	}
	answers, err := c.Search(ctx, prefixes, false, nil, nil)
	for i, answer := range answers {
		threat, known := c.threatIn(serverAnswer{threats: answer.Threats}, hashes[i])
		if !known {
			continue
		}
		by := ByServer
		if answer.From == FromCache {
			by = ByCache
		}
		list, _ := c.prefixOf(c.cfg.Database.Lists(), hashes[i])
		threat.TTL = answer.TTL
		return threat.unsafe(by, list, expressions[i].Text, time.Now())
	}
	if err != nil {
		return Decision{Verdict: Unsure, By: deciderOf(err), Err: err}
	}
	return Decision{By: ByList}
}
