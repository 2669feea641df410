package relay

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/protocoltest"
	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

// A threat that the server confirms no more blocks at every client for at most 30 minutes
// from the last confirmation, however the TTLs of relay and client overlap.
func TestNoAnswerIsOlderThan30MinutesAtTheClient(t *testing.T) {
	testkit.Long(t)
	for _, ttl := range []time.Duration{5 * time.Minute, 29 * time.Minute, 24 * time.Hour} {
		for _, delay := range []time.Duration{0, 9 * time.Second} { // of the relay's answers
			for _, asked := range []time.Duration{0, 14 * time.Minute, 29*time.Minute + 39*time.Second, 29*time.Minute + 50*time.Second, 29*time.Minute + 51*time.Second} {
				t.Run(fmt.Sprint(ttl, " ", delay, " ", asked), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) { threatEnds(t, ttl, delay, asked) })
				})
			}
		}
	}
}

// threatEnds lets a threat end right after one client has asked about it. Another client asks
// the relay later, when the answer there is asked old.
func threatEnds(t *testing.T, ttl, delay, asked time.Duration) {
	w := newWorld(t)
	w.google.SetCacheDuration(ttl)
	w.start()
	defer w.relay.Close()
	synctest.Wait()
	first, second := w.replica(1), w.replica(2)
	defer first.close()
	defer second.close()
	synctest.Wait()
	second.wire.connect(w.relay, delay)
	confirmed := time.Now()
	if d := first.decide("evil.example."); d.Verdict != lookup.Unsafe {
		t.Fatalf("got %+v", d)
	}
	w.google.RemoveThreat("evil.example/")
	w.google.ClientStarted() // a TTL of a day does not count: the terms allow 30 minutes
	time.Sleep(asked)
	d := second.decide("evil.example.")
	cached := asked <= min(ttl, 30*time.Minute-10*time.Second)
	if (d.Verdict == lookup.Unsafe) != cached {
		t.Errorf("asked after %s: %+v", asked, d)
	}
	if last := confirmed.Add(30 * time.Minute); cached && (time.Now().After(last) || d.Expires.After(last)) {
		t.Errorf("at %s it is blocked until %s, but may be until %s", time.Now(), d.Expires, last)
	}
	time.Sleep(time.Until(confirmed.Add(30*time.Minute + time.Nanosecond)))
	for i, c := range []*replica{first, second} {
		if d := c.decide("evil.example."); d.Verdict != lookup.Safe {
			t.Errorf("client %d after 30 minutes: %+v", i, d)
		}
	}
}

// While the relay must not ask its server, its clients ask it again, each name once a minute, and the
// relay asks nobody. So a name is confirmed a minute after the back-off at the latest.
func TestClientsKeepTheRelaysBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.threaten("evil.example/", "worse.example/")
		w.start()
		defer w.relay.Close()
		synctest.Wait()
		c := w.replica(1)
		defer c.close()
		synctest.Wait()
		w.google.Break("search", 1, protocoltest.Fault{Status: http.StatusTooManyRequests})
		if d := c.decide("evil.example."); d.Verdict != lookup.Unsure {
			t.Fatalf("got %+v", d)
		}
		relayHold := w.relay.engine.SearchHold().Until
		if wait := time.Until(relayHold); wait < 15*time.Minute || wait > 30*time.Minute {
			t.Fatalf("the relay waits %s", wait)
		}
		asked := len(c.wire.asked())
		minutes := int(time.Until(relayHold)/time.Minute) + 1
		for time.Now().Before(relayHold) {
			c.decide("worse.example.")
			time.Sleep(10 * time.Second)
		}
		if n := len(w.google.Requests("search")); n != 1 {
			t.Errorf("%d searches during the back-off, want 1", n)
		}
		if n := len(slices.DeleteFunc(c.wire.asked()[asked:], func(p string) bool { return !strings.Contains(p, "search") })); n < minutes-1 || n > minutes {
			t.Errorf("the client asked the relay %d times in a back-off of %d minutes", n, minutes)
		}
		time.Sleep(time.Minute)
		if d := c.decide("worse.example."); d.Verdict != lookup.Unsafe {
			t.Errorf("after the back-off: %+v", d)
		}
	})
}

// All clients share the relay's budget. A client asks about the name again after a minute,
// and about others at once: the budget may be raised, and another client may have asked.
func TestClientsWaitForTheRelaysBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.threaten("evil.example/", "worse.example/")
		w.cfg.Settings.Budget, w.cfg.Settings.Share = 1, 100
		w.start()
		defer w.relay.Close()
		synctest.Wait()
		first, second := w.replica(1), w.replica(2)
		defer first.close()
		defer second.close()
		synctest.Wait()
		if d := first.decide("evil.example."); d.Verdict != lookup.Unsafe {
			t.Fatalf("got %+v", d)
		}
		if d := second.decide("evil.example."); d.Verdict != lookup.Unsafe {
			t.Errorf("from the cache, the budget is spent: %+v", d)
		}
		if d := second.decide("worse.example."); d.Verdict != lookup.Unsure {
			t.Errorf("the budget is spent: %+v", d)
		}
		if hold := second.SearchHold(); hold.Active(time.Now()) || hold.Failures != 0 {
			t.Errorf("the client waits: %+v", hold)
		}
		searches := func() int {
			return len(slices.DeleteFunc(second.wire.asked(), func(p string) bool { return !strings.Contains(p, "search") }))
		}
		asked := searches()
		for _, step := range []struct {
			after time.Duration
			asks  int
		}{{0, 0}, {time.Minute - time.Second, 0}, {time.Second, 1}, {time.Second, 0}} {
			time.Sleep(step.after)
			if d := second.decide("worse.example."); d.Verdict != lookup.Unsure || d.By != lookup.ByBudget {
				t.Errorf("after %s: %+v", step.after, d)
			}
			if now := searches(); now != asked+step.asks {
				t.Errorf("after %s the client has asked %d times, want %d", step.after, now-asked, step.asks)
			} else {
				asked = now
			}
		}
	})
}

// A client is behind the relay by a minute at most, and the relay asks as often as one client.
func TestClientsFollowTheRelayWithinAMinute(t *testing.T) {
	testkit.Long(t)
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.start()
		defer w.relay.Close()
		synctest.Wait()
		var clients []*replica
		for n := range 5 {
			c := w.replica(n)
			defer c.close()
			clients = append(clients, c)
		}
		synctest.Wait()
		for round := 2; round < 12; round++ {
			var all []string
			for i := range round {
				all = append(all, fmt.Sprintf("h%d.example/", i))
			}
			w.suspect(all...)
			fetched := len(w.google.Requests("update"))
			for len(w.google.Requests("update")) == fetched {
				time.Sleep(time.Second)
			}
			time.Sleep(time.Minute)
			for i, c := range clients {
				if n := c.entries(); n != round {
					t.Errorf("round %d: client %d has entries: %d", round, i, n)
				}
			}
		}
		if n := len(w.google.Requests("update")); n != 11 {
			t.Errorf("%d requests for lists, want 11", n)
		}
	})
}
