package lookup

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
)

// MaxPrefixes is the most prefixes in one search. The server accepts 1,000 (hashes.search,
// version 5) or 500 (fullHashes.find, version 4). With 240 a URL has 7 kB, and proxies accept
// 8 kB. A single host has at most 30; there are more when many queries wait.
const MaxPrefixes = 240

// Config says how a Checker works.
type Config struct {
	Mode     Mode      // zero: Local
	Database *Database // required
	Searcher Searcher  // required
	Threats  Threats   // threats that make a host Unsafe; zero: AllThreats
	Cache    int       // most prefixes whose answers are cached; zero: 100,000
	// Timeout bounds one search; zero: 10 s. A query waits for as long as the context
	// of Confirmation.Wait allows.
	Timeout  time.Duration
	Searches int  // most searches under way at once; zero: 16
	Rule     Rule // which suffixes of a host are candidates; zero: RuleV5
	// PerSearch is the most prefixes in one search, at most MaxPrefixes; zero:
	// MaxPrefixes.
	PerSearch int
	// Known says that the Searcher may know answers without the server, as a relay does. It is then
	// asked for them where a client may not cause a search since its share is spent: with a context
	// that is OnlyKnown, about each prefix at most once a minute.
	Known bool
	// AsStored sends prefixes in the length that the lists hold. Otherwise all
	// prefixes have 4 bytes.
	AsStored bool
}

// Checker decides whether hosts are unsafe. Create one with NewChecker. It is safe
// for concurrent use.
type Checker struct {
	cfg   Config // with its defaults; immutable
	cache *cache

	ctx    context.Context // of all searches: a search does not end with its query
	cancel context.CancelFunc
	wg     sync.WaitGroup // counts the goroutines of run

	mu        sync.Mutex
	searching *lane // of searches of the server; guarded by mu
	knowing   *lane // of searches for what is known, see Config.Known; nil without; guarded by mu
	// unanswered are the prefixes that a relay has not answered about; guarded by mu
	unanswered *lru.Cache[Prefix, *UnansweredError]
	// unknown are the prefixes about which not all was known, and when; guarded by mu
	unknown *lru.Cache[Prefix, time.Time]
	closed  bool // guarded by mu
}

// NewChecker returns a Checker, or an error if cfg lacks a required field or has a
// negative limit. The caller must Close the Checker.
func NewChecker(cfg Config) (*Checker, error) {
	if cfg.Database == nil || cfg.Searcher == nil {
		return nil, errors.New("a checker needs a database and a searcher")
	}
	if cfg.Cache < 0 || cfg.Searches < 0 || cfg.Timeout < 0 {
		return nil, errors.New("the limits of a checker must not be negative")
	}
	if cfg.PerSearch < 0 || cfg.PerSearch > MaxPrefixes {
		return nil, fmt.Errorf("%d prefixes in a search are not from 1 to %d", cfg.PerSearch, MaxPrefixes)
	}
	cfg.Threats = cmp.Or(cfg.Threats, AllThreats)
	cfg.Cache = cmp.Or(cfg.Cache, 100_000)
	cfg.Timeout = cmp.Or(cfg.Timeout, 10*time.Second)
	cfg.Searches = cmp.Or(cfg.Searches, 16)
	cfg.PerSearch = cmp.Or(cfg.PerSearch, MaxPrefixes)
	c := &Checker{
		cfg: cfg, cache: newCache(cfg.Cache), searching: newLane(cfg.Searches),
		unanswered: newLRU[Prefix, *UnansweredError](maxPutOff, nil), unknown: newLRU[Prefix, time.Time](maxPutOff, nil),
	}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	if cfg.Known {
		c.knowing = newLane(cfg.Searches)
	}
	return c, nil
}

// Close cancels all searches and waits until they have ended. Their Confirmations
// end with an error, as if the search had failed; later ones end with ErrClosed at
// once. It may be called more than once.
func (c *Checker) Close() {
	c.mu.Lock()
	c.closed = true
	c.searching.close()
	if c.knowing != nil {
		c.knowing.close()
	}
	c.mu.Unlock()
	c.cancel()
	c.wg.Wait()
}

// Candidates are the prefixes of one host that need a confirmation: the mode asks
// about them, and the cache has no answer. There is at least one.
type Candidates struct {
	host Host
	all  []candidate
}

type candidate struct {
	hash   FullHash
	prefix Prefix // to send to the server
	start  int    // where the expression begins in the name of the host
	list   string // the list that holds the prefix; "": the mode asks about every host
}

// First returns the list and the expression of the first candidate that a list holds, else of the first one. The list
// is "" if no list holds any, and the mode asks about every host.
func (c *Candidates) First() (list, expression string) {
	i := c.first()
	return c.all[i].list, c.expression(i)
}

// first returns the index of the first candidate that a list holds, else 0.
func (c *Candidates) first() int {
	return max(0, slices.IndexFunc(c.all, func(one candidate) bool { return one.list != "" }))
}

// Shortest returns the prefix of the shortest expression. Subdomains of a suspected name
// have it in common.
func (c *Candidates) Shortest() Prefix {
	return slices.MaxFunc(c.all, func(a, b candidate) int { return cmp.Compare(a.start, b.start) }).prefix
}

func (c *Candidates) expression(i int) string { return c.host.name[c.all[i].start:] + "/" }

