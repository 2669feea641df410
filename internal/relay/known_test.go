package relay

import (
	"context"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol"
	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol/pb/sbv5"
	"github.com/coredns-safebrowsing/safebrowsing/internal/protocoltest"
	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

// twoReplicas returns two clients with lists.
func (w *world) twoReplicas() (one, other *replica) {
	w.t.Helper()
	one, other = w.replica(1), w.replica(2)
	time.Sleep(time.Minute)
	synctest.Wait()
	return one, other
}

// answerAbout searches for expressions. It returns the threats, whether the answer is about all of them and may be
// kept, and the answer.
func (w *world) answerAbout(expressions ...string) (threats int, whole bool, got *httptest.ResponseRecorder) {
	w.t.Helper()
	got = w.searchOf(expressions...)
	var answer sbv5.SearchHashesResponse
	answered(w.t, got, &answer)
	whole = got.Header().Get(protocol.UnansweredHeader) == ""
	if keeps := answer.GetCacheDuration().AsDuration() > 0; keeps != whole {
		w.t.Errorf("%q: kept: %t, %v", expressions, keeps, got.Header())
	}
	return len(answer.FullHashes), whole, got
}

// spend lets a client decide about the first of n threats, a second each, until one is not confirmed. It returns its number.
func (c *replica) spend(t *testing.T, n int) (spent int) {
	t.Helper()
	for spent < n && c.decide(hostName(spent)+".").Verdict == lookup.Unsafe {
		time.Sleep(time.Second)
		spent++
	}
	c.mustBe(t, lookup.Unsure, hostName(spent)+".")
	return spent
}

// A client that has spent its share of the relay's budget still learns what the relay knows.
func TestAClientThatHasSpentItsShareLearnsWhatTheRelayKnows(t *testing.T) {
	lines := testkit.Capture(t)
	inWorld(t, func(t *testing.T, w *world) {
		w.threaten(append(hosts(40), "evil.example/")...)
		w.google.SetCacheDuration(30 * time.Minute)
		w.cfg.Settings.Budget, w.cfg.Settings.Share = 100, 10
		w.begin()
		c, _ := w.twoReplicas()
		spent := c.spend(t, 40) // what is left of the hour is reserved for others
		testkit.WantParts(t, lines.Only(t, "has spent its share of the day's budget and"), `If it forwards for others, write "-budget 100,100%"`)
		for i := range 12 {
			third := w.replica(3 + i) // with a share of its own, and it takes one search
			name := []string{"evil.example.", hostName(spent) + "."}[i%2]
			time.Sleep(time.Minute)
			third.mustBe(t, lookup.Unsafe, name)
			c.mustBe(t, lookup.Unsafe, name)
			third.close()
			time.Sleep(30 * time.Minute)
		}
	})
}

// A search with more new prefixes than the burst is answered as far as the limit allows, and the
// rest a second later. One request of Web Risk is for one prefix, and a client asks about 240.
func TestASearchWithMoreNewPrefixesThanTheBurstIsAnsweredInParts(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		names := hosts(lookup.MaxPrefixes)
		w.threaten(append(slices.Clone(names), "first.example/")...)
		w.cfg.Settings.Protocol = protocol.DialectWebRisk.Name
		w.cfg.Rate, w.cfg.Burst = DefaultRate, DefaultBurst
		w.begin()
		w.searchOf("first.example/") // the first search after a start goes alone
		time.Sleep(time.Minute)
		for _, want := range []int{DefaultBurst, lookup.MaxPrefixes} {
			if threats, whole, got := w.answerAbout(names...); threats != want || whole != (want == lookup.MaxPrefixes) {
				t.Errorf("%d threats, want %d: %v", threats, want, got.Header())
			}
			time.Sleep(time.Second)
		}
		c := w.replica(1)
		time.Sleep(time.Minute)
		c.mustBe(t, lookup.Unsafe, hostName(lookup.MaxPrefixes-1)+".")
	})
}

