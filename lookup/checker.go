package lookup

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// Searcher asks the server for the full hashes behind prefixes.
type Searcher interface {
	// Search returns what the server knows about the prefixes, of which there
	// are at least one and at most MaxPrefixes, each once. It returns
	// ErrBackoff, wrapped or not, if it may not ask now.
	Search(ctx context.Context, prefixes []Prefix) (Answer, error)
}

// MaxPrefixes is the most prefixes that one search asks for. The server takes
// a thousand and recommends to stay at thirty.
const MaxPrefixes = 30

// Answer is what the server knows about the prefixes of one search. Threats
// that must not be enforced have been left out by the Searcher.
type Answer struct {
	Threats []ThreatHash
	// Life is how long the answer may be used, for every prefix that was asked,
	// but for the full hashes in Threats. Zero: for this once only.
	Life time.Duration
	// MinimumWait is before the server may be asked again; zero: none given.
	MinimumWait time.Duration
}

// ThreatHash is a full hash that the server lists. An answer may hold several of
// one hash, each with other threats.
type ThreatHash struct {
	Hash    FullHash
	Threats Threats
	Life    time.Duration // for which this may be used; zero: for this once only
	// FrameOnly marks threats that are for content in frames, see Frames.
	FrameOnly bool
}

// ErrBackoff says that the server must not be asked now.
var ErrBackoff = errors.New("waiting before the server may be asked again")

// ErrLimited says that too many searches are under way already.
var ErrLimited = errors.New("too many confirmations at once")

// ErrClosed says that the Checker has been closed.
var ErrClosed = errors.New("shutting down")

// Mode is what a Checker asks the server about.
type Mode uint8

const (
	// Local asks about hosts that are in a list ("Local List Mode").
	Local Mode = iota
	// RealTime asks about all hosts but those in a list of likely safe ones,
	// which are treated as in Local ("Real-Time Mode"). While there is no such list,
	// or it has fewer than 100 entries, it is Local.
	RealTime
	// NoStorage asks about all hosts ("No-Storage Real-Time Mode").
	NoStorage
)

// String returns the mode as the Corefile spells it.
func (m Mode) String() string { return [...]string{"local", "realtime", "nostorage"}[m] }

// Config says how a Checker works.
type Config struct {
	Mode     Mode
	Database *Database // required
	Searcher Searcher  // required
	Threats  Threats   // that make a host Unsafe; zero: AllThreats
	Cache    int       // prefixes whose answers are kept; zero: 100,000
	// Timeout bounds one search; zero: 10 s. It is not how long a query waits.
	Timeout  time.Duration
	Searches int  // at most so many searches are under way; zero: 16
	Rule     Rule // which suffixes of a host are candidates; zero: RuleV5
	// AsStored has prefixes asked in the length that the lists hold. Otherwise they
	// are of four bytes.
	AsStored bool
}

// Checker decides on hosts. Use NewChecker. It is safe for concurrent use.
type Checker struct {
	mode     Mode
	rule     Rule
	asStored bool
	database *Database
	searcher Searcher
	threats  Threats
	timeout  time.Duration
	cache    *cache

	ctx    context.Context // of all searches; they are detached from the queries
	cancel context.CancelFunc
	wg     sync.WaitGroup // of all searches

	mu     sync.Mutex
	asked  map[Prefix]*search // under way or about to be; guarded by mu
	queue  []*search          // wait for a free slot, the oldest first; guarded by mu
	slots  int                // how many more may be under way; guarded by mu
	closed bool               // guarded by mu
}

