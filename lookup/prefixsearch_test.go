package lookup

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
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
		after, bad, good time.Duration // the last two: TTL of an answer with a threat, and without
		asked            int           // searches in all
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

// earlier returns an answer about one prefix that a Searcher had.
func earlier(ttl time.Duration, threats ...ThreatHash) EarlierAnswer {
	e := EarlierAnswer{Received: time.Now(), TTL: ttl}
	for _, t := range threats {
		e.Threats = append(e.Threats, lasting(max(ttl, time.Minute), t))
	}
	return e
}

// A query may have read the clock a moment before the answer came.
func TestAnAnswerInPartIsNoneForAQueryFromBeforeIt(t *testing.T) {
	c, hash, now := newCache(10), HashExpression("other.example/"), time.Now()
	threat := lasting(time.Minute, ThreatHash{Hash: neighbour(hash, 4), Threats: AllThreats})
	c.put(hash.Prefix(4), serverAnswer{received: now.Add(time.Millisecond), ttl: -1, threats: []ThreatHash{threat}})
	_, other := c.get(hash, now)
	_, known := c.get(threat.Hash, now)
	testkit.Equal(t, "answers about what is not known and about the threat", []bool{other, known}, []bool{false, true})
}

// A relay's refusal is about the prefixes without an answer, for the time that it says.
func TestOnlyPrefixesWithoutAnAnswerWaitAndForAMinuteAtMost(t *testing.T) {
	for _, says := range []time.Duration{time.Second, time.Minute, 24 * time.Hour} {
		waits := min(says, time.Minute)
		synctest.Test(t, func(t *testing.T) {
			srv := &server{t: t}
			srv.always(Answer{}, &UnansweredError{Until: time.Now().Add(says), Reason: ErrShare})
			c := checkerOf(t, Config{Searcher: srv}, "bad.example/", "other.example/")
			var asks account
			ask := func(qname string) Decision { return c.Confirm(suspectAfter(t, c, qname), asks.admit).Wait(t.Context()) }
			decided(t, "refused", ask("bad.example."), Unsure, ByBudget)
			srv.knows(time.Minute, isThreat("bad.example/", Malware), isThreat("other.example/", Malware))
			time.Sleep(waits - time.Nanosecond)
			decided(t, fmt.Sprint("just before the end of ", says), ask("bad.example."), Unsure, ByBudget)
			answers, err := searchOf(c, nil, "bad.example/")
			testkit.Is(t, fmt.Sprint("as a relay, just before the end of ", says), err, ErrShare)
			testkit.Is(t, "the answer", answers[0].Err, ErrShare)
			testkit.Equal(t, "another name", ask("other.example.").Verdict, Unsafe)
			testkit.Equal(t, "charged, refunded, searches", []any{asks.charged - asks.refunded, len(srv.searches())}, []any{1, 2})
			time.Sleep(time.Nanosecond)
			testkit.Equal(t, fmt.Sprint("after ", waits), []any{ask("bad.example.").Verdict, len(srv.searches())}, []any{Unsafe, 3})
		})
	}
}

// Answers of version 4 and of Web Risk may end before their threats. A relay that cannot ask again knows these still.
func TestAThreatOutlivesItsAnswerWhenTheServerCannotBeAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := &server{t: t}
		srv.always(Answer{TTL: time.Minute, Threats: []ThreatHash{lasting(20*time.Minute, isThreat("bad.example/", Malware))}}, nil)
		c := checkerOf(t, Config{Searcher: srv}, "bad.example/")
		oneAnswer(t, c, "bad.example/")
		srv.always(Answer{}, ErrBackoff)
		for _, after := range []time.Duration{2 * time.Minute, 17 * time.Minute} {
			time.Sleep(after)
			answers, err := searchOf(c, nil, "bad.example/")
			testkit.Is(t, after, err, ErrBackoff)
			testkit.Equal(t, after, []any{len(answers[0].Threats), answers[0].TTL <= 18*time.Minute}, []any{1, true})
		}
		time.Sleep(time.Minute + time.Nanosecond)
		answers, _ := searchOf(c, nil, "bad.example/")
		testkit.Equal(t, "threats after the end", len(answers[0].Threats), 0)
	})
}

