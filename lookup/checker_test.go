package lookup

import (
	"bytes"
	"cmp"
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/prefixset"
	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
)

func inBubble(t *testing.T, name string, test func(t *testing.T)) {
	t.Run(name, func(t *testing.T) { synctest.Test(t, test) })
}

// searchFunc is a Searcher.
type searchFunc func(ctx context.Context, prefixes []Prefix) (Answer, error)

func (f searchFunc) Search(ctx context.Context, prefixes []Prefix) (Answer, error) {
	return f(ctx, prefixes)
}

// server is a Searcher that knows the rules of "Local List Mode" and fails the test when the Checker breaks one: it
// wants 1 to 240 prefixes, each once, and none whose last answer may still be used for every full hash. OnSearch
// answers; nil means that nothing is known. A threat that has no TTL of its own gets the TTL of the answer.
type server struct {
	t        testing.TB
	OnSearch func(ctx context.Context, prefixes []Prefix) (Answer, error)

	mu    sync.Mutex
	asked [][]Prefix
	fresh map[Prefix]time.Time
}

func (s *server) Search(ctx context.Context, prefixes []Prefix) (Answer, error) {
	s.note(prefixes)
	if s.OnSearch == nil {
		return Answer{}, nil
	}
	answer, err := s.OnSearch(ctx, prefixes)
	answer.Threats = slices.Clone(answer.Threats)
	for i := range answer.Threats {
		answer.Threats[i].TTL = cmp.Or(answer.Threats[i].TTL, answer.TTL)
	}
	if err == nil && answer.TTL > 0 {
		s.keep(prefixes, answer)
	}
	return answer, err
}

func (s *server) note(prefixes []Prefix) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := len(prefixes); n < 1 || n > 240 {
		s.t.Errorf("a search for %d prefixes, want 1 to 240", n)
	}
	for i, p := range prefixes {
		if slices.Contains(prefixes[:i], p) {
			s.t.Errorf("a search for prefix %x twice", p)
		}
		if until, ok := s.fresh[p]; ok && !time.Now().After(until) {
			s.t.Errorf("prefix %x is asked for again while its answer is fresh", p)
		}
	}
	s.asked = append(s.asked, slices.Clone(prefixes))
}

func (s *server) keep(prefixes []Prefix, answer Answer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fresh == nil {
		s.fresh = make(map[Prefix]time.Time)
	}
	for _, p := range prefixes {
		ttl := answer.TTL
		for _, t := range answer.Threats {
			if p.begins(t.Hash) {
				ttl = min(ttl, t.TTL, maxVerdictAge)
			}
		}
		s.fresh[p] = time.Now().Add(ttl)
	}
}

// searches returns the prefixes of each search so far.
func (s *server) searches() [][]Prefix {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.asked)
}

// knows makes the server return the threats behind the prefixes of each search.
func (s *server) knows(ttl time.Duration, threats ...ThreatHash) {
	s.OnSearch = func(_ context.Context, prefixes []Prefix) (Answer, error) {
		answer := Answer{TTL: ttl}
		for _, t := range threats {
			if slices.ContainsFunc(prefixes, func(p Prefix) bool { return p.begins(t.Hash) }) {
				answer.Threats = append(answer.Threats, t)
			}
		}
		return answer, nil
	}
}

// always makes the server give one answer to everything.
func (s *server) always(answer Answer, err error) {
	s.OnSearch = func(context.Context, []Prefix) (Answer, error) { return answer, err }
}

// slowly gives one answer to everything, after a while.
func slowly(after time.Duration, answer Answer) func(context.Context, []Prefix) (Answer, error) {
	return func(ctx context.Context, _ []Prefix) (Answer, error) {
		select {
		case <-ctx.Done():
			return Answer{}, ctx.Err()
		case <-time.After(after):
			return answer, nil
		}
	}
}

// hanging gives none, for 146 years.
var hanging = slowly(1<<62, Answer{})

// isThreat is the full hash of an expression with its threats.
func isThreat(expression string, threats ...Threat) ThreatHash {
	t := ThreatHash{Hash: HashExpression(expression)}
	for _, threat := range threats {
		t.Threats = t.Threats.With(threat)
	}
	return t
}

