package sharing

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/prefixset"
	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

// openRedis opens a client that a busy machine does not make late, and waits for Redis.
func openRedis(t testing.TB, url string) *Client {
	t.Helper()
	c, w := open(t, url, nil)
	w.up(t)
	return c
}

// server is a Searcher that counts what it is asked.
type server struct {
	mu     sync.Mutex
	asked  int
	took   time.Duration
	answer lookup.Answer
	err    error
	during func() // called in each search, unless nil
}

func (s *server) Search(ctx context.Context, _ []lookup.Prefix) (lookup.Answer, error) {
	s.mu.Lock()
	s.asked++
	took, answer, err := s.took, s.answer, s.err
	s.mu.Unlock()
	if s.during != nil {
		s.during()
	}
	select {
	case <-time.After(took):
	case <-ctx.Done():
	}
	return answer, err
}

func (s *server) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asked
}

func (s *server) mustBeAsked(t testing.TB, n int) {
	t.Helper()
	testkit.Equal(t, "searches", s.count(), n)
}

// threatening returns a server that knows one threat.
func threatening(ttl time.Duration) (*server, lookup.Prefix) {
	hash := hashOf("bad.example/")
	return &server{answer: lookup.Answer{TTL: ttl, Threats: []lookup.ThreatHash{{Hash: hash, Threats: lookup.AllThreats, TTL: ttl}}}}, hash.Prefix(4)
}

// stored waits until Redis has a value about a prefix, and returns its key.
func stored(t testing.TB, s *testkit.Redis, p lookup.Prefix) string {
	t.Helper()
	key := fmt.Sprintf("safebrowsing:1:{test}:answer:%x", string(p))
	testkit.Until(t, "a value in Redis", func() bool { return s.Do("EXISTS", key) == ":1" })
	return key
}

func search(t testing.TB, a *Answers, prefixes ...lookup.Prefix) lookup.Answer {
	t.Helper()
	answer, err := a.Search(t.Context(), prefixes)
	testkit.Must(t, err)
	return answer
}

// answersOn returns Answers of a server, over a Redis.
func answersOn(t testing.TB, s *testkit.Redis, srv lookup.Searcher) *Answers {
	t.Helper()
	return NewAnswers(openRedis(t, s.URL()), srv)
}

func TestASecondRelayAsksRedisNotTheServerAndRedisLearnsNoNames(t *testing.T) {
	t.Parallel()
	s := testkit.StartRedis(t)
	srv, bad := threatening(5 * time.Minute)
	good := hashOf("good.example/").Prefix(4)
	first, second := answersOn(t, s, srv), answersOn(t, s, srv)
	var told []time.Duration
	second.Clock = func(ahead time.Duration) { told = append(told, ahead) }
	before := time.Now()
	got := search(t, first, bad, good)
	testkit.Equal(t, "earlier answers, and threats of the server", [2]int{len(got.Earlier), len(got.Threats)}, [2]int{0, 1})
	after := time.Now()
	key := stored(t, s, bad)
	got = search(t, second, bad, good)
	for p, threats := range map[lookup.Prefix]int{bad: 1, good: 0} {
		e, ok := got.Earlier[p]
		testkit.Equal(t, "an earlier answer, its TTL and threats", []any{ok, e.TTL, len(e.Threats)}, []any{true, 5 * time.Minute, threats})
		// The clocks of Redis and of a value are in whole milliseconds.
		testkit.Between(t, "received", e.Received.UnixMilli(), before.UnixMilli()-1000, after.UnixMilli()+2)
	}
	srv.mustBeAsked(t, 1)
	testkit.Between(t, "Redis forgets the answer in", life(s, key), 4*time.Minute, 5*time.Minute)
	testkit.Equal(t, "claims that have outlived their search", s.Do("KEYS", "*:claim:*"), "*0")
	// One machine: Redis answers between two looks at one clock.
	testkit.Equal(t, "how far the clock is ahead", told, []time.Duration{0})
	// No key tells a name or the address of a client.
	testkit.Must(t, NewLimits(first.client, Rule{Bucket: lookup.LeakyBucket{Rate: 1, Capacity: 2}}, walled(3)).admits("192.0.2.77"))
	keys := s.Do("KEYS", "*")
	testkit.WantParts(t, keys, ":answer:", ":bucket:", ":share:")
	testkit.WantNone(t, keys, "192.0.2.77", "example")
}