// Check decides on a host from the lists and the cache ("Local List Mode", steps
// 1 to 4). It sends no request. If it returns candidates, the decision is Unsure until
// Confirm has asked the server. For a host in no list it takes no lock and, up to ten
// labels, does not allocate.
func (c *Checker) Check(h Host) (Decision, *Candidates) {
	h = h.by(c.cfg.Rule)
	current := c.cfg.Database.snapshot()
	switch {
	case !h.Public():
		return Decision{}, nil
	case c.cfg.Mode == NoStorage || c.cfg.Mode == RealTime && knowsLikelySafe(current.lists):
		return c.suspect(h, current.lists, !c.likelySafe(h, current.lists))
	case len(current.lists) == 0:
		return c.unlisted(h), nil
	case !c.suspected(h, current):
		return Decision{By: ByList}, nil
	}
	return c.suspect(h, current.lists, false)
}

// unlisted decides on a host while no list is loaded. Unless a cached threat matches,
// the result is ByNobody.
func (c *Checker) unlisted(h Host) Decision {
	if !c.cache.anyThreat.Load() {
		return Decision{}
	}
	if decision, _ := c.suspect(h, nil, false); decision.By == ByCache {
		return decision
	}
	return Decision{}
}

// minLikelySafe is how many entries the lists of likely safe hosts need, taken
// together, before RealTime trusts them. The number is Chromium's (HashRealTimeService:
// every host counts as likely safe while the list is missing or shorter).
const minLikelySafe = 100

// knowsLikelySafe reports whether the lists of likely safe hosts are long enough to
// trust. Without this check RealTime would ask the server about every host until the
// first update has arrived.
func knowsLikelySafe(lists []List) bool {
	entries := 0
	for i := range lists {
		if lists[i].LikelySafe {
			entries += lists[i].Set.Len()
		}
	}
	return entries >= minLikelySafe
}

// likelySafe reports whether a list of likely safe hosts holds an expression of the
// host.
func (c *Checker) likelySafe(h Host, lists []List) bool {
	return slices.ContainsFunc(h.hashes(c.cfg.Rule), func(hash FullHash) bool { return anyHolds(lists, &hash, true) })
}

// suspect does the rest of Check, for a host with a suffix that matched. If all is
// set, every expression that the cache cannot answer is a candidate, in a list or not.
func (c *Checker) suspect(h Host, lists []List, all bool) (Decision, *Candidates) {
	decision := Decision{By: ByList}
	now := time.Now()
	found := &Candidates{host: h}
	for _, start := range h.starts(c.cfg.Rule) {
		next := candidate{hash: HashExpression(h.name[start:] + "/"), start: start}
		next.list, next.prefix = c.prefixOf(lists, next.hash)
		// The cache comes before the lists: a threat that was confirmed a minute
		// ago still counts, even if an update has just removed its prefix.
		if answer, ok := c.cache.get(next.hash, now); ok {
			decision.By = ByCache
			if threat, known := c.threatIn(answer, next.hash); known {
				return threat.unsafe(ByCache, next.list, h.name[start:]+"/", answer.received), nil
			}
			continue
		}
		if next.list != "" || all {
			found.all = append(found.all, next)
		}
	}
	if len(found.all) > 0 {
		return Decision{Verdict: Unsure, By: ByList}, found
	}
	if decision.By == ByList {
		c.cache.sweep(now) // the bit of an expired threat may have led here
	}
	return decision, nil
}

// prefixOf returns the first list that holds a prefix of hash, or "", and the prefix
// to send to the server. It has 4 bytes; with asStored it is the shortest one that a
// list holds.
func (c *Checker) prefixOf(lists []List, hash FullHash) (list string, p Prefix) {
	size := len(hash)
	for i := range lists {
		if n := lists[i].Set.Match((*[32]byte)(&hash)); n != 0 && !lists[i].LikelySafe {
			list, size = cmp.Or(list, lists[i].Name), min(size, n)
		}
	}
	if list == "" || !c.cfg.AsStored {
		size = minPrefix
	}
	return list, hash.Prefix(size)
}

// threatIn returns the threats that the answer names for hash, reduced to the threats
// of the configuration and to maxVerdictAge, until the first of them ends. Threats without the
// mark FRAME_ONLY are preferred: the others then do not count. The list that matched does not
// matter: the server may name another threat.
func (c *Checker) threatIn(answer serverAnswer, hash FullHash) (all ThreatHash, known bool) {
	for _, t := range answer.threats {
		t.Threats &= c.cfg.Threats
		t.TTL = min(t.TTL, maxVerdictAge)
		switch {
		case t.Hash != hash || t.Threats == 0 || known && t.FrameOnly && !all.FrameOnly:
		case !known || all.FrameOnly && !t.FrameOnly:
			all, known = t, true
		default:
			all.Threats |= t.Threats
			all.TTL = min(all.TTL, t.TTL)
		}
	}
	return all, known
}

// suspected reports whether a list holds a suffix of the host, or the cache may hold
// a threat for one.
func (c *Checker) suspected(h Host, current *snapshot) bool {
	var hashes [maxDottedSums]FullHash
	if n := sumDotted(&hashes, h.name, h.dots()); n > 0 {
		return c.suspectedOf(hashes[:n], current)
	}
	return c.suspectedAny(h, current)
}

// suspectedAny is suspected for any host.
func (c *Checker) suspectedAny(h Host, current *snapshot) bool {
	var startBuf [maxLabelsWithoutPSL]int
	var hashes [maxLabelsWithoutPSL]FullHash
	starts := h.suffixStarts(startBuf[:0], c.cfg.Rule)
	sumSuffixes(hashes[:], h.name, starts)
	return c.suspectedOf(hashes[:len(starts)], current)
}

// suspectedOf is suspected for the hashes of a host.
func (c *Checker) suspectedOf(hashes []FullHash, current *snapshot) bool {
	return current.holdsAny(hashes) || c.cache.mayThreatenAny(hashes)
}
