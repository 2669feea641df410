package lookup

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
)

func prefixesOf(expressions ...string) (all []Prefix) {
	for _, e := range expressions {
		all = append(all, HashExpression(e).Prefix(4))
	}
	return all
}

// searchOf asks about expressions, as a relay does.
func searchOf(c *Checker, admit Admit, expressions ...string) ([]PrefixAnswer, error) {
	return c.Search(context.Background(), prefixesOf(expressions...), false, admit.All(), nil)
}

// oneAnswer asks about one expression.
func oneAnswer(t testing.TB, c *Checker, expression string) PrefixAnswer {
	t.Helper()
	answers, err := searchOf(c, nil, expression)
	testkit.Must(t, err)
	return answers[0]
}

// A client may get the answer 10 seconds later, its own clients after 10 more, and a threat must not be older than 30 minutes then.
func TestAPrefixAnswerTellsItsRemainingTTL(t *testing.T) {
	type step struct {
		after     time.Duration
		bad, good time.Duration // TTL of an answer with a threat, and without
		asked     int           // searches in all
	}
	const half = 29*time.Minute + 50*time.Second
	for ttl, steps := range map[time.Duration][]step{
		5 * time.Minute: {
			{0, 5*time.Minute - 10*time.Second, 5 * time.Minute, 2}, {0, 5*time.Minute - 10*time.Second, 5 * time.Minute, 2},
			{time.Minute, 4*time.Minute - 10*time.Second, 4 * time.Minute, 2}, {4 * time.Minute, 0, 0, 2},
			{time.Nanosecond, 5*time.Minute - 10*time.Second, 5 * time.Minute, 4},
		},
		24 * time.Hour: {
			{0, half - 10*time.Second, 24 * time.Hour, 2}, {half, 0, 24*time.Hour - half, 2}, {time.Nanosecond, half - 10*time.Second, 24*time.Hour - half - 1, 3},
		},
	} {
		inBubble(t, ttl.String(), func(t *testing.T) {
			asked := 0
			c := checkerOf(t, Config{Searcher: searchFunc(func(context.Context, []Prefix) (Answer, error) {
				asked++
				return Answer{TTL: ttl, Threats: []ThreatHash{lasting(ttl, isThreat("bad.example/", Malware))}}, nil
			})}, "bad.example/", "good.example/")
			for i, step := range steps {
				time.Sleep(step.after)
				before := asked
				bad := oneAnswer(t, c, "bad.example/")
				from := map[bool]Origin{true: FromServer, false: FromCache}[asked > before]
				good := oneAnswer(t, c, "good.example/")
				got := []any{bad.TTL, good.TTL, bad.From, len(bad.Threats), len(good.Threats), asked}
				testkit.Equal(t, fmt.Sprint("step ", i+1), got, []any{step.bad, step.good, from, 1, 0, step.asked})
			}
			unlisted := oneAnswer(t, c, "other.example/")
			testkit.Equal(t, "a prefix in no list", []any{unlisted.From, unlisted.TTL, len(unlisted.Threats)}, []any{FromLists, time.Minute, 0})
		})
	}
}

// A search is new, or for a name that is popular again within another life of its answer, or expired.
func TestAPrefixAnswerTellsWhyTheServerWasAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := &server{t: t}
		srv.knows(5*time.Minute, isThreat("bad.example/", Malware))
		c := checkerOf(t, Config{Searcher: srv}, "bad.example/", "good.example/")
		for _, step := range []struct {
			after time.Duration
			want  Reason
		}{
			{0, ReasonNew},
			{5*time.Minute + 1, ReasonPopular},
			{10 * time.Minute, ReasonPopular},
			{10*time.Minute + 1, ReasonExpired},
			{24 * time.Hour, ReasonExpired},
		} {
			time.Sleep(step.after)
			for _, expression := range []string{"bad.example/", "good.example/"} {
				got := oneAnswer(t, c, expression)
				testkit.Equal(t, expression, []any{got.From, got.Reason}, []any{FromServer, step.want})
			}
		}
	})
}