func TestAValueThatCannotBeUsedIsAMiss(t *testing.T) {
	t.Parallel()
	s := testkit.StartRedis(t)
	p, content := sample()
	now := time.Now()
	content.byRedis, content.byWriter = now, now
	old := content
	old.byRedis = now.Add(-time.Minute) // the shorter one of its threats lasts a minute
	for _, tt := range []struct {
		name, value string
		asked       int
		kept        bool
	}{
		{"valid", string(content.encode(p)), 0, true},
		{"garbage", "garbage", 1, false},
		{"empty", "", 1, false},
		{"about another prefix", string(content.encode("abcd")), 1, false},
		{"too large for any relay", strings.Repeat("x", 2<<20), 1, false},
		{"too old", string(old.encode(p)), 1, true},
		{"of a newer format", newerValue(p), 1, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			srv := &server{} // its answers have no TTL, and so are not stored
			a := answersOn(t, s, srv)
			key := a.keysOf([]lookup.Prefix{p})[0]
			s.Do("SET", key, tt.value)
			search(t, a, p)
			srv.mustBeAsked(t, tt.asked)
			want := map[bool]string{true: ":1", false: ":0"}[tt.kept]
			testkit.Until(t, "that the value is there, or deleted: "+want, func() bool { return s.Do("EXISTS", key) == want })
		})
	}
}

// newerValue returns a value of a newer format.
func newerValue(p lookup.Prefix) string {
	value := append([]byte{answerFormat + 1}, "a newer value"...)
	return string(append(value, sumOf(p, value)...))
}

// writeAt stores an answer that was received at a time of this machine, while Redis showed redis at the time at.
func (a *Answers) writeAt(p lookup.Prefix, answer lookup.Answer, received, redis, at time.Time) {
	a.store(&asked{prefixes: []lookup.Prefix{p}, answer: answer, received: received}, redisClock{redis: redis, at: at})
}

func TestAnOlderAnswerDoesNotReplaceAYoungerOne(t *testing.T) {
	t.Parallel()
	s := testkit.StartRedis(t)
	srv, bad := threatening(time.Minute)
	a := answersOn(t, s, srv)
	now := time.Now()
	a.writeAt(bad, srv.answer, now, now, now)
	key := stored(t, s, bad)
	young := s.Do("GET", key)
	a.writeAt(bad, lookup.Answer{TTL: time.Hour}, now, now.Add(-time.Second), now)
	ofNewer, newer := a.keysOf([]lookup.Prefix{"newer"})[0], newerValue("newer")
	s.Do("SET", ofNewer, newer, "PX", "60000")
	a.writeAt("newer", srv.answer, now, now, now)
	a.writeAt("done", lookup.Answer{TTL: time.Hour}, now, now, now) // after those before
	stored(t, s, "done")
	testkit.Equal(t, "the younger answer", s.Do("GET", key), young)
	testkit.Equal(t, "what a relay of a newer version has written", s.Do("GET", ofNewer), fmt.Sprintf("$%d %s", len(newer), newer))
	a.writeAt("jump", srv.answer, now, now.Add(24*time.Hour), now) // the clock of Redis jumps ahead and comes back
	ahead := s.Do("GET", stored(t, s, "jump"))
	a.writeAt("jump", srv.answer, now, now, now)
	testkit.Until(t, "an answer in the place of one of tomorrow", func() bool { return s.Do("GET", stored(t, s, "jump")) != ahead })
}