// A client that does not know the header of a relay sees a threat where there is one, keeps nothing,
// and takes no prefix for harmless that nobody knows.
func TestAForeignClientIsToldNothingThatIsNotKnown(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.suspect("evil.example/", "good.example/", "new.example/")
		w.begin()
		w.searchOf("evil.example/")
		w.searchOf("good.example/")
		w.google.Break("search", 1, protocoltest.Fault{Status: 429})
		w.searchOf("new.example/")
		for _, other := range []string{"good.example/", "new.example/"} {
			if got := w.searchOf("new.example/", other); got.Code != 503 || got.Header().Get(protocol.UnansweredHeader) == "" {
				t.Errorf("new.example and %s: status %d, %v", other, got.Code, got.Header())
			}
		}
		for _, other := range []string{"new.example/", "good.example/"} {
			if threats, whole, got := w.answerAbout(other, "evil.example/"); threats != 1 || whole != (other == "good.example/") {
				t.Errorf("%s and evil.example: %d threats, %v", other, threats, got.Header())
			}
		}
	})
}

// Behind two relays a name is asked about again within a minute, too, whatever the first relay waits
// for; what either of them knows is told for its remaining life; and no refusal is a failure.
func TestARefusalHoldsForAMinuteBehindTwoRelays(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.threaten("evil.example/", "bad.example/", "a.bad.example/", "late.example/")
		w.google.SetCacheDuration(30 * time.Minute)
		w.begin()
		second := w.behind()
		near, far := w.replica(1), second.replica(2)
		time.Sleep(time.Minute)
		near.mustBe(t, lookup.Unsafe, "evil.example.")
		near.mustBe(t, lookup.Unsafe, "bad.example.")
		known := time.Now()
		w.google.Break("search", 1, protocoltest.Fault{Status: 429})
		near.mustBe(t, lookup.Unsure, "late.example.")
		until := w.relay.engine.SearchHold().Until
		if time.Until(until) < 10*time.Minute {
			t.Fatalf("the first relay waits for %s", time.Until(until))
		}
		far.mustBe(t, lookup.Unsafe, "a.bad.example.")
		far.mustBe(t, lookup.Unsafe, "evil.example.")
		if d := far.decide("a.bad.example."); d.Expires.After(known.Add(30 * time.Minute)) {
			t.Errorf("the threat is blocked until %s, want %s at most", d.Expires, known.Add(30*time.Minute))
		}
		for time.Now().Before(until) {
			if d := far.decide("late.example."); d.Verdict != lookup.Unsure || d.By != lookup.ByBackoff {
				t.Errorf("during the back-off: %+v", d)
			}
			time.Sleep(time.Second)
		}
		time.Sleep(time.Minute)
		far.mustBe(t, lookup.Unsafe, "late.example.")
		mustNotWait(t, "the second relay", second.relay.engine.SearchHold())
		mustNotWait(t, "its client", far.SearchHold())
		mustNotWait(t, "the other client", near.SearchHold())
	})
}

// A relay's server hangs. A client that confirms for half a second learns the threat that the relay knows,
// asks again about the rest a second later, and costs the server no request more.
func TestAClientLearnsWhatItsRelayKnowsWhileTheServerHangs(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.threaten("bad.example/", "a.bad.example/")
		w.begin()
		c, other := w.twoReplicas()
		other.mustBe(t, lookup.Unsafe, "bad.example.")
		asked := len(w.google.Requests("search"))
		w.google.Break("search", 1, protocoltest.Fault{Delay: 5 * time.Second})
		for range 2 {
			_, candidates := c.Checker.Check(lookup.FromQname("a.bad.example."))
			if candidates == nil {
				break // it is cached
			}
			ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
			if d := c.Checker.Confirm(candidates, nil).Wait(ctx); d.Verdict != lookup.Unsafe {
				t.Errorf("a threat that the relay knows is %s by %s (%v)", d.Verdict, d.By, d.Err)
			}
			cancel()
		}
		time.Sleep(6 * time.Second)
		c.mustBe(t, lookup.Unsafe, "a.bad.example.")
		if n := len(w.google.Requests("search")) - asked; n != 1 {
			t.Errorf("%d searches of the server, want 1", n)
		}
		mustNotWait(t, "the relay", w.relay.engine.SearchHold())
		mustNotWait(t, "its client", c.SearchHold())
	})
}