// lasting gives a threat a TTL of its own.
func lasting(ttl time.Duration, t ThreatHash) ThreatHash {
	t.TTL = ttl
	return t
}

// listOf returns a list of the prefixes of expressions.
func listOf(name string, expressions ...string) List {
	var entries [][]byte
	for _, e := range expressions {
		hash := HashExpression(e)
		entries = append(entries, slices.Clone(hash[:4]))
	}
	return List{Name: name, Set: setOf(entries)}
}

// setOf sorts entries, of any widths, and makes a set of them.
func setOf(entries [][]byte) *prefixset.Set {
	slices.SortFunc(entries, bytes.Compare)
	entries = slices.CompactFunc(entries, bytes.Equal)
	b := prefixset.NewBuilder(len(entries))
	for _, e := range entries {
		if err := b.Add(e, len(e)); err != nil {
			panic(err)
		}
	}
	return b.Set()
}

func databaseOf(lists ...List) *Database {
	d := new(Database)
	d.Publish(lists)
	return d
}

// checkerOf returns a Checker with the list "list" of expressions, and by default a server that knows nothing, until the test ends.
func checkerOf(t testing.TB, cfg Config, expressions ...string) *Checker {
	t.Helper()
	cfg.Database = cmp.Or(cfg.Database, databaseOf(listOf("list", expressions...)))
	cfg.Searcher = cmp.Or[Searcher](cfg.Searcher, &server{t: t})
	c, err := NewChecker(cfg)
	testkit.Must(t, err)
	t.Cleanup(c.Close)
	return c
}

// decide checks a name and confirms its candidates.
func decide(t testing.TB, c *Checker, qname string) Decision {
	t.Helper()
	decision, candidates := c.Check(FromQname(qname))
	if candidates == nil {
		return decision
	}
	decided(t, qname, decision, Unsure, ByList)
	return c.Confirm(candidates, nil).Wait(context.Background())
}

// decided fails the test unless a decision has this verdict and decider. what says what is decided about.
func decided(t testing.TB, what any, d Decision, verdict Verdict, by Decider) {
	t.Helper()
	if d.Verdict != verdict || d.By != by {
		t.Errorf("%v: %+v, want %v by %v", what, d, verdict, by)
	}
}

// confirmed decides on a name until ctx ends, with new searches that admit admits.
func confirmed(ctx context.Context, c *Checker, qname string, admit Admit) Decision {
	d, candidates := c.Check(FromQname(qname))
	if candidates == nil {
		return d
	}
	return c.Confirm(candidates, admit).Wait(ctx)
}

// suspect checks a name that must have candidates.
func suspect(t testing.TB, c *Checker, qname string) *Candidates {
	t.Helper()
	decision, candidates := c.Check(FromQname(qname))
	if candidates == nil {
		t.Fatalf("%s: Check = %+v, want candidates", qname, decision)
	}
	return candidates
}

func expressionsOf(c *Candidates) (all []string) {
	if c != nil {
		for i := range c.all {
			all = append(all, c.expression(i))
		}
	}
	return all
}

func TestCheckerWantsASensibleConfig(t *testing.T) {
	database, searcher := new(Database), searchFunc(nil)
	for _, tt := range []struct {
		name string
		cfg  Config
		ok   bool
	}{
		{"database and searcher are enough", Config{Database: database, Searcher: searcher}, true},
		{"no database", Config{Searcher: searcher}, false},
		{"no searcher", Config{Database: database}, false},
		{"negative cache", Config{Database: database, Searcher: searcher, Cache: -1}, false},
		{"negative time-out", Config{Database: database, Searcher: searcher, Timeout: -1}, false},
		{"negative searches", Config{Database: database, Searcher: searcher, Searches: -1}, false},
		{"negative prefixes of a search", Config{Database: database, Searcher: searcher, PerSearch: -1}, false},
		{"as many as the server allows", Config{Database: database, Searcher: searcher, PerSearch: MaxPrefixes}, true},
		{"one more", Config{Database: database, Searcher: searcher, PerSearch: MaxPrefixes + 1}, false},
	} {
		c, err := NewChecker(tt.cfg)
		testkit.Equal(t, tt.name, err == nil, tt.ok)
		if c != nil {
			c.Close()
			c.Close() // does no harm
		}
	}
}