// An answer that the Searcher had before keeps its own age.
func TestAnEarlierAnswerIsNoNewerThanItIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bad, good := HashExpression("bad.example/").Prefix(4), HashExpression("good.example/").Prefix(4)
		const left = 9*time.Minute + 40*time.Second
		var sent []Prefix
		c := checkerOf(t, Config{Searcher: searchFunc(func(_ context.Context, prefixes []Prefix) (Answer, error) {
			a := Answer{TTL: time.Hour, Earlier: make(map[Prefix]EarlierAnswer)}
			for _, p := range prefixes {
				if p == bad {
					a.Earlier[p] = EarlierAnswer{Received: time.Now().Add(-20 * time.Minute), TTL: 24 * time.Hour,
						Threats: []ThreatHash{lasting(24*time.Hour, isThreat("bad.example/", Malware))}}
				} else {
					sent = append(sent, p)
				}
			}
			return a, nil
		})}, "bad.example/", "good.example/")
		account := new(account)
		answers, err := searchOf(c, account.admit, "bad.example/")
		testkit.Must(t, err)
		got := []any{answers[0].From, answers[0].TTL, len(answers[0].Threats)}
		testkit.Equal(t, "a threat of 20 minutes ago, from the other cache", got, []any{FromShared, left, 1})
		testkit.Equal(t, "charged, and refunded since it was not sent", []any{account.charged, account.refunded}, []any{1, 1})
		d := decide(t, c, "bad.example.")
		testkit.Equal(t, "decided, until", []any{d.By, time.Until(d.Expires)}, []any{ByCache, 10 * time.Minute})

		time.Sleep(time.Hour)
		answers, err = searchOf(c, account.admit, "good.example/", "bad.example/")
		testkit.Must(t, err)
		got = []any{answers[0].From, answers[0].TTL, answers[1].From, answers[1].TTL}
		testkit.Equal(t, "each prefix has its own origin and time", got, []any{FromServer, time.Hour, FromShared, left})
		testkit.Equal(t, "sent, charged, refunded", []any{sent, account.charged, account.refunded}, []any{[]Prefix{good}, 2, 1})

		time.Sleep(time.Hour)
		d = c.Confirm(suspectAfter(t, c, "bad.example."), nil).Wait(t.Context())
		testkit.Equal(t, "decided again, until", []any{d.Verdict, time.Until(d.Expires)}, []any{Unsafe, 10 * time.Minute})
	})
}

// Admission may ask another machine. Other queries go on meanwhile.
func TestAdmissionOfASearchDoesNotLockTheChecker(t *testing.T) {
	srv := &server{t: t}
	srv.knows(5 * time.Minute)
	c := checkerOf(t, Config{Searcher: srv}, "bad.example/")
	refunded := 0
	answers, err := c.Search(t.Context(), prefixesOf("bad.example/"), false, func(n int) (int, func(), error) {
		testkit.Equal(t, "searches", n, 1)
		oneAnswer(t, c, "bad.example/") // another query has the same wish
		return n, func() { refunded++ }, nil
	}, nil)
	testkit.Must(t, err)
	testkit.Equal(t, "from, refunds, searches", []any{answers[0].From, refunded, len(srv.searches())}, []any{FromCache, 1, 1})
}

// within returns the decision on a host that is confirmed for half a second, and how long it took.
func within(t *testing.T, c *Checker, qname string) (Decision, time.Duration) {
	t.Helper()
	begun := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	return confirmed(ctx, c, qname, nil), time.Since(begun)
}

