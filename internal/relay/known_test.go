package relay

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol"
	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol/pb/sbv5"
	"github.com/coredns-safebrowsing/safebrowsing/internal/protocoltest"
	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
	"github.com/coredns-safebrowsing/safebrowsing/updater"
)

// begin starts the relay and waits for its lists.
func (w *world) begin() {
	w.t.Helper()
	w.start()
	time.Sleep(time.Minute)
	synctest.Wait()
}

// twoReplicas returns two clients with lists.
func (w *world) twoReplicas() (one, other *replica) {
	w.t.Helper()
	one, other = w.replica(1), w.replica(2)
	time.Sleep(time.Minute)
	synctest.Wait()
	return one, other
}

// mustBe fails unless a client decides so about a name.
func (c *replica) mustBe(t *testing.T, want lookup.Verdict, qname string) {
	t.Helper()
	if d := c.decide(qname); d.Verdict != want {
		t.Errorf("%s is %s by %s (%v), want %s", qname, d.Verdict, d.By, d.Err, want)
	}
}

// A client that has spent its share of the relay's budget still learns what the relay knows.
func TestAClientThatHasSpentItsShareLearnsWhatTheRelayKnows(t *testing.T) {
	lines := testkit.Capture(t)
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		names := append(hosts(40), "evil.example/")
		w.threaten(names...)
		w.google.SetCacheDuration(30 * time.Minute)
		w.cfg.Settings.Budget, w.cfg.Settings.Share = 100, 10
		w.begin()
		c, _ := w.twoReplicas()
		spent := 0 // what is left of the hour is reserved for others
		for ; spent < 40 && c.decide(hostName(spent)+".").Verdict == lookup.Unsafe; spent++ {
			time.Sleep(time.Second)
		}
		c.mustBe(t, lookup.Unsure, hostName(spent)+".")
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
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		var names []string
		query := ""
		for i := range lookup.MaxPrefixes {
			names = append(names, hostName(i)+"/")
			query += "&hashPrefixes=" + param(prefixOf(names[i], 4))
		}
		w.threaten(append(names, "first.example/")...)
		w.cfg.Settings.Protocol = protocol.DialectWebRisk.Name
		w.cfg.Rate, w.cfg.Burst = DefaultRate, DefaultBurst
		w.begin()
		w.searchOf("first.example/") // the first search after a start goes alone
		time.Sleep(time.Minute)
		for _, want := range []int{DefaultBurst, lookup.MaxPrefixes} {
			got := ask(t, w.relay, "GET", "/v5/hashes:search?"+query[1:])
			var answer sbv5.SearchHashesResponse
			answered(t, got, &answer)
			whole := want == lookup.MaxPrefixes
			if len(answer.FullHashes) != want || (answer.GetCacheDuration().AsDuration() > 0) != whole || (got.Header().Get(protocol.UnansweredHeader) == "") != whole {
				t.Errorf("%d threats for %s, %s: %q, want %d", len(answer.FullHashes), answer.GetCacheDuration().AsDuration(), protocol.UnansweredHeader, got.Header().Get(protocol.UnansweredHeader), want)
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
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.suspect("evil.example/", "good.example/", "new.example/")
		w.begin()
		w.searchOf("evil.example/")
		w.searchOf("good.example/")
		w.google.Break("search", 1, protocoltest.Fault{Status: 429})
		w.searchOf("new.example/")
		for _, tc := range []struct {
			names   []string
			status  int
			threats int
		}{
			{[]string{"new.example/", "evil.example/"}, 200, 1},
			{[]string{"new.example/", "good.example/"}, 503, 0},
			{[]string{"new.example/"}, 503, 0},
			{[]string{"good.example/", "evil.example/"}, 200, 1},
		} {
			query := ""
			for _, e := range tc.names {
				query += "&hashPrefixes=" + param(prefixOf(e, 4))
			}
			got := ask(t, w.relay, "GET", "/v5/hashes:search?"+query[1:])
			whole := tc.names[0] != "new.example/"
			if got.Code != tc.status || (got.Header().Get(protocol.UnansweredHeader) == "") != whole {
				t.Errorf("%q: status %d, header %q", tc.names, got.Code, got.Header().Get(protocol.UnansweredHeader))
			}
			if got.Code != 200 {
				continue
			}
			var answer sbv5.SearchHashesResponse
			answered(t, got, &answer)
			if len(answer.FullHashes) != tc.threats || (answer.GetCacheDuration().AsDuration() > 0) != whole {
				t.Errorf("%q: %d threats for %s", tc.names, len(answer.FullHashes), answer.GetCacheDuration().AsDuration())
			}
		}
	})
}