// Redis compares strings by the locale that it was started with.
func TestTheYoungerAnswerStaysInAnyLocale(t *testing.T) {
	dir := t.TempDir()
	if out, err := exec.Command("localedef", "-i", "en_US", "-f", "UTF-8", filepath.Join(dir, "en_US.UTF-8")).CombinedOutput(); err != nil {
		t.Skipf("no locale can be made: %v %s", err, out)
	}
	t.Setenv("LOCPATH", dir)
	t.Setenv("LC_ALL", "en_US.UTF-8")
	s := testkit.StartRedis(t)
	a := NewAnswers(openRedis(t, s.URL()), nil)
	now := time.Now()
	write := func(p string, received time.Time) {
		a.writeAt(lookup.Prefix(p), lookup.Answer{TTL: time.Hour}, received, now, now)
	}
	const pairs = 40
	for i := range pairs {
		older := now.Add(-time.Duration(i+1) * 977 * time.Millisecond)
		write(fmt.Sprintf("old%c", i), older)
		write(fmt.Sprintf("old%c", i), now)
		write(fmt.Sprintf("new%c", i), now)
		write(fmt.Sprintf("new%c", i), older)
	}
	write("done", now)
	stored(t, s, "done")
	for i := range pairs {
		for _, p := range []lookup.Prefix{lookup.Prefix(fmt.Sprintf("old%c", i)), lookup.Prefix(fmt.Sprintf("new%c", i))} {
			v, err := a.client.Do(t.Context(), "read", "GET", a.keysOf([]lookup.Prefix{p})[:1])
			testkit.Must(t, err)
			got, ok, _ := decode(p, v.Bytes())
			testkit.Equal(t, "an answer about "+string(p)+", and when it came", []any{ok, got.byRedis.UnixMilli()}, []any{true, now.UnixMilli()})
		}
	}
}

func TestSearchesAreMergedAcrossRelays(t *testing.T) {
	t.Parallel()
	s := testkit.StartRedis(t)
	srv, bad := threatening(5 * time.Minute)
	srv.took = 50 * time.Millisecond
	var relays []*Answers
	for range 4 {
		relays = append(relays, answersOn(t, s, srv))
		relays[len(relays)-1].LeastPatience = time.Minute // a busy machine makes a search slow
	}
	var wg sync.WaitGroup
	for _, a := range relays {
		wg.Go(func() {
			answer, err := a.Search(t.Context(), []lookup.Prefix{bad})
			testkit.Is(t, "a search", err, nil)
			testkit.Equal(t, "threats", len(answer.Threats)+len(answer.Earlier[bad].Threats), 1)
		})
	}
	wg.Wait()
	srv.mustBeAsked(t, 1)
}

// A relay whose search fails tells the others, and they ask at once.
func TestASearchThatFailedIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	s := testkit.StartRedis(t)
	broken, bad := threatening(time.Minute)
	broken.err = errors.New("broken")
	broken.during = func() { // the claim does not end by itself
		claim := fmt.Sprintf("safebrowsing:1:{test}:claim:%x", string(bad))
		testkit.Equal(t, "claims during the search", s.Do("PEXPIRE", claim, "3600000"), ":1")
	}
	_, err := NewAnswers(openRedis(t, s.URL()), broken).Search(t.Context(), []lookup.Prefix{bad})
	testkit.Is(t, "the search", err, broken.err)
	testkit.Until(t, "that the claim has ended", func() bool { return s.Do("KEYS", "*:claim:*") == "*0" })
}

// A relay that has died costs others no more than a search takes.
func TestARelayThatDiedIsWaitedForOnce(t *testing.T) {
	long(t)
	s := testkit.StartRedis(t)
	srv, bad := threatening(time.Minute)
	good := hashOf("good.example/").Prefix(4)
	c := openRedis(t, s.URL())
	dead, a := NewAnswers(c, srv), NewAnswers(c, srv)
	dead.LeastPatience = time.Minute // so that its claim lasts on a busy machine
	dead.look([]lookup.Prefix{bad})  // it has the claim, and never asks
	answer := search(t, a, bad, good)
	got := []int{srv.count(), len(answer.Threats), len(answer.Earlier)}
	testkit.Equal(t, "searches (one is late), their threats and earlier answers", got, []int{2, 2, 0})
	stored(t, s, bad)
	stored(t, s, good)
}