// Each query of a merged search continues when its own prefix is known, and nobody is asked twice about what is under way.
func TestEachNameOfAMergedSearchGoesOnWhenItIsKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bad, good := HashExpression("bad.example/").Prefix(4), HashExpression("good.example/").Prefix(4)
		known := map[Prefix]EarlierAnswer{bad: earlier(time.Minute, isThreat("bad.example/", Malware)), good: earlier(time.Minute)}
		srv := &server{t: t, OnSearch: func(ctx context.Context, prefixes []Prefix) (Answer, error) {
			answer := Answer{Earlier: maps.Clone(known)}
			maps.DeleteFunc(answer.Earlier, func(p Prefix, _ EarlierAnswer) bool { return !slices.Contains(prefixes, p) })
			Tell(ctx, slices.Collect(maps.Keys(answer.Earlier)), answer) // what another cache knows, before the server hangs
			if len(answer.Earlier) == len(prefixes) {
				return answer, nil
			}
			time.Sleep(9 * time.Second)
			return answer, errors.New("trouble")
		}}
		c := checkerOf(t, Config{Searcher: srv, Searches: 2}, "bad.example/", "good.example/", "new.example/", "first.example/")
		go within(t, c, "first.example.") // it takes a slot, so that the others wait for some milliseconds
		synctest.Wait()
		for qname, want := range map[string]Verdict{"bad.example.": Unsafe, "good.example.": Safe, "new.example.": Unsure} {
			go func() {
				d, took := within(t, c, qname)
				testkit.Equal(t, qname+": late", []any{d.Verdict, took > 100*time.Millisecond}, []any{want, want == Unsure})
			}()
		}
		time.Sleep(time.Second)
		searches := srv.searches()
		testkit.Equal(t, "searches, and prefixes, three in the second one", []int{len(searches), len(slices.Concat(searches...))}, []int{2, 4})
		for _, qname := range []string{"bad.example.", "good.example.", "new.example."} {
			within(t, c, qname)
		}
		testkit.Equal(t, "searches, where all is known or under way", len(srv.searches()), 2)
		time.Sleep(10 * time.Second)
		d, _ := within(t, c, "bad.example.")
		decided(t, "after the end of the search", d, Unsafe, ByCache)
	})
}

// A late Tell, or one without a Checker, changes nothing.
func TestNobodyListensToALateTell(t *testing.T) {
	Tell(t.Context(), []Prefix{"abcd"}, Answer{})
	synctest.Test(t, func(t *testing.T) {
		bad := HashExpression("bad.example/").Prefix(4)
		var late context.Context
		srv := &server{t: t, OnSearch: func(ctx context.Context, _ []Prefix) (Answer, error) {
			late = ctx
			return Answer{TTL: time.Minute}, nil
		}}
		c := checkerOf(t, Config{Searcher: srv}, "bad.example/")
		within(t, c, "bad.example.")
		Tell(late, []Prefix{bad}, Answer{Earlier: map[Prefix]EarlierAnswer{bad: earlier(time.Minute, isThreat("bad.example/", Malware))}})
		d, _ := within(t, c, "bad.example.")
		testkit.Equal(t, "after a late Tell", d.Verdict, Safe)
	})
}

// shareSpent admits nothing.
func shareSpent() (refund func(), err error) { return nil, ErrShare }

// knowingServer answers with threats at once, or what is only known from known after a second.
func knowingServer(t *testing.T, known ...ThreatHash) (srv *server, onlyKnown *int) {
	srv, onlyKnown = &server{t: t}, new(int)
	srv.OnSearch = func(ctx context.Context, prefixes []Prefix) (Answer, error) {
		if !OnlyKnown(ctx) {
			return Answer{TTL: time.Hour, Threats: []ThreatHash{isThreat("bad.example/", Malware), isThreat("new.example/", Malware)}}, nil
		}
		*onlyKnown++
		time.Sleep(time.Second)
		answer := Answer{Earlier: make(map[Prefix]EarlierAnswer)}
		for _, p := range prefixes {
			for _, k := range known {
				if p.begins(k.Hash) {
					answer.Earlier[p] = earlier(time.Minute, k)
				}
			}
		}
		if len(answer.Earlier) < len(prefixes) {
			return answer, &UnansweredError{Until: time.Now().Add(time.Minute), Reason: ErrShare}
		}
		return answer, nil
	}
	return srv, onlyKnown
}