// Behind two relays a name is asked about again within a minute, too, whatever the first relay waits
// for; what either of them knows is told for its remaining life; and no refusal is a failure.
func TestARefusalHoldsForAMinuteBehindTwoRelays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
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
		for name, hold := range map[string]updater.Hold{"the second relay": second.relay.engine.SearchHold(), "its client": far.SearchHold(), "the other client": near.SearchHold()} {
			if hold.Failures != 0 || hold.Active(time.Now()) {
				t.Errorf("%s: %+v", name, hold)
			}
		}
	})
}

// A relay's server hangs. A client that confirms for half a second learns the threat that the relay knows,
// asks again about the rest a second later, and costs the server no request more.
func TestAClientLearnsWhatItsRelayKnowsWhileTheServerHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
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
		for name, hold := range map[string]updater.Hold{"the relay": w.relay.engine.SearchHold(), "its client": c.SearchHold()} {
			if hold.Failures != 0 || hold.Active(time.Now()) {
				t.Errorf("%s: %+v", name, hold)
			}
		}
	})
}

// A relay's server hangs. A client with two relays gives a search up after five seconds, and would pause with
// its relay after three: it is told before that the relay does not know yet.
func TestARelayWhoseServerHangsAnswersInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.threaten("new.example/")
		w.begin()
		w.google.Break("search", 1, protocoltest.Fault{Delay: time.Minute})
		asked := time.Now()
		got := w.searchOf("new.example/")
		if took := time.Since(asked); took >= 5*time.Second || got.Code != http.StatusServiceUnavailable || !strings.Contains(got.Header().Get(protocol.UnansweredHeader), "server") {
			t.Errorf("after %s: %d, %s: %q", took, got.Code, protocol.UnansweredHeader, got.Header().Get(protocol.UnansweredHeader))
		}
	})
}

// What a relay does not wait for, and what fails, may be charged for, too. What is not sent costs nothing.
func TestSearchesWithoutAnAnswerCost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
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
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.suspect("good.example/")
		w.threaten("new.example/")
		w.begin()
		w.searchOf("good.example/")
		w.google.Break("search", 1, protocoltest.Fault{Delay: 3 * time.Second})
		got := ask(t, w.relay, "GET", "/v5/hashes:search?hashPrefixes="+param(prefixOf("good.example/", 4))+"&hashPrefixes="+param(prefixOf("new.example/", 4)))
		var answer sbv5.SearchHashesResponse
		answered(t, got, &answer)
		if len(answer.FullHashes) != 1 || got.Header().Get(protocol.UnansweredHeader) != "" {
			t.Errorf("%d threats, %s: %q", len(answer.FullHashes), protocol.UnansweredHeader, got.Header().Get(protocol.UnansweredHeader))
		}
	})
}

// A relay behind another one has spent its client's share. What the other one knows is told all the
// same, and costs no search: Google's server and its budget see nothing of it.
func TestAClientThatHasSpentItsShareLearnsWhatARelayFartherAwayKnows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		names := append(hosts(60), "evil.example/")
		w.threaten(names...)
		w.google.SetCacheDuration(30 * time.Minute)
		w.cfg.Settings.Budget, w.cfg.Settings.Share = 200, 20
		w.begin()
		w.cfg.Settings.Budget = 0
		second := w.behind()
		near, far := w.replica(1), second.replica(2)
		time.Sleep(time.Minute)
		spent := 0
		for ; spent < 60 && far.decide(hostName(spent)+".").Verdict == lookup.Unsafe; spent++ {
			time.Sleep(time.Second)
		}
		far.mustBe(t, lookup.Unsure, hostName(spent)+".")
		near.mustBe(t, lookup.Unsafe, "evil.example.")
		before := len(w.google.Requests("search"))
		far.mustBe(t, lookup.Unsafe, "evil.example.")
		if n := len(w.google.Requests("search")); n > before {
			t.Errorf("%d searches of the server", n-before)
		}
	})
}