func TestWhichPrefixesAPrefixSearchAsksAbout(t *testing.T) {
	hash := HashExpression("bad.example/")
	longer := func(n int, last byte) []byte {
		e := slices.Clone(hash[:n])
		e[n-1] = last
		return e
	}
	short, prefix := Prefix(hash[:4]), func(n int, last byte) Prefix { return Prefix(longer(n, last)) }
	asStored := Config{AsStored: true}
	var many [][]byte
	for i := range MaxPrefixes + 1 {
		many = append(many, longer(5, byte(i)))
	}
	for _, tc := range []struct {
		name    string
		entries [][]byte
		cfg     Config
		told    bool // the caller may know that a list is missing
		want    []Prefix
	}{
		{"in no list", nil, Config{}, false, nil},
		{"in no list, but told to ask", nil, Config{}, true, []Prefix{short}},
		{"in no list, mode realtime", nil, Config{Mode: RealTime}, false, []Prefix{short}},
		{"in no list, mode nostorage", nil, Config{Mode: NoStorage}, false, []Prefix{short}},
		{"4 bytes", [][]byte{hash[:4]}, Config{}, false, []Prefix{short}},
		{"longer, cut", [][]byte{longer(5, 1), longer(8, 2)}, Config{}, false, []Prefix{short}},
		{"longer, as stored", [][]byte{longer(5, 1), longer(8, 2)}, asStored, false, shortest([]Prefix{prefix(5, 1), prefix(8, 2)})},
		{"4 bytes and longer, as stored", [][]byte{hash[:4], longer(8, 2)}, asStored, false, []Prefix{short}},
		{"5 bytes and longer, as stored", [][]byte{hash[:5], longer(6, 1), longer(6, 2)}, asStored, false, []Prefix{Prefix(hash[:5])}},
		{"too many, as stored", many, asStored, false, []Prefix{short}},
	} {
		srv, half := &server{t: t}, len(tc.entries)/2
		lists := []List{{Name: "a", Set: setOf(tc.entries[:half])}, {Name: "b", Set: setOf(tc.entries[half:])}}
		tc.cfg.Database, tc.cfg.Searcher = databaseOf(lists...), srv
		_, err := checkerOf(t, tc.cfg).Search(t.Context(), []Prefix{short}, tc.told, nil, nil)
		testkit.Must(t, err)
		testkit.Equal(t, tc.name+": asked about", slices.Concat(srv.searches()...), tc.want)
	}
}

// What is known is told, and of the others, why it is not.
func TestAPrefixSearchTellsWhatItKnowsThoughAnotherPrefixFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		trouble := errors.New("trouble")
		c := checkerOf(t, Config{PerSearch: 1, Searcher: searchFunc(func(_ context.Context, prefixes []Prefix) (Answer, error) {
			if prefixes[0] == prefixOf(1) {
				return Answer{}, trouble
			}
			return Answer{TTL: time.Minute, Threats: []ThreatHash{lasting(time.Minute, isThreat(expressed(2), Malware))}}, nil
		})}, manyExpressed(3)...)
		answers, err := searchOf(c, nil, manyExpressed(3)...)
		testkit.Is(t, "an error about one", err, trouble)
		var got [][]any
		for _, a := range answers {
			got = append(got, []any{a.Err, a.TTL, len(a.Threats)})
		}
		want := [][]any{{nil, time.Minute, 0}, {trouble, answers[1].TTL, 0}, {nil, 50 * time.Second, 1}}
		testkit.Equal(t, "answers", got, want)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		blocked := checkerOf(t, Config{Searcher: searchFunc(hanging)}, expressed(0))
		_, err = blocked.Search(ctx, []Prefix{prefixOf(0)}, false, nil, nil)
		testkit.Is(t, "ended", err, context.Canceled)
		blocked.Close()
		_, err = blocked.Search(t.Context(), []Prefix{prefixOf(0)}, false, nil, nil)
		testkit.Is(t, "closed", err, ErrClosed)
	})
}

// A threat that has the prefix of an expression, and is another one, decides nothing.
func TestAURLWaitsForTheAnswersAboutAllItsExpressions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		page, other := isThreat("evil.example/login", Malware), isThreat("evil.example/", Malware)
		other.Hash[20]++
		c := checkerOf(t, Config{PerSearch: 1, Searcher: searchFunc(func(_ context.Context, prefixes []Prefix) (Answer, error) {
			if prefixes[0] == other.Hash.Prefix(4) {
				return Answer{TTL: time.Minute, Threats: []ThreatHash{lasting(time.Minute, other)}}, nil
			}
			time.Sleep(time.Second)
			return Answer{TTL: time.Minute, Threats: []ThreatHash{lasting(time.Minute, page)}}, nil
		})}, "evil.example/login", "evil.example/")
		u, err := ParseURL("http://evil.example/login")
		testkit.Must(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		d := c.CheckURL(ctx, u)
		testkit.Equal(t, "decision", []any{d.Verdict, d.Expression}, []any{Unsafe, "evil.example/login"})
	})
}