// A relay is asked for what it knows once a minute, apart from the searches of others.
func TestAClientWhoseShareIsSpentLearnsWhatIsKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv, onlyKnown := knowingServer(t, isThreat("bad.example/", Malware))
		c := checkerOf(t, Config{Searcher: srv, Known: true}, "bad.example/", "new.example/")
		confirm := func(qname string, admit Admit) Decision { return confirmed(t.Context(), c, qname, admit) }
		for _, by := range []Decider{ByServer, ByCache} {
			decided(t, "a known threat", confirm("bad.example.", shareSpent), Unsafe, by)
		}
		for range 3 {
			d := confirm("new.example.", shareSpent)
			decided(t, "what is not known", d, Unsure, ByBudget)
			testkit.Is(t, "what is not known", d.Err, ErrShare)
		}
		testkit.Equal(t, "times that what is known is asked for", *onlyKnown, 2)
		time.Sleep(MaxUnanswered)
		begun := time.Now()
		done := make(chan Decision)
		go func() { done <- confirm("new.example.", shareSpent) }()
		synctest.Wait()
		d := confirm("new.example.", nil)
		testkit.Equal(t, "another client with a share, at once", []any{d.Verdict, time.Since(begun)}, []any{Unsafe, time.Duration(0)})
		testkit.Equal(t, "the first client", (<-done).Verdict, Unsafe)
		testkit.Equal(t, "times that what is known is asked for", *onlyKnown, 3)
	})
}

// Only a share that is spent asks for what is known, and only a Searcher that may know it.
func TestARefusalOfAnotherKindAsksNobody(t *testing.T) {
	for name, tc := range map[string]struct {
		known bool
		err   error
	}{"limited": {true, ErrLimited}, "a server that knows nothing for free": {false, ErrShare}} {
		srv := &server{t: t}
		c := checkerOf(t, Config{Searcher: srv, Known: tc.known}, "bad.example/")
		refuse := func() (func(), error) { return nil, tc.err }
		d := confirmed(t.Context(), c, "bad.example.", refuse)
		_, err := searchOf(c, refuse, "bad.example/")
		testkit.Is(t, name+": as a relay", err, tc.err)
		testkit.Equal(t, name+": decided, searches", []any{d.Verdict, d.Err, len(srv.searches())}, []any{Unsure, tc.err, 0})
	}
}

// A relay asks for what is known in the same way.
func TestARelayAsksForWhatIsKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv, onlyKnown := knowingServer(t, isThreat("bad.example/", Malware))
		c := checkerOf(t, Config{Searcher: srv, Known: true}, "bad.example/", "new.example/")
		answers, err := searchOf(c, shareSpent, "bad.example/", "new.example/")
		testkit.Is(t, "one is not known", err, ErrShare)
		testkit.Is(t, "the other", answers[1].Err, ErrShare)
		got := []any{len(answers[0].Threats), answers[0].Err, answers[0].From, *onlyKnown}
		testkit.Equal(t, "threats, error, origin, times that it was asked", got, []any{1, nil, FromShared, 1})
	})
}

// A server that hangs takes all slots. What is known waits for none, and is not searched for when one is free.
func TestWhatIsKnownDoesNotWaitForASlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		known, _ := knowingServer(t, isThreat("bad.example/", Malware))
		var searched []Prefix
		hung := make(chan struct{})
		srv := searchFunc(func(ctx context.Context, prefixes []Prefix) (Answer, error) {
			if OnlyKnown(ctx) {
				return known.Search(ctx, prefixes)
			}
			<-hung
			searched = append(searched, prefixes...)
			return Answer{TTL: time.Hour}, nil
		})
		refunds := 0
		c := checkerOf(t, Config{Searcher: srv, Known: true, Searches: 1}, "slow.example/", "bad.example/", "new.example/")
		slow := c.Confirm(suspect(t, c, "slow.example."), nil)
		synctest.Wait()
		admit := func() (func(), error) { return func() { refunds++ }, nil }
		unknown := c.Confirm(suspect(t, c, "new.example."), admit)
		begun := time.Now()
		testkit.Equal(t, "a known threat", confirmed(t.Context(), c, "bad.example.", admit).Verdict, Unsafe)
		testkit.Between(t, "the time that it took", time.Since(begun), 0, 2*time.Second)
		close(hung)
		verdicts := []Verdict{slow.Wait(t.Context()).Verdict, unknown.Wait(t.Context()).Verdict}
		testkit.Equal(t, "slow and new", verdicts, []Verdict{Safe, Safe})
		testkit.Equal(t, "searched", searched, prefixesOf("slow.example/", "new.example/"))
		testkit.Between(t, "refunds", refunds, 0, 1)
	})
}
