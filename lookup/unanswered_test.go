package lookup

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// earlier returns an answer about one prefix that a Searcher had.
func earlier(ttl time.Duration, threats ...ThreatHash) EarlierAnswer {
	e := EarlierAnswer{Received: time.Now(), TTL: ttl}
	for _, t := range threats {
		e.Threats = append(e.Threats, lasting(max(ttl, time.Minute), t))
	}
	return e
}

func TestAnEarlierAnswerHoldsThoughTheSearchFails(t *testing.T) {
	trouble := errors.New("trouble")
	synctest.Test(t, func(t *testing.T) {
		parent := HashExpression("bad.example/").Prefix(4)
		srv := &server{t: t}
		srv.OnSearch = func(_ context.Context, prefixes []Prefix) (Answer, error) {
			// What stands beside an error says nothing: a.bad.example is no threat, and not harmless.
			return Answer{TTL: time.Hour, Threats: []ThreatHash{isThreat("other.example/", Malware)},
				Earlier: map[Prefix]EarlierAnswer{parent: earlier(time.Minute, isThreat("bad.example/", Malware))}}, trouble
		}
		c := checkerOf(t, Config{Searcher: srv}, "bad.example/", "a.bad.example/", "other.example/")
		for _, by := range []Decider{ByServer, ByCache} {
			if d := decide(t, c, "a.bad.example."); d.Verdict != Unsafe || d.By != by || d.Expression != "bad.example/" {
				t.Errorf("got %+v, want unsafe by %s", d, by)
			}
		}
		if d := decide(t, c, "other.example."); d.Verdict != Unsure || !errors.Is(d.Err, trouble) {
			t.Errorf("a name without an answer: %+v", d)
		}
		if n := len(srv.searches()); n != 2 {
			t.Errorf("%d searches, want 2", n)
		}
	})
}

// A relay's refusal is about the prefixes without an answer, for the time that it says.
func TestOnlyPrefixesWithoutAnAnswerWaitAndForAMinuteAtMost(t *testing.T) {
	for _, tc := range []struct{ says, waits time.Duration }{{time.Second, time.Second}, {time.Minute, time.Minute}, {24 * time.Hour, time.Minute}} {
		synctest.Test(t, func(t *testing.T) {
			var refuses bool
			srv := &server{t: t}
			srv.OnSearch = func(context.Context, []Prefix) (Answer, error) {
				if refuses {
					return Answer{}, &UnansweredError{Until: time.Now().Add(tc.says), Reason: ErrShare}
				}
				return Answer{TTL: time.Minute, Threats: []ThreatHash{lasting(time.Minute, isThreat("bad.example/", Malware)), lasting(time.Minute, isThreat("other.example/", Malware))}}, nil
			}
			c := checkerOf(t, Config{Searcher: srv}, "bad.example/", "other.example/")
			refuses = true
			var asks account
			ask := func(qname string) Decision { return c.Confirm(suspectAfter(t, c, qname), asks.admit).Wait(t.Context()) }
			if d := ask("bad.example."); d.Verdict != Unsure || d.By != ByBudget {
				t.Errorf("refused: %+v", d)
			}
			refuses = false
			time.Sleep(tc.waits - time.Nanosecond)
			if d := ask("bad.example."); d.Verdict != Unsure || d.By != ByBudget {
				t.Errorf("just before the end of %s: %+v", tc.says, d)
			}
			if answers, err := searchOf(t, c, nil, "bad.example/"); !errors.Is(err, ErrShare) || answers[0].Err == nil {
				t.Errorf("as a relay, just before the end of %s: %+v, %v", tc.says, answers, err)
			}
			if d := ask("other.example."); d.Verdict != Unsafe {
				t.Errorf("another name: %+v", d)
			}
			if asks.charged-asks.refunded != 1 || len(srv.searches()) != 2 {
				t.Errorf("%d charged, %d refunded, %d searches", asks.charged, asks.refunded, len(srv.searches()))
			}
			time.Sleep(time.Nanosecond)
			if d := ask("bad.example."); d.Verdict != Unsafe || len(srv.searches()) != 3 {
				t.Errorf("after %s: %+v, %d searches", tc.waits, d, len(srv.searches()))
			}
		})
	}
}

// A relay may know a threat below a prefix, and not whether there are others.
func TestAThreatIsKnownThoughTheRestOfItsPrefixIsNot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := HashExpression("bad.example/").Prefix(4)
		srv := &server{t: t}
		srv.OnSearch = func(context.Context, []Prefix) (Answer, error) {
			return Answer{Earlier: map[Prefix]EarlierAnswer{p: earlier(-1, isThreat("bad.example/", Malware))}}, &UnansweredError{Until: time.Now().Add(time.Second), Reason: ErrBackoff}
		}
		c := checkerOf(t, Config{Searcher: srv}, "bad.example/")
		for i := range 3 { // asked; in the wait; asked again
			answers, err := searchOf(t, c, nil, "bad.example/")
			if !errors.Is(err, ErrBackoff) || len(answers[0].Threats) != 1 || answers[0].Err == nil || answers[0].TTL > 50*time.Second || answers[0].TTL < 40*time.Second {
				t.Errorf("as a relay, %d: %+v, %v", i, answers, err)
			}
			if d := decide(t, c, "bad.example."); d.Verdict != Unsafe || d.By != ByCache {
				t.Errorf("%d: %+v", i, d)
			}
			time.Sleep(time.Duration(i) * time.Second)
		}
	})
}

// The answers of version 4 and of Web Risk may end before their threats. A relay that cannot ask
// again knows the threats still.
func TestAThreatOutlivesItsAnswerWhenTheServerCannotBeAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := &server{t: t}
		srv.always(Answer{TTL: time.Minute, Threats: []ThreatHash{lasting(20*time.Minute, isThreat("bad.example/", Malware))}}, nil)
		c := checkerOf(t, Config{Searcher: srv}, "bad.example/")
		oneAnswer(t, c, "bad.example/")
		srv.always(Answer{}, ErrBackoff)
		for _, after := range []time.Duration{2 * time.Minute, 17 * time.Minute} {
			time.Sleep(after)
			answers, err := searchOf(t, c, nil, "bad.example/")
			if !errors.Is(err, ErrBackoff) || len(answers[0].Threats) != 1 || answers[0].TTL > 18*time.Minute {
				t.Errorf("after %s: %+v, %v", after, answers, err)
			}
		}
		time.Sleep(time.Minute + time.Nanosecond)
		if answers, _ := searchOf(t, c, nil, "bad.example/"); len(answers[0].Threats) != 0 {
			t.Errorf("after its end: %+v", answers)
		}
	})
}