// One answer of Redis that is late costs no search: another relay has asked the server.
func TestARedisThatIsLateOnceEndsNoWait(t *testing.T) {
	t.Parallel()
	s := testkit.StartRedis(t)
	srv, bad := threatening(5 * time.Minute)
	search(t, answersOn(t, s, srv), bad)
	stored(t, s, bad)
	c, w := open(t, s.URL(), func(cfg *Config) { cfg.Deadline = 200 * time.Millisecond })
	w.up(t)
	a := NewAnswers(c, srv)
	a.LeastPatience = time.Minute
	s.Do("CLIENT", "PAUSE", "300", "ALL")
	got := a.await(t.Context(), map[lookup.Prefix]time.Duration{bad: 0})
	testkit.Equal(t, "threats that Redis has, and prefixes to ask for", [2]int{len(got.known[bad].Threats), len(got.mine)}, [2]int{1, 0})
}

func TestPatienceIsThatOfASearch(t *testing.T) {
	a := NewAnswers(nil, nil)
	for _, tt := range []struct{ took, want time.Duration }{
		{time.Millisecond, minPatience}, {150 * time.Millisecond, 300 * time.Millisecond}, {10 * time.Second, maxPatience},
	} {
		for range 100 {
			a.learn(tt.took)
		}
		testkit.Between(t, fmt.Sprint("patience after searches of ", tt.took), a.patience(), tt.want-tt.want/100, tt.want+tt.want/100)
	}
}

func TestAClusterKeepsAnswersToo(t *testing.T) {
	long(t)
	nodes := testkit.StartCluster(t)
	srv, bad := threatening(time.Minute)
	a := NewAnswers(openRedis(t, "redis+cluster://"+nodes[2].Addr), srv)
	search(t, a, bad)
	testkit.Until(t, "the answer", func() bool { return len(search(t, a, bad).Earlier) == 1 })
	l := NewLimits(openRedis(t, "redis+cluster://"+nodes[1].Addr), Rule{Bucket: lookup.LeakyBucket{Rate: 0.001, Capacity: 1}}, walled(1))
	testkit.Must(t, l.admits("192.0.2.1"))
	testkit.Is(t, "a second search by another node", NewLimits(a.client, l.rule, walled(1)).admits("192.0.2.1"), lookup.ErrLimited)
}

// However old an answer in Redis is, a threat ends 30 minutes after the server told it, and a client has 10 seconds to get it.
func TestAThreatOfRedisKeepsItsAge(t *testing.T) {
	long(t)
	s := testkit.StartRedis(t)
	srv, bad := threatening(24 * time.Hour)
	a := answersOn(t, s, srv)
	checker := checkerOf(t, a)
	const left = time.Minute
	received := time.Now().Add(left - maxAge)
	ahead := received.Add(time.Hour) // the writer's clock
	a.writeAt(bad, srv.answer, ahead, received, ahead)
	stored(t, s, bad)
	answers, err := checker.Search(t.Context(), []lookup.Prefix{bad}, true, nil, nil)
	if err != nil || answers[0].From != lookup.FromShared || answers[0].TTL > left || answers[0].TTL < left/2 || srv.count() != 0 {
		t.Errorf("Expected a threat of Redis for less than %s, got %+v, %v and %d searches", left, answers, err, srv.count())
	}
}

