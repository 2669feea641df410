package relay

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/protocoltest"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

// One DNS client that asks for names that collide must not switch off confirmations for all behind a relay with a budget.
func TestOneClientCannotSpendTheBudgetOfTheFleet(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		threats := []string{"evil.example/", "worse.example/", "worst.example/", "bad.example/"}
		w.threaten(threats...)
		w.suspect(append(threats, hosts(600)...)...)
		w.cfg.Settings.Budget, w.cfg.Settings.Share = 100, lookup.DefaultShare
		w.start()
		first, second := w.replica(1), w.replica(2)
		flood := func(from, to int) {
			for i := from; i < to; i++ {
				first.decideFor("192.0.2.66", hostName(i)+".")
				time.Sleep(100 * time.Millisecond)
			}
		}
		flood(0, 150)
		spent := len(w.google.Requests("search"))
		if spent > 25 || spent < 10 {
			t.Errorf("%d searches of 100 are spent in 15 seconds", spent)
		}
		mustBe(t, lookup.Unsafe, second.decideFor("198.51.100.1", "evil.example."))
		mustBe(t, lookup.Unsafe, first.decideFor("192.0.2.1", "worse.example."))
		for hour := range 3 { // and it continues
			time.Sleep(time.Hour)
			flood(150+150*hour, 300+150*hour)
		}
		mustBe(t, lookup.Unsafe, second.decideFor("198.51.100.1", "worst.example."))
		mustBe(t, lookup.Unsafe, first.decideFor("192.0.2.1", "bad.example."))
	})
}

// A relay with one CoreDNS, and that with one forwarder, spends its budget.
func TestALoneClientOfARelayMaySpendTheBudget(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.suspect(hosts(200)...)
		w.cfg.Settings.Budget, w.cfg.Settings.Share = 20, lookup.DefaultShare
		w.start()
		c := w.replica(1)
		for i := range 12 {
			mustBe(t, lookup.Safe, c.decideFor("192.0.2.1", hostName(i)+"."))
			time.Sleep(time.Second)
		}
	})
}

// A wait for a budget, a share or a key of a relay ends when the relay has a larger or another one:
// each CoreDNS behind it asks again within a minute, about names that were refused and about others.
func TestWhatARelayRaisesOrReplacesEndsTheWaitsOfItsClients(t *testing.T) {
	for name, before := range map[string]struct {
		budget, share int
		key           string // that the server refuses
	}{
		"the budget": {4, 100, ""}, "the share": {100, 1, ""}, "the key": {1000, 100, "OLD"},
	} {
		runWorld(t, name, func(t *testing.T, w *world) {
			w.cfg.Settings.DB = t.TempDir()
			w.threaten(hosts(60)...)
			w.cfg.Settings.Budget, w.cfg.Settings.Share = before.budget, before.share
			w.cfg.Key = before.key
			w.start()
			c := w.replica(1)
			if before.key != "" {
				w.google.Break("search", 1, protocoltest.Fault{Status: http.StatusTooManyRequests})
			}
			refused := -1
			for i := range 59 {
				if d := c.decideFor("192.0.2.1", hostName(i)+"."); d.Verdict == lookup.Unsure {
					refused = i
					break
				}
			}
			if refused < 0 || refused == 0 && before.key == "" {
				t.Fatalf("name %d was refused", refused)
			}
			w.relay.Close()
			w.cfg.Settings.Budget, w.cfg.Settings.Share = 1000, 100
			if before.key != "" {
				w.cfg.Key = "NEW"
			}
			w.start()
			c.wire.connect(w.relay, 0)
			synctest.Wait()
			time.Sleep(time.Minute)
			for _, i := range []int{refused, refused + 1} {
				mustBe(t, lookup.Unsafe, c.decideFor("192.0.2.1", hostName(i)+"."))
			}
		})
	}
}

// limitedWorld starts a relay with the default limits, or an EMA if threshold is not 0, whose
// lists have n hosts, and a client.
func limitedWorld(t *testing.T, n int, threshold float64) (*world, *replica) {
	w := newWorld(t)
	w.suspect(hosts(n)...)
	w.cfg.Rate, w.cfg.Burst, w.cfg.EMA = DefaultRate, DefaultBurst, threshold
	w.start()
	return w, w.replica(1)
}

// limited returns how many searches of clients the relay has refused.
func (w *world) limited() int {
	return int(valueOf(w.t, w.relay.handler.metrics.requests.WithLabelValues("search", outcomeLimited)))
}

// A client is a whole name server. One with 500 users that look up 30 new names a second, all
// need a search, is within the limit, also if 150 such names come at once.
func TestANameServerWithManyUsersIsNotLimited(t *testing.T) {
	const perSecond, atOnce, names = 30, 150, 150 + 60*30
	synctest.Test(t, func(t *testing.T) {
		w, c := limitedWorld(t, names, 0)
		for i := range names {
			if d := c.decide(hostName(i) + "."); d.Verdict != lookup.Safe || d.Err != nil {
				t.Fatalf("name %d: %+v", i, d)
			}
			if i >= atOnce {
				time.Sleep(time.Second / perSecond)
			}
		}
		if n := len(w.google.Requests("search")); n != names || w.limited() != 0 {
			t.Errorf("%d searches of the server, %d were limited, want one for each name, and none", n, w.limited())
		}
	})
}

// A name for which a client is over the limit is confirmed a second later: the answer is 503 with
// Retry-After. After 429 the client would wait for 15 minutes at least. One that stays over the
// limit causes no more searches than the limit allows.
func TestAClientOverTheLimitWaitsForASecond(t *testing.T) {
	const names = 4000
	synctest.Test(t, func(t *testing.T) {
		w, c := limitedWorld(t, names, 0)
		failed := 0
		for i := range DefaultBurst + 50 {
			if d := c.decide(hostName(i) + "."); d.Err != nil {
				failed++
			}
		}
		if failed < 40 || w.limited() != failed {
			t.Errorf("%d names failed and %d searches were limited, want about 50", failed, w.limited())
		}
		mustNotWait(t, "the client", c.SearchHold())
		time.Sleep(time.Second)
		if d := c.decide(hostName(DefaultBurst+49) + "."); d.Err != nil {
			t.Errorf("after a second: %v", d.Err)
		}
		begun, before := time.Now(), len(w.google.Requests("search"))
		for i := DefaultBurst + 50; i < names; i++ {
			c.decide(hostName(i) + ".")
			time.Sleep(time.Millisecond)
		}
		allowed := DefaultBurst + int(DefaultRate*time.Since(begun).Seconds()) + 1
		if n := len(w.google.Requests("search")) - before; n > allowed {
			t.Errorf("%d searches in %s, at most %d are allowed", n, time.Since(begun), allowed)
		}
	})
}

// With -ema a client that asked regularly and suddenly asks faster is refused, but not for a
// steady rate, however high.
func TestABurstIsRefusedByEMA(t *testing.T) {
	const names = 500
	synctest.Test(t, func(t *testing.T) {
		w, c := limitedWorld(t, names, 3)
		for i := range names - 10 {
			if d := c.decide(hostName(i) + "."); d.Err != nil {
				t.Fatalf("name %d, at a steady rate above -rate: %v", i, d.Err)
			}
			time.Sleep(time.Second / 200)
		}
		for i := names - 10; i < names; i++ {
			c.decide(hostName(i) + ".")
		}
		if n := w.limited(); n != 1 {
			t.Errorf("%d searches of a burst were limited, want 1, from which the rule learns", n)
		}
	})
}