// NewChecker returns a Checker, or an error if the configuration makes no
// sense. Close it when it is no longer needed.
func NewChecker(cfg Config) (*Checker, error) {
	if cfg.Database == nil || cfg.Searcher == nil {
		return nil, errors.New("a checker needs a database and a searcher")
	}
	if cfg.Cache < 0 || cfg.Searches < 0 || cfg.Timeout < 0 {
		return nil, errors.New("the limits of a checker must not be negative")
	}
	cache, err := newCache(cmp.Or(cfg.Cache, 100_000))
	if err != nil {
		return nil, fmt.Errorf("making a cache for %d prefixes: %w", cfg.Cache, err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	return &Checker{
		mode:     cfg.Mode,
		rule:     cfg.Rule,
		asStored: cfg.AsStored,
		database: cfg.Database,
		searcher: cfg.Searcher,
		threats:  cmp.Or(cfg.Threats, AllThreats),
		timeout:  cmp.Or(cfg.Timeout, 10*time.Second),
		cache:    cache,
		ctx:      ctx,
		cancel:   cancel,
		asked:    make(map[Prefix]*search),
		slots:    cmp.Or(cfg.Searches, 16),
	}, nil
}

// Close ends all searches and waits for them. Confirmations that wait for one
// become Unsure; later ones are Unsure at once.
func (c *Checker) Close() {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.cancel()
	c.wg.Wait()
}

// Candidates are the prefixes of one host that are in a list, or in the other
// modes all of them, about which the server has not been heard lately.
type Candidates struct {
	host      Host
	frames    Frames
	frameOnly bool // a threat that is cached has been let pass
	all       []candidate
}

type candidate struct {
	hash   FullHash
	prefix Prefix // that is asked for
	start  int    // of the expression in the host
	list   string // that holds the prefix; "": none does, the mode asks anyway
}

// First returns the list and the expression of the first candidate. The list is
// "" if none holds it and the mode asks anyway.
func (c *Candidates) First() (list, expression string) { return c.all[0].list, c.expression(0) }

func (c *Candidates) expression(i int) string { return c.host.name[c.all[i].start:] + "/" }

// Check is CheckWith for BlockFrames.
func (c *Checker) Check(h Host) (Decision, *Candidates) { return c.CheckWith(h, BlockFrames) }

// CheckWith decides on a host without asking anyone ("Local List Mode", steps 1 to
// 4). If candidates are returned the decision waits for Confirm. For a host in
// no list it takes no lock and, up to ten labels, does not allocate.
func (c *Checker) CheckWith(h Host, frames Frames) (Decision, *Candidates) {
	h = h.by(c.rule)
	current := c.database.snapshot()
	switch {
	case !h.Public():
		return Decision{}, nil
	case c.mode == NoStorage || c.mode == RealTime && knowsLikelySafe(current.lists):
		return c.suspect(h, current.lists, frames, !c.likelySafe(h, current.lists))
	case len(current.lists) == 0:
		return c.unlisted(h, frames), nil
	case !c.suspected(h, current):
		return Decision{By: ByList}, nil
	}
	return c.suspect(h, current.lists, frames, false)
}

// suspected reports whether a suffix of the host is in a list, or may be a threat
// that is cached.
func (c *Checker) suspected(h Host, current *snapshot) bool {
	var startBuf [maxUnasked]int
	var hashBuf [maxUnasked]FullHash
	starts := h.suffixStarts(startBuf[:0], c.rule)
	sumSuffixes(hashBuf[:], h.name, starts)
	hashes := hashBuf[:len(starts)]
	return current.holdsAny(hashes) || c.cache.mayThreatenAny(hashes)
}

// unlisted decides on a host while there is no list: only a threat that is cached
// leads to a look at the cache, and but for that nobody knows the host.
func (c *Checker) unlisted(h Host, frames Frames) Decision {
	if !c.cache.threatened.Load() {
		return Decision{}
	}
	if decision, _ := c.suspect(h, nil, frames, false); decision.By == ByCache {
		return decision
	}
	return Decision{}
}

// leastLikelySafe is how many entries the lists of likely safe hosts must have in all
// to be believed, as in Chromium (HashRealTimeService: the allow list counts as
// matched while it is missing or has fewer entries).
const leastLikelySafe = 100

// knowsLikelySafe reports whether hosts may be taken for uncommon because no list of
// likely safe ones has them. Before that list is there, RealTime is Local: it would
// ask the server about every host.
func knowsLikelySafe(lists []List) bool {
	entries := 0
	for i := range lists {
		if lists[i].LikelySafe {
			entries += lists[i].Set.Len()
		}
	}
	return entries >= leastLikelySafe
}

// likelySafe reports whether an expression of the host is in a list of those
// that are likely safe.
func (c *Checker) likelySafe(h Host, lists []List) bool {
	for _, start := range h.starts(c.rule) {
		hash := HashExpression(h.name[start:] + "/")
		if match(lists, &hash, true) != nil {
			return true
		}
	}
	return false
}

// suspect does the rest of Check for a host of which some suffix matched, or
// with all set for any host: then each of its prefixes is a candidate.
func (c *Checker) suspect(h Host, lists []List, frames Frames, all bool) (Decision, *Candidates) {
	decision := Decision{By: ByList}
	now := time.Now()
	found := &Candidates{host: h, frames: frames}
	for _, start := range h.starts(c.rule) {
		next := candidate{hash: HashExpression(h.name[start:] + "/"), start: start}
		next.list, next.prefix = c.prefixOf(lists, next.hash)
		// The cache comes before the lists: a threat confirmed a minute ago is
		// one still, even if an update has just dropped its prefix.
		if answer, ok := c.cache.get(next.hash, now); ok {
			decision.By = ByCache
			threat, known := c.threatIn(answer, next.hash)
			if known && threat.FrameOnly && frames == PassFrames {
				decision.FrameOnly, found.frameOnly = true, true
			} else if known {
				return Decision{
					Verdict: Unsafe, By: ByCache, Threat: threat.Threats.first(), FrameOnly: threat.FrameOnly, List: next.list,
					Expression: h.name[start:] + "/", Expires: answer.asked.Add(threat.Life),
				}, nil
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
		c.cache.sweep(now) // a threat that has expired may have led here
	}
	return decision, nil
}

// prefixOf returns the first list that holds a prefix of hash, or "", and the
// prefix to ask the server for: the shortest that is held, if that is asked in
// the length as it is stored.
func (c *Checker) prefixOf(lists []List, hash FullHash) (list string, p Prefix) {
	size := len(hash)
	for i := range lists {
		if n := lists[i].Set.Match((*[32]byte)(&hash)); n > 0 && !lists[i].LikelySafe {
			list, size = cmp.Or(list, lists[i].Name), min(size, n)
		}
	}
	if list == "" || !c.asStored {
		size = minPrefix
	}
	return list, hash.Prefix(size)
}

// threatIn returns what the answer tells of hash, as far as the operator wants to
// be protected from it, and for no longer than that may be acted on. A threat that
// is not marked FRAME_ONLY wins. The list that matched does not matter: the server
// may name another threat.
func (c *Checker) threatIn(answer confirmed, hash FullHash) (best ThreatHash, known bool) {
	for _, t := range answer.threats {
		if t.Hash != hash || t.Threats&c.threats == 0 {
			continue
		}
		t.Threats &= c.threats
		t.Life = min(t.Life, maxVerdictAge)
		if best, known = t, true; !t.FrameOnly {
			break
		}
	}
	return best, known
}
