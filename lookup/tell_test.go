package lookup

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// telling is a server that hangs for 9 seconds. Before, the Searcher tells what another cache knows.
func telling(t *testing.T, known map[Prefix]EarlierAnswer) *server {
	srv := &server{t: t}
	srv.OnSearch = func(ctx context.Context, prefixes []Prefix) (Answer, error) {
		answer := Answer{Earlier: make(map[Prefix]EarlierAnswer)}
		var told []Prefix
		for _, p := range prefixes {
			if e, ok := known[p]; ok {
				answer.Earlier[p] = e
				told = append(told, p)
			}
		}
		Tell(ctx, told, answer)
		if len(told) == len(prefixes) {
			return answer, nil
		}
		time.Sleep(9 * time.Second)
		return answer, errors.New("trouble")
	}
	return srv
}

// within returns the decision on a host that is confirmed for half a second, and how long it took.
func within(t *testing.T, c *Checker, qname string) (Decision, time.Duration) {
	t.Helper()
	begun := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	d, candidates := c.Check(FromQname(qname))
	if candidates != nil {
		d = c.Confirm(candidates, nil).Wait(ctx)
	}
	return d, time.Since(begun)
}

// The exact host, which comes first, is with a server that hangs. Its parent is known, in the same search
// or in another one.
func TestAThreatThatIsKnownDoesNotWaitForTheRest(t *testing.T) {
	parent := HashExpression("bad.example/").Prefix(4)
	for name, before := range map[string]string{"in one search": "", "in two": "a.bad.example."} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				known := map[Prefix]EarlierAnswer{parent: earlier(time.Minute, isThreat("bad.example/", Malware))}
				c := checkerOf(t, Config{Searcher: telling(t, known)}, "bad.example/", "a.bad.example/")
				if before != "" { // it has asked about the exact host alone
					_, _ = searchWithin(t, c, time.Second, "a.bad.example/")
				}
				for _, by := range []Decider{ByServer, ByCache} {
					if d, took := within(t, c, "a.bad.example."); d.Verdict != Unsafe || d.By != by || took > 100*time.Millisecond {
						t.Errorf("after %s: %+v, want unsafe by %s", took, d, by)
					}
				}
			})
		})
	}
}

// searchWithin asks as a relay does.
func searchWithin(t *testing.T, c *Checker, limit time.Duration, expressions ...string) ([]PrefixAnswer, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	var prefixes []Prefix
	for _, e := range expressions {
		prefixes = append(prefixes, HashExpression(e).Prefix(4))
	}
	return c.Search(ctx, prefixes, false, nil, nil)
}

// Queries for several names are merged into one search. Each continues when its own prefix is known;
// no answer is kept for longer than it lives; and nobody is asked twice about what is under way.
func TestEachNameOfAMergedSearchGoesOnWhenItIsKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bad, good := HashExpression("bad.example/").Prefix(4), HashExpression("good.example/").Prefix(4)
		known := map[Prefix]EarlierAnswer{bad: earlier(time.Minute, isThreat("bad.example/", Malware)), good: earlier(time.Minute)}
		srv := telling(t, known)
		c := checkerOf(t, Config{Searcher: srv, Searches: 2}, "bad.example/", "good.example/", "new.example/", "first.example/")
		go within(t, c, "first.example.") // it takes a slot, so that the others wait for some milliseconds
		synctest.Wait()
		for qname, want := range map[string]Verdict{"bad.example.": Unsafe, "good.example.": Safe, "new.example.": Unsure} {
			go func() {
				if d, took := within(t, c, qname); d.Verdict != want || (took > 100*time.Millisecond) != (want == Unsure) {
					t.Errorf("%s after %s: %+v, want %s", qname, took, d, want)
				}
			}()
		}
		time.Sleep(time.Second)
		if n := len(srv.searches()); n != 2 || len(srv.searches()[1]) != 3 {
			t.Errorf("searches %x, want the second one for three prefixes", srv.searches())
		}
		for _, qname := range []string{"bad.example.", "good.example.", "new.example."} {
			within(t, c, qname)
		}
		if n := len(srv.searches()); n != 2 {
			t.Errorf("%d searches, want 2: all is known or under way", n)
		}
		time.Sleep(10 * time.Second)
		if d, _ := within(t, c, "bad.example."); d.Verdict != Unsafe || d.By != ByCache {
			t.Errorf("after the end of the search: %+v", d)
		}
	})
}

// The end of a search does not replace what has been learnt since about a prefix that was told.
func TestTheEndOfASearchDoesNotReplaceAYoungerAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bad := HashExpression("bad.example/").Prefix(4)
		known := map[Prefix]EarlierAnswer{bad: earlier(time.Second)}
		c := checkerOf(t, Config{Searcher: telling(t, known)}, "bad.example/", "new.example/")
		_, _ = searchWithin(t, c, time.Second, "bad.example/", "new.example/")
		time.Sleep(time.Second)
		known[bad] = earlier(time.Minute, isThreat("bad.example/", Malware))
		for range 2 {
			if d, _ := within(t, c, "bad.example."); d.Verdict != Unsafe {
				t.Errorf("%+v", d)
			}
			time.Sleep(9 * time.Second)
		}
	})
}

// Of a prefix some threats are known. The rest is asked about, and a query for a threat does not pass.
func TestAThreatOfAPrefixThatIsKnownInPartDoesNotPass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bad, fresh := HashExpression("bad.example/").Prefix(4), HashExpression("new.example/").Prefix(4)
		srv := &server{t: t}
		srv.OnSearch = func(ctx context.Context, _ []Prefix) (Answer, error) {
			Tell(ctx, []Prefix{bad, fresh}, Answer{TTL: -1, Earlier: map[Prefix]EarlierAnswer{bad: earlier(-1, isThreat("bad.example/", Malware))}})
			time.Sleep(9 * time.Second)
			return Answer{}, errors.New("trouble")
		}
		c := checkerOf(t, Config{Searcher: srv}, "bad.example/")
		for i := range 2 {
			if d, _ := within(t, c, "bad.example."); d.Verdict != Unsafe {
				t.Errorf("%d: %+v", i, d)
			}
		}
	})
}

// A late Tell, or one without a Checker, changes nothing.
func TestNobodyListensToALateTell(t *testing.T) {
	Tell(t.Context(), []Prefix{"abcd"}, Answer{})
	synctest.Test(t, func(t *testing.T) {
		bad := HashExpression("bad.example/").Prefix(4)
		var late context.Context
		srv := &server{t: t}
		srv.OnSearch = func(ctx context.Context, _ []Prefix) (Answer, error) {
			late = ctx
			return Answer{TTL: time.Minute}, nil
		}
		c := checkerOf(t, Config{Searcher: srv}, "bad.example/")
		within(t, c, "bad.example.")
		Tell(late, []Prefix{bad}, Answer{Earlier: map[Prefix]EarlierAnswer{bad: earlier(time.Minute, isThreat("bad.example/", Malware))}})
		if d, _ := within(t, c, "bad.example."); d.Verdict != Safe {
			t.Errorf("%+v", d)
		}
	})
}