// One request about many prefixes must cost a client as much as many requests.
func TestAPrefixSearchIsAdmittedForEachRequest(t *testing.T) {
	for _, tc := range []struct {
		prefixes, perSearch int
		want                int // calls of admit
	}{{1, 0, 1}, {240, 0, 1}, {241, 0, 2}, {1000, 0, 5}, {3, 1, 3}} {
		for allowed := tc.want; allowed >= tc.want-1; allowed-- {
			calls, refunds := 0, 0
			admit := func() (func(), error) {
				if calls++; calls > allowed {
					return nil, ErrLimited
				}
				return func() { refunds++ }, nil
			}
			srv := &server{t: t}
			srv.always(Answer{}, ErrBackoff)
			c := checkerOf(t, Config{Searcher: srv, PerSearch: tc.perSearch}, manyExpressed(tc.prefixes)...)
			answers, err := searchOf(c, admit, manyExpressed(tc.prefixes)...)
			c.Close()
			refused := slices.DeleteFunc(answers, func(a PrefixAnswer) bool { return !errors.Is(a.Err, ErrLimited) })
			got := []any{len(slices.Concat(srv.searches()...)), len(refused), err != nil, calls, refunds}
			sent := min(tc.prefixes, allowed*cmp.Or(tc.perSearch, MaxPrefixes), maxQueued)
			what := fmt.Sprintf("%+v, %d allowed: sent, refused, an error, calls, refunds", tc, allowed)
			testkit.Equal(t, what, got, []any{sent, tc.prefixes - sent, true, tc.want, allowed})
		}
	}
}

func TestListingsSayWhichListsHoldAPrefixAndWhatIsCached(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := &server{t: t}
		srv.knows(5*time.Minute, isThreat("bad.example/", Malware))
		safe := listOf("gc-32b", "good.example/", "safe.example/")
		safe.LikelySafe = true
		database := databaseOf(listOf("se-4b", "bad.example/", "both.example/"), listOf("mw-4b", "both.example/"), safe)
		c := checkerOf(t, Config{Searcher: srv, Database: database})
		want := func(when string, searches, ask int) {
			t.Helper()
			want := []Listing{{}, {[]string{"se-4b"}, ask}, {[]string{"se-4b", "mw-4b"}, 1}, {}}
			got := c.Listings(prefixesOf("clean.example/", "bad.example/", "both.example/", "safe.example/"))
			testkit.Equal(t, when, []any{got, len(srv.searches())}, []any{want, searches})
		}
		want("before a search", 0, 1)
		oneAnswer(t, c, "bad.example/")
		want("after a search", 1, 0)
		time.Sleep(5*time.Minute + time.Nanosecond)
		want("when the answer has expired", 1, 1)
	})
}

// What nobody waits for begins when no query waits, and leaves half of the slots for those that come.
func TestIdleWaitsForTheQueriesThatWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := &server{t: t, OnSearch: slowly(10*time.Second, Answer{TTL: time.Minute})}
		names := []string{"a.example/", "b.example/", "c.example/", "d.example/"}
		c := checkerOf(t, Config{Searcher: srv, Searches: 2, Timeout: time.Hour}, names...)
		begun := time.Now()
		testkit.Equal(t, "without a query", []any{c.Idle(t.Context()), time.Since(begun)}, []any{nil, time.Duration(0)})
		for _, name := range names {
			go searchOf(c, nil, name)
			time.Sleep(time.Second) // the first two begin a search, and the others wait together for the end of the first
		}
		testkit.Equal(t, "the end of the second search", []any{c.Idle(t.Context()), time.Since(begun)}, []any{nil, 11 * time.Second})
		time.Sleep(time.Minute)
	})
}

func TestIdleEndsWithItsContextAndWithTheChecker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := &server{t: t, OnSearch: hanging}
		c := checkerOf(t, Config{Searcher: srv, Searches: 1, Timeout: time.Hour}, "a.example/")
		go searchOf(c, nil, "a.example/")
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		testkit.Is(t, "idle, until the context ends", c.Idle(ctx), context.DeadlineExceeded)
		testkit.Equal(t, "watchers that are left", len(c.searching.watchers), 0)
		idle := make(chan error, 1)
		go func() { idle <- c.Idle(t.Context()) }()
		synctest.Wait()
		c.Close()
		testkit.Is(t, "idle, until the end", <-idle, ErrClosed)
		testkit.Is(t, "idle, afterwards", c.Idle(t.Context()), ErrClosed)
	})
}
