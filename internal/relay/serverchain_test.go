package relay

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/engine"
	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol"
	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol/pb/sbv5"
	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

// chain is a relay whose server is the relay of a world.
type chain struct {
	*world // its google is the first relay's
	wire   *wire
}

// behind starts a relay that asks the relay of w, which must run.
func (w *world) behind() *chain {
	w.t.Helper()
	up := &wire{handler: w.relay, remote: "192.0.2.200:4000", unsent: true}
	second := *w
	second.cfg.Settings.Endpoint, second.cfg.Settings.Protocol = "http://first.internal", protocol.DialectV5.Name
	second.cfg.Edge = engine.Edge{Transport: up, FirstContact: atOnce}
	second.start()
	return &chain{&second, up}
}

// A threat that the server confirms no more is blocked behind two relays for at most 30
// minutes from the last confirmation, however slow the answers of both are. It is cached for no
// longer than the server said; an answer that is on its way at that time is used once.
func TestNoAnswerIsOlderThan30MinutesBehindTwoRelays(t *testing.T) {
	testkit.Long(t)
	for _, ttl := range []time.Duration{5 * time.Minute, 29*time.Minute + 55*time.Second, 24 * time.Hour} {
		for _, delay := range []time.Duration{0, 9 * time.Second} {
			for _, warmed := range []time.Duration{0, 2 * time.Minute, 20 * time.Minute} { // when the second relay asks the first
				for _, before := range []time.Duration{time.Second, 12 * time.Second} { // the end of the 30 minutes, or of the TTL
					t.Run(fmt.Sprint(ttl, " ", delay, " ", warmed, " ", before), func(t *testing.T) {
						synctest.Test(t, func(t *testing.T) { chainEnds(t, ttl, delay, warmed, before) })
					})
				}
			}
		}
	}
}

// chainEnds lets a threat end right after the first relay has confirmed it. The second
// relay learns of it when warmed old, and its client asks shortly before the end.
func chainEnds(t *testing.T, ttl, delay, warmed, before time.Duration) {
	w := newWorld(t)
	w.google.SetCacheDuration(ttl)
	w.start()
	second := w.behind()
	near, warm, far := w.replica(1), second.replica(2), second.replica(3)
	confirmed := time.Now()
	near.mustBe(t, lookup.Unsafe, "evil.example.")
	w.google.RemoveThreat("evil.example/")
	w.google.ClientStarted() // a TTL of a day does not count: the terms allow 30 minutes
	second.wire.connect(w.relay, delay)
	learns := func(c *replica) lookup.Decision {
		d := c.decide("evil.example.")
		if d.Verdict == lookup.Unsure { // the relay does not wait for so long, but learns it
			time.Sleep(delay)
			d = c.decide("evil.example.")
		}
		return d
	}
	time.Sleep(warmed)
	if d := learns(warm); (d.Verdict == lookup.Unsafe) != (warmed < ttl) {
		t.Fatalf("the second relay asks when the answer is %s old: %+v", warmed, d)
	}
	end := confirmed.Add(min(ttl, 30*time.Minute))
	last := confirmed.Add(min(ttl+10*time.Second, 30*time.Minute)) // of an answer on its way
	time.Sleep(time.Until(end) - before)
	far.wire.connect(second.relay, delay)
	now := time.Now()
	if d := learns(far); d.Verdict == lookup.Unsafe && (time.Now().After(last) || d.Expires.After(last)) {
		t.Errorf("asked at %s, at %s it is blocked until %s, but may be until %s", now, time.Now(), d.Expires, last)
	}
	time.Sleep(time.Until(last.Add(time.Nanosecond)))
	far.wire.connect(second.relay, 0)
	second.wire.connect(w.relay, 0)
	for _, c := range []*replica{near, warm, far} {
		c.mustBe(t, lookup.Safe, "evil.example.")
	}
}

// ttlAt returns the cache duration of a relay's answer about an expression.
func (w *world) ttlAt(expression string) time.Duration {
	w.t.Helper()
	var got sbv5.SearchHashesResponse
	answered(w.t, ask(w.t, w.relay, "GET", searchRequest(expression)), &got)
	return got.GetCacheDuration().AsDuration()
}

// "In no list" is said for a minute in all, not for a minute by each relay. A name that the
// server lists then is blocked behind two relays when both have the new list.
func TestAPrefixInNoListIsSafeForAMinuteBehindTwoRelays(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.suspect("gone.example/", "evil.example/")
		w.start()
		second := w.behind()
		c := second.replica(1)
		if got := second.ttlAt("new.example/"); got != time.Minute {
			t.Errorf("a prefix in no list of either relay: %s, want a minute", got)
		}

		gone := func() bool { return w.relay.engine.Lists()[0].Set.Len() == 1 }
		late := func() bool { return second.relay.engine.Lists()[0].Set.Len() == 2 }
		until := func(done func() bool) {
			for !done() {
				time.Sleep(time.Second)
			}
			synctest.Wait()
		}
		w.suspect("evil.example/") // the first relay drops a prefix, the second still has it
		for until(gone); !late(); until(gone) {
			w.suspect("gone.example/", "evil.example/") // it has asked in the same second: once more
			until(late)
			w.suspect("evil.example/")
		}
		first := second.ttlAt("gone.example/")
		time.Sleep(9 * time.Second) // less than any minimum wait
		if later := second.ttlAt("gone.example/"); first != time.Minute || later > time.Minute-9*time.Second {
			t.Errorf("a prefix that only the second relay has: %s, 9 seconds later %s, want a minute in all", first, later)
		}

		second.ttlAt("new.example/")
		w.threaten("evil.example/", "new.example/")
		for gone() {
			time.Sleep(time.Second)
		}
		listed := time.Now()
		for c.decide("new.example.").Verdict != lookup.Unsafe {
			if time.Since(listed) > 2*time.Minute {
				t.Fatal("not blocked 2 minutes after the first relay has the list")
			}
			time.Sleep(time.Second)
		}
		t.Logf("blocked %s after the first relay had the list", time.Since(listed))
	})
}

// A region is cut off from the central relay for an hour. Its relay and its clients keep what they
// know: no threat is ever safe, and soon after the hour all of them have the lists of the centre.
func TestARegionIsCutOffForAnHour(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.start()
		second := w.behind()
		var clients []*replica
		for n := range 20 {
			c := second.replica(n)
			clients = append(clients, c)
		}
		time.Sleep(2 * time.Minute)
		never := func(v lookup.Verdict) {
			for i, c := range clients {
				if d := c.decide("evil.example."); d.Verdict == v {
					t.Errorf("client %d: %+v", i, d)
				}
			}
		}
		never(lookup.Safe)
		second.wire.connect(nil, 0)
		w.threaten("evil.example/", "late.example/")
		for range 12 {
			time.Sleep(5 * time.Minute)
			never(lookup.Safe)
		}
		second.wire.connect(w.relay, 0)
		back := time.Now()
		for i, c := range clients {
			for c.decide("late.example.").Verdict != lookup.Unsafe {
				if time.Since(back) > 10*time.Minute {
					t.Fatalf("client %d does not block what was listed meanwhile", i)
				}
				time.Sleep(time.Second)
			}
		}
		t.Logf("all clients have the new list %s after the hour", time.Since(back))
		if never(lookup.Safe); len(w.google.Requests("update")) > 4 {
			t.Errorf("%d requests for lists in an hour and some minutes, want one in 30 minutes", len(w.google.Requests("update")))
		}
	})
}