// An answer holds for what was asked: relays that search for other threats, or did not name them in the key, do not share it.
func TestAnAnswerIsForTheThreatsThatWereAskedFor(t *testing.T) {
	long(t)
	s := testkit.StartRedis(t)
	_, bad := threatening(time.Hour)
	nothing := &server{answer: lookup.Answer{TTL: time.Hour}}
	relay := func(scope string, srv *server) *Answers {
		a := answersOn(t, s, srv)
		a.Scope = scope
		return a
	}
	search(t, relay("malware", nothing), bad)
	testkit.Until(t, "a value in Redis", func() bool { return s.Do("KEYS", "*:answer:malware:*") != "*0" })
	for scope, want := range map[string]int{"malware": 0, "all": 1, "": 1} {
		srv, _ := threatening(0)
		got := search(t, relay(scope, srv), bad)
		testkit.Equal(t, "searches and threats for scope "+scope, [2]int{srv.count(), len(got.Threats)}, [2]int{want, want})
	}
	search(t, relay("", nothing), bad) // as relays of an earlier version do
	stored(t, s, bad)
	srv, _ := threatening(0)
	got := search(t, relay("all", srv), bad)
	testkit.Equal(t, "searches and threats in spite of an old answer", [2]int{srv.count(), len(got.Threats)}, [2]int{1, 1})
}

// The call took from at to back: what Redis said was right at some moment between.
func TestAClockDiffersByWhatASlowRedisDoesNotExplain(t *testing.T) {
	at := time.Now().Round(0)
	for name, test := range map[string]struct {
		redis, took, want time.Duration
	}{
		"right":            {0, 0, 0},
		"right, and slow":  {time.Second, 2 * time.Second, 0},
		"ahead":            {-time.Hour, time.Millisecond, time.Hour - time.Millisecond},
		"ahead, and slow":  {-time.Second, time.Minute, 999 * time.Millisecond},
		"behind":           {time.Hour, 0, -time.Hour},
		"behind, and slow": {time.Minute, 10 * time.Second, -50 * time.Second},
	} {
		testkit.Equal(t, name, ahead(at.Add(test.redis), at, at.Add(test.took)), test.want)
	}
}

func hashOf(expression string) lookup.FullHash { return lookup.HashExpression(expression) }

func sample() (lookup.Prefix, answer) {
	at := time.UnixMilli(1_800_000_000_123)
	return hashOf("bad.example/").Prefix(4), answer{byRedis: at, byWriter: at.Add(time.Second), ttl: 5 * time.Minute, threats: []lookup.ThreatHash{
		{Hash: hashOf("bad.example/"), Threats: lookup.Threats(0).With(lookup.Malware), TTL: 5 * time.Minute},
		{Hash: hashOf("bad.example/"), Threats: lookup.Threats(0).With(lookup.SocialEngineering), TTL: time.Minute, FrameOnly: true},
	}}
}

func TestAValueIsReadAsItWasWrittenAndADamagedOneIsNotBelieved(t *testing.T) {
	p, a := sample()
	for _, want := range []answer{a, {byRedis: a.byRedis, byWriter: a.byWriter, ttl: time.Hour}} {
		got, ok, newer := decode(p, want.encode(p))
		testkit.Equal(t, "read, an answer, of a newer format", []any{got, ok, newer}, []any{want, true, false})
	}
	value := a.encode(p)
	for i := range value {
		for bit := range 8 {
			damaged := slices.Clone(value)
			damaged[i] ^= 1 << bit
			if _, ok, newer := decode(p, damaged); ok || newer {
				t.Fatalf("Byte %d, bit %d: expected no answer, got %t, newer %t", i, bit, ok, newer)
			}
		}
		if _, ok, _ := decode(p, value[:i]); ok {
			t.Fatalf("Expected no answer in the first %d bytes", i)
		}
	}
	_, ok, _ := decode(hashOf("other.example/").Prefix(4), value)
	testkit.Equal(t, "an answer in the value of another prefix", ok, false)
}

