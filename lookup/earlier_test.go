package lookup

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// An answer that the Searcher had before keeps its own age.
func TestAnEarlierAnswerIsNoNewerThanItIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bad, good := HashExpression("bad.example/").Prefix(4), HashExpression("good.example/").Prefix(4)
		var sent []Prefix
		earlier := true
		c := checkerOf(t, Config{Searcher: searchFunc(func(_ context.Context, prefixes []Prefix) (Answer, error) {
			a := Answer{TTL: time.Hour, Earlier: make(map[Prefix]EarlierAnswer)}
			for _, p := range prefixes {
				if p == bad && earlier {
					a.Earlier[p] = EarlierAnswer{Received: time.Now().Add(-20 * time.Minute), TTL: 24 * time.Hour,
						Threats: []ThreatHash{lasting(24*time.Hour, isThreat("bad.example/", Malware))}}
					continue
				}
				sent = append(sent, p)
			}
			return a, nil
		})}, "bad.example/", "good.example/")

		account := new(account)
		answers, err := searchOf(t, c, account.admit, "bad.example/")
		if err != nil || answers[0].From != FromShared || answers[0].TTL != 9*time.Minute+40*time.Second || len(answers[0].Threats) != 1 {
			t.Fatalf("Expected a threat of 20 minutes ago, from the other cache, got %+v, %v", answers, err)
		}
		if account.charged != 1 || account.refunded != 1 {
			t.Errorf("Expected that a search that was not sent is refunded, got %+v", *account)
		}
		if d := decide(t, c, "bad.example."); d.By != ByCache || !d.Expires.Equal(time.Now().Add(10*time.Minute)) {
			t.Errorf("Expected that the cache has the answer for 10 minutes, got %+v", d)
		}

		time.Sleep(time.Hour)
		answers, err = searchOf(t, c, account.admit, "good.example/", "bad.example/")
		if err != nil || answers[0].From != FromServer || answers[0].TTL != time.Hour || answers[1].From != FromShared || answers[1].TTL != 9*time.Minute+40*time.Second {
			t.Errorf("Expected that each prefix has its own time and origin, got %+v, %v", answers, err)
		}
		if account.charged != 2 || account.refunded != 1 || len(sent) != 1 || sent[0] != good {
			t.Errorf("Expected one search for %x and no refund of it, got %+v and %x", good, *account, sent)
		}

		time.Sleep(time.Hour)
		if d := c.Confirm(suspectAfter(t, c, "bad.example."), nil).Wait(t.Context()); d.Verdict != Unsafe || !d.Expires.Equal(time.Now().Add(10*time.Minute)) {
			t.Errorf("Expected a threat for 10 minutes more, got %+v", d)
		}
	})
}

// Admission may ask another machine. Other queries go on meanwhile.
func TestAdmissionOfASearchDoesNotLockTheChecker(t *testing.T) {
	srv := &server{t: t}
	srv.knows(5 * time.Minute)
	c := checkerOf(t, Config{Searcher: srv}, "bad.example/")
	refunded := 0
	prefix := HashExpression("bad.example/").Prefix(4)
	answers, err := c.Search(t.Context(), []Prefix{prefix}, false, func(n int) (int, func(), error) {
		if n != 1 {
			t.Errorf("Expected 1 search, got %d", n)
		}
		oneAnswer(t, c, "bad.example/") // another query has the same wish
		return n, func() { refunded++ }, nil
	}, nil)
	if err != nil || answers[0].From != FromCache || refunded != 1 || len(srv.searches()) != 1 {
		t.Errorf("Expected the answer to the other query and a refund, got %+v, %v, %d refunds, %d searches", answers, err, refunded, len(srv.searches()))
	}
}
