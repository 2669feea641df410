package lookup

import (
	"bytes"
	"cmp"
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/prefixset"
)

// searchFunc is a Searcher.
type searchFunc func(ctx context.Context, prefixes []Prefix) (Answer, error)

func (f searchFunc) Search(ctx context.Context, prefixes []Prefix) (Answer, error) {
	return f(ctx, prefixes)
}

// server is a Searcher that knows the rules of "Local List Mode" and fails the
// test when the Checker breaks one: it wants 1 to 240 prefixes, each
// once, and none whose last answer may still be used for every full hash.
// OnSearch answers; nil means that nothing is known. A threat that has no TTL of
// its own gets the TTL of the answer.
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

// checkerOf returns a Checker with one list, "list", of expressions, closed
// when the test ends. Without a Searcher in cfg its server knows nothing.
func checkerOf(t testing.TB, cfg Config, expressions ...string) *Checker {
	t.Helper()
	if cfg.Database == nil {
		cfg.Database = new(Database)
		cfg.Database.Publish([]List{listOf("list", expressions...)})
	}
	if cfg.Searcher == nil {
		cfg.Searcher = &server{t: t}
	}
	c, err := NewChecker(cfg)
	if err != nil {
		t.Fatal(err)
	}
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
	if decision.Verdict != Unsure || decision.By != ByList {
		t.Errorf("%s: Check = %+v with candidates, want unsure by list", qname, decision)
	}
	return c.Confirm(candidates, nil).Wait(context.Background())
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

func expressionsOf(c *Candidates) []string {
	if c == nil {
		return nil
	}
	var all []string
	for i := range c.all {
		all = append(all, c.expression(i))
	}
	return all
}

func TestCheckerWantsASensibleConfig(t *testing.T) {
	database, searcher := new(Database), searchFunc(nil)
	tests := []struct {
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
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c, err := NewChecker(tt.cfg)
			if (err == nil) != tt.ok {
				t.Fatalf("error is %v, want one: %v", err, !tt.ok)
			}
			if c != nil {
				c.Close()
				c.Close() // does no harm
			}
		})
	}
}

// The defaults are those of Config and of docs/blocking.md.
func TestALimitHasADefault(t *testing.T) {
	c := checkerOf(t, Config{})
	if c.cache.maxHashes != 100_000 || c.searching.slots != 16 || c.timeout != 10*time.Second || c.perSearch != 240 || c.threats != AllThreats {
		t.Errorf("%d prefixes, %d searches, timeout %s, %d prefixes a search, threats %b", c.cache.maxHashes, c.searching.slots, c.timeout, c.perSearch, c.threats)
	}
}

func TestCheckDecidesByTheListsAlone(t *testing.T) {
	tests := []struct {
		name   string
		qname  string
		listed []string
		want   []string // candidates
		by     Decider
	}{
		{"a clean name", "www.example.com.", []string{"example.org/"}, nil, ByList},
		{"the exact host", "www.example.com.", []string{"www.example.com/"}, []string{"www.example.com/"}, ByList},
		{"a parent", "www.example.com.", []string{"example.com/"}, []string{"example.com/"}, ByList},
		{"host and parent", "www.example.com.", []string{"example.com/", "www.example.com/"},
			[]string{"www.example.com/", "example.com/"}, ByList},
		{"a child does not count", "example.com.", []string{"www.example.com/"}, nil, ByList},
		{"a public suffix does not count", "example.co.uk.", []string{"co.uk/"}, nil, ByList},
		{"a tenant's landlord does not count", "u.github.io.", []string{"github.io/"}, nil, ByList},
		{"the suffix itself is a host", "github.io.", []string{"github.io/"}, []string{"github.io/"}, ByList},
		{"an expression with a path does not count", "example.com.", []string{"example.com/path"}, nil, ByList},
		{"a hidden label leaves the parents", `a\.b.example.com.`, []string{"example.com/"}, []string{"example.com/"}, ByList},
		{"a hidden label may be part of a public suffix", `a\032b.kobe.jp.`, []string{"kobe.jp/"}, nil, ByList},
		{"the skipped label does not count", "a.b.c.d.e.f.com.", []string{"b.c.d.e.f.com/"}, nil, ByList},
		{"an address", "1.2.3.4.", []string{"1.2.3.4/"}, []string{"1.2.3.4/"}, ByList},
		{"an address has no parent", "1.2.3.4.", []string{"3.4/"}, nil, ByList},
		{"a single label is nobody's", "com.", []string{"com/"}, nil, ByNobody},
		{"a private name is nobody's", "nas.local.", []string{"nas.local/"}, nil, ByNobody},
		{"the root is nobody's", ".", []string{"/"}, nil, ByNobody},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			decision, candidates := checkerOf(t, Config{}, tt.listed...).Check(FromQname(tt.qname))
			if got := expressionsOf(candidates); !slices.Equal(got, tt.want) {
				t.Errorf("candidates are %q, want %q", got, tt.want)
			}
			want := Decision{By: tt.by}
			if tt.want != nil {
				want.Verdict = Unsure
			}
			if decision != want {
				t.Errorf("decision is %+v, want %+v", decision, want)
			}
		})
	}
}

func TestEmptyDatabaseFindsEveryHostSafe(t *testing.T) {
	database := new(Database)
	if lists := database.Lists(); lists != nil {
		t.Errorf("zero database holds %v", lists)
	}
	c := checkerOf(t, Config{Database: database})
	for _, lists := range [][]List{nil, {}, {{Name: "empty", Set: new(prefixset.Set)}}} {
		if lists != nil {
			database.Publish(lists)
		}
		decision, candidates := c.Check(FromQname("example.com."))
		if decision.Verdict != Safe || candidates != nil {
			t.Errorf("with %d lists: Check = %+v, %v, want safe", len(lists), decision, candidates)
		}
	}
}

func TestFirstListThatMatchesIsNamed(t *testing.T) {
	database := new(Database)
	database.Publish([]List{listOf("a", "x.example/"), listOf("b", "y.example/", "z.example/"), listOf("c", "z.example/")})
	srv := &server{t: t}
	srv.knows(0, isThreat("x.example/", Malware), isThreat("y.example/", Malware), isThreat("z.example/", Malware))
	c := checkerOf(t, Config{Database: database, Searcher: srv})
	for qname, want := range map[string]string{"x.example.": "a", "y.example.": "b", "z.example.": "b"} {
		if got := decide(t, c, qname); got.List != want || got.Verdict != Unsafe {
			t.Errorf("%s: %+v, want unsafe by list %s", qname, got, want)
		}
	}
}

func TestWordsAreThoseOfMetricsAndLogs(t *testing.T) {
	for v, want := range map[Verdict]string{Safe: "safe", Unsafe: "unsafe", Unsure: "unsure"} {
		if got := v.String(); got != want {
			t.Errorf("verdict %d is %q, want %q", v, got, want)
		}
	}
	seen := map[string]bool{}
	for d := range NumDeciders {
		if word := d.String(); word == "" || seen[word] {
			t.Errorf("decider %d is %q, want a word of its own", d, word)
		}
		seen[d.String()] = true
	}
	if got := NoThreat.String(); got != "" {
		t.Errorf("no threat is %q, want nothing", got)
	}
	var all Threats
	for threat := Malware; threat < numThreats; threat++ {
		if all.Contains(threat) || !all.With(threat).Contains(threat) || threat.String() == "" {
			t.Errorf("threat %d is %q and not its own", threat, threat)
		}
		all = all.With(threat)
	}
	if all != AllThreats {
		t.Errorf("all threats are %b, want %b", all, AllThreats)
	}
}