// A value that is valid may still be absurd.
func TestBoundsOfAValue(t *testing.T) {
	p, content := sample()
	for n, want := range map[int]bool{maxThreats: true, maxThreats + 1: false} {
		content.threats = make([]lookup.ThreatHash, n)
		_, ok, newer := decode(p, content.encode(p))
		testkit.Equal(t, fmt.Sprint(n, " threats: an answer, of a newer format"), [2]bool{ok, newer}, [2]bool{want, false})
	}
	for _, tt := range []struct{ ttl, want time.Duration }{{-time.Hour, 0}, {1 << 62, 24 * time.Hour}} {
		got, ok, _ := decode(p, answer{ttl: tt.ttl, threats: []lookup.ThreatHash{{TTL: tt.ttl}}}.encode(p))
		if !ok || got.ttl != tt.want || got.threats[0].TTL != tt.want {
			t.Errorf("Expected a TTL of %s instead of %s, got %+v", tt.want, tt.ttl, got)
		}
	}
}

func TestLifeAndAge(t *testing.T) {
	at := time.UnixMilli(1_800_000_000_000)
	threat := func(ttl time.Duration) []lookup.ThreatHash { return []lookup.ThreatHash{{TTL: ttl}} }
	for _, tt := range []struct {
		name            string
		a               answer
		redis, now      time.Duration // since received
		life, wantedAge time.Duration
	}{
		{"no threat", answer{ttl: 24 * time.Hour}, time.Minute, time.Minute, 24 * time.Hour, time.Minute},
		{"no threat for a week", answer{ttl: 7 * 24 * time.Hour}, 0, 0, 24 * time.Hour, 0},
		{"a threat", answer{ttl: 24 * time.Hour, threats: threat(24 * time.Hour)}, 0, 0, 29*time.Minute + 50*time.Second, 0},
		{"a short threat", answer{ttl: time.Hour, threats: threat(time.Minute)}, 0, 0, time.Minute, 0},
		{"the reader's clock is ahead", answer{}, time.Second, time.Minute, 0, time.Minute},
		{"the reader's clock is behind", answer{}, time.Minute, -time.Second, 0, time.Minute},
		{"another Redis whose clock is behind", answer{}, -time.Hour, time.Minute, 0, time.Minute},
		{"received in a moment", answer{}, -time.Millisecond, -time.Second, 0, 0},
		{"received in the future: Redis is on this machine, whose clock was set back", answer{}, -time.Hour, -time.Hour, 0, maxLife},
	} {
		tt.a.byRedis, tt.a.byWriter = at, at
		got := [2]time.Duration{tt.a.life(), tt.a.age(at.Add(tt.redis), at.Add(tt.now))}
		testkit.Equal(t, tt.name+": life and age", got, [2]time.Duration{tt.life, tt.wantedAge})
	}
}

func FuzzDecode(f *testing.F) {
	p, a := sample()
	f.Add(string(p), a.encode(p))
	f.Fuzz(func(t *testing.T, prefix string, value []byte) {
		a, ok, _ := decode(lookup.Prefix(prefix), value)
		if ok && string(a.encode(lookup.Prefix(prefix))) != string(value) && len(a.threats) == 0 {
			t.Errorf("Expected %x, got %x", value, a.encode(lookup.Prefix(prefix)))
		}
	})
}

// checkerOf returns a checker of names that a list holds.
func checkerOf(t *testing.T, searcher lookup.Searcher, listed ...lookup.FullHash) *lookup.Checker {
	t.Helper()
	slices.SortFunc(listed, func(a, b lookup.FullHash) int { return bytes.Compare(a[:], b[:]) })
	b := prefixset.NewBuilder(0)
	for _, hash := range listed {
		testkit.Must(t, b.Add(hash[:4], 4))
	}
	db := new(lookup.Database)
	db.Publish([]lookup.List{{Name: "se-4b", Set: b.Set()}})
	c, err := lookup.NewChecker(lookup.Config{Database: db, Searcher: searcher})
	testkit.Must(t, err)
	t.Cleanup(c.Close)
	return c
}