// A relay's server hangs. A client with two relays gives a search up after five seconds, and would pause with
// its relay after three: it is told before that the relay does not know yet.
func TestARelayWhoseServerHangsAnswersInTime(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.threaten("new.example/")
		w.begin()
		w.google.Break("search", 1, protocoltest.Fault{Delay: time.Minute})
		asked := time.Now()
		got := w.searchOf("new.example/")
		if took := time.Since(asked); took >= 5*time.Second || got.Code != http.StatusServiceUnavailable || !strings.Contains(got.Header().Get(protocol.UnansweredHeader), "server") {
			t.Errorf("after %s: %d, %v", took, got.Code, got.Header())
		}
	})
}

// What a relay does not wait for, and what fails, may be charged for, too. What is not sent costs nothing.
func TestSearchesWithoutAnAnswerCost(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.suspect("slow.example/", "fails.example/", "refused.example/", "held.example/")
		w.begin()
		check := func(when string, want int) {
			t.Helper()
			if c := w.relay.handler.costs.sum(time.Now()); c.Searches != want || c.Searches != len(w.google.Requests("search")) {
				t.Errorf("%s: %d searches are told, the server saw %d, want %d", when, c.Searches, len(w.google.Requests("search")), want)
			}
		}
		w.google.Break("search", 1, protocoltest.Fault{Delay: 8 * time.Second})
		w.searchOf("slow.example/")
		check("not waited for", 1)
		time.Sleep(time.Second)
		w.searchOf("slow.example/")
		check("asked again", 1)
		time.Sleep(10 * time.Second)
		w.google.Break("search", 1, protocoltest.Fault{Status: http.StatusInternalServerError})
		w.searchOf("fails.example/")
		check("failed", 2)
		w.google.Break("search", 1, protocoltest.Fault{Status: http.StatusForbidden})
		w.searchOf("refused.example/")
		check("refused", 3)
		w.searchOf("held.example/")
		check("not sent", 3)
	})
}

// A server that is slow, and does not hang, is waited for: nobody knows a threat.
func TestAnAnswerWithoutAKnownThreatWaitsForTheServer(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.suspect("good.example/")
		w.threaten("new.example/")
		w.begin()
		w.searchOf("good.example/")
		w.google.Break("search", 1, protocoltest.Fault{Delay: 3 * time.Second})
		if threats, whole, got := w.answerAbout("good.example/", "new.example/"); threats != 1 || !whole {
			t.Errorf("%d threats, %v", threats, got.Header())
		}
	})
}

// A relay behind another one has spent its client's share. What the other one knows is told all the
// same, and costs no search: Google's server and its budget see nothing of it.
func TestAClientThatHasSpentItsShareLearnsWhatARelayFartherAwayKnows(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.threaten(append(hosts(60), "evil.example/")...)
		w.google.SetCacheDuration(30 * time.Minute)
		w.cfg.Settings.Budget, w.cfg.Settings.Share = 200, 20
		w.begin()
		w.cfg.Settings.Budget = 0
		second := w.behind()
		near, far := w.replica(1), second.replica(2)
		time.Sleep(time.Minute)
		far.spend(t, 60)
		near.mustBe(t, lookup.Unsafe, "evil.example.")
		before := len(w.google.Requests("search"))
		far.mustBe(t, lookup.Unsafe, "evil.example.")
		if n := len(w.google.Requests("search")); n > before {
			t.Errorf("%d searches of the server", n-before)
		}
	})
}
