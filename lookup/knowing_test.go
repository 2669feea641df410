package lookup

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

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

// What a relay knows is a threat also for a client whose share is spent, and the relay is asked for
// it once a minute, apart from the searches of others.
func TestAClientWhoseShareIsSpentLearnsWhatIsKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv, onlyKnown := knowingServer(t, isThreat("bad.example/", Malware))
		c := checkerOf(t, Config{Searcher: srv, Known: true}, "bad.example/", "new.example/")
		confirm := func(qname string, admit Admit) Decision {
			d, candidates := c.Check(FromQname(qname))
			if candidates != nil {
				d = c.Confirm(candidates, admit).Wait(t.Context())
			}
			return d
		}
		for _, by := range []Decider{ByServer, ByCache} {
			if d := confirm("bad.example.", shareSpent); d.Verdict != Unsafe || d.By != by {
				t.Errorf("a known threat: %+v", d)
			}
		}
		for range 3 {
			if d := confirm("new.example.", shareSpent); d.Verdict != Unsure || d.By != ByBudget || !errors.Is(d.Err, ErrShare) {
				t.Errorf("what is not known: %+v", d)
			}
		}
		if *onlyKnown != 2 {
			t.Errorf("asked %d times for what is known, want 2", *onlyKnown)
		}
		time.Sleep(MaxUnanswered)
		begun := time.Now()
		done := make(chan Decision)
		go func() { done <- confirm("new.example.", shareSpent) }()
		synctest.Wait()
		if d := confirm("new.example.", nil); d.Verdict != Unsafe || time.Since(begun) >= time.Second {
			t.Errorf("another client with a share, after %s: %+v", time.Since(begun), d)
		}
		if d := <-done; d.Verdict != Unsafe {
			t.Errorf("the first client: %+v, want what the other has learnt meanwhile", d)
		}
		if *onlyKnown != 3 {
			t.Errorf("asked %d times for what is known, want 3", *onlyKnown)
		}
	})
}

// Only a share that is spent asks for what is known, and only a Searcher that may know it.
func TestARefusalOfAnotherKindAsksNobody(t *testing.T) {
	for name, tc := range map[string]struct {
		known bool
		err   error
	}{"limited": {true, ErrLimited}, "a server that knows nothing for free": {false, ErrShare}} {
		t.Run(name, func(t *testing.T) {
			srv := &server{t: t}
			c := checkerOf(t, Config{Searcher: srv, Known: tc.known}, "bad.example/")
			refuse := func(int) (int, func(), error) { return 0, nil, tc.err }
			if d := c.Confirm(suspect(t, c, "bad.example."), func() (func(), error) { return nil, tc.err }).Wait(t.Context()); d.Verdict != Unsure || !errors.Is(d.Err, tc.err) {
				t.Errorf("%+v", d)
			}
			if _, err := c.Search(t.Context(), []Prefix{HashExpression("bad.example/").Prefix(4)}, false, refuse, nil); !errors.Is(err, tc.err) {
				t.Errorf("%v", err)
			}
			if n := len(srv.searches()); n > 0 {
				t.Errorf("%d searches", n)
			}
		})
	}
}

// A relay asks for what is known in the same way.
func TestARelayAsksForWhatIsKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv, onlyKnown := knowingServer(t, isThreat("bad.example/", Malware))
		c := checkerOf(t, Config{Searcher: srv, Known: true}, "bad.example/", "new.example/")
		refuse := func(int) (int, func(), error) { return 0, nil, ErrShare }
		answers, err := c.Search(t.Context(), []Prefix{HashExpression("bad.example/").Prefix(4), HashExpression("new.example/").Prefix(4)}, false, refuse, nil)
		if !errors.Is(err, ErrShare) || len(answers[0].Threats) != 1 || answers[0].Err != nil || answers[0].From != FromShared || answers[1].Err == nil || *onlyKnown != 1 {
			t.Errorf("%+v, %v, asked %d times", answers, err, *onlyKnown)
		}
	})
}

// A server that hangs takes all slots. What is known does not wait for one, and is not searched for
// any more when one is free.
func TestWhatIsKnownDoesNotWaitForASlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		known, _ := knowingServer(t, isThreat("bad.example/", Malware))
		searched := make(map[Prefix]bool)
		hung := make(chan struct{})
		srv := searchFunc(func(ctx context.Context, prefixes []Prefix) (Answer, error) {
			if OnlyKnown(ctx) {
				return known.Search(ctx, prefixes)
			}
			<-hung
			for _, p := range prefixes {
				searched[p] = true
			}
			return Answer{TTL: time.Hour}, nil
		})
		refunds := 0
		c := checkerOf(t, Config{Searcher: srv, Known: true, Searches: 1}, "slow.example/", "bad.example/", "new.example/")
		slow := c.Confirm(suspect(t, c, "slow.example."), nil)
		synctest.Wait()
		admit := func() (func(), error) { return func() { refunds++ }, nil }
		unknown := c.Confirm(suspect(t, c, "new.example."), admit)
		begun := time.Now()
		if d := c.Confirm(suspect(t, c, "bad.example."), admit).Wait(t.Context()); d.Verdict != Unsafe || time.Since(begun) > 2*time.Second {
			t.Errorf("a known threat after %s: %+v", time.Since(begun), d)
		}
		close(hung)
		for name, d := range map[string]Decision{"slow": slow.Wait(t.Context()), "new": unknown.Wait(t.Context())} {
			if d.Verdict != Safe {
				t.Errorf("%s: %+v", name, d)
			}
		}
		if len(searched) != 2 || searched[HashExpression("bad.example/").Prefix(4)] || refunds > 1 {
			t.Errorf("%d prefixes searched, %d refunds", len(searched), refunds)
		}
	})
}