// Two relays share a Redis, and start again with an empty cache in any order. Whatever servers answer, a threat in Redis decides.
func TestNoOrderOfAnswersOverRedisTurnsAKnownThreatIntoAPass(t *testing.T) {
	testkit.Long(t)
	s := testkit.StartRedis(t)
	hashes := []lookup.FullHash{hashOf("c.b.a.example/"), hashOf("b.a.example/"), hashOf("a.example/")}
	threat := lookup.ThreatHash{Hash: hashes[2], Threats: lookup.AllThreats, TTL: time.Hour}
	known := 0
	for seed := range uint64(30) {
		rng := rand.New(rand.NewPCG(seed, 25))
		s.Do("FLUSHALL")
		srv := new(server)
		clients := []*Answers{NewAnswers(openRedis(t, s.URL()), srv), NewAnswers(openRedis(t, s.URL()), srv)}
		for range 12 {
			srv.mu.Lock() // a search may outlive the decision that began it
			srv.answer = lookup.Answer{TTL: time.Hour, Threats: []lookup.ThreatHash{threat}}
			srv.err = []error{nil, lookup.ErrBackoff, lookup.ErrBudget, errLate, &lookup.UnansweredError{Until: time.Now(), Reason: lookup.ErrShare}}[rng.IntN(5)]
			srv.mu.Unlock()
			if rng.IntN(2) == 0 { // a client of a relay asks about one prefix
				_, _ = clients[rng.IntN(2)].Search(t.Context(), []lookup.Prefix{hashes[rng.IntN(3)].Prefix(4)})
				continue
			}
			inRedis := s.Do("EXISTS", fmt.Sprintf("safebrowsing:1:{test}:answer:%x", string(hashes[2].Prefix(4)))) == ":1"
			c := checkerOf(t, clients[rng.IntN(2)], slices.Clone(hashes)...)
			d, candidates := c.Check(lookup.FromQname("c.b.a.example."))
			if candidates != nil {
				d = c.Confirm(candidates, nil).Wait(t.Context())
			}
			if inRedis {
				known++
			}
			if inRedis && d.Verdict != lookup.Unsafe || d.Verdict == lookup.Safe {
				t.Fatalf("seed %d: %s by %s (%v), in Redis: %t", seed, d.Verdict, d.By, d.Err, inRedis)
			}
		}
	}
	testkit.Between(t, "decisions about a threat in Redis", known, 20, 30*12)
}

// A server hangs. What Redis knows is used at once: in the same search, and of a prefix that another relay was told about meanwhile.
func TestAThreatThatRedisKnowsDoesNotWaitForAServerThatHangs(t *testing.T) {
	for name, late := range map[string]bool{"known before": false, "claimed by another relay": true} {
		t.Run(name, func(t *testing.T) {
			s := testkit.StartRedis(t)
			exact, parent := hashOf("evil.bad.example/"), hashOf("bad.example/")
			srv := &server{answer: lookup.Answer{TTL: time.Hour, Threats: []lookup.ThreatHash{{Hash: parent, Threats: lookup.AllThreats, TTL: time.Hour}}}}
			claimed, answers := make(chan struct{}), make(chan struct{})
			srv.during = func() { close(claimed); <-answers }
			other := NewAnswers(openRedis(t, s.URL()), srv)
			other.LeastPatience = time.Minute // so that its claim lasts on a busy machine
			go func() { _, _ = other.Search(t.Context(), []lookup.Prefix{parent.Prefix(4)}) }()
			<-claimed
			if !late {
				close(answers)
				testkit.Until(t, "the answer in Redis", func() bool { return stored(t, s, parent.Prefix(4)) != "" })
			}
			hanging, asked := &server{took: time.Hour, err: errLate}, make(chan struct{})
			hanging.during = func() { close(asked) }
			one := NewAnswers(openRedis(t, s.URL()), hanging)
			one.LeastPatience = time.Minute
			c := checkerOf(t, one, exact, parent)
			if late {
				go func() { <-asked; close(answers) }()
			}
			_, candidates := c.Check(lookup.FromQname("evil.bad.example."))
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second) // the search ends after 10
			defer cancel()
			d := c.Confirm(candidates, nil).Wait(ctx)
			testkit.Equal(t, d.Err, []any{d.Verdict, d.By, d.Expression}, []any{lookup.Unsafe, lookup.ByServer, "bad.example/"})
		})
	}
}
