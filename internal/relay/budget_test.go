package relay

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	dto "github.com/prometheus/client_model/go"

	"github.com/coredns-safebrowsing/safebrowsing/internal/protocoltest"
	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

// decideFor is decide for a DNS client, of whose share the search is.
func (c *replica) decideFor(client, qname string) lookup.Decision {
	d, candidates := c.Checker.Check(lookup.FromQname(qname))
	if candidates == nil {
		return d
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	return c.Checker.Confirm(candidates, lookup.AdmitBy(nil, c.Shares, netip.MustParseAddr(client))).Wait(ctx)
}

// One DNS client that asks for names that collide must not switch confirmations off for all that
// are behind a relay with a budget.
func TestOneClientCannotSpendTheBudgetOfTheFleet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		names := []string{"evil.example/", "worse.example/", "worst.example/", "bad.example/"}
		for i := range 600 {
			names = append(names, fmt.Sprintf("collides%d.example/", i))
		}
		w.threaten(names[:4]...)
		w.suspect(names...)
		w.cfg.Settings.Budget, w.cfg.Settings.Share = 100, lookup.DefaultShare
		w.start()
		first, second := w.replica(1), w.replica(2)
		flood := func(from, to int) {
			for i := from; i < to; i++ {
				first.decideFor("192.0.2.66", fmt.Sprintf("collides%d.example.", i))
				time.Sleep(100 * time.Millisecond)
			}
		}
		flood(0, 150)
		spent := len(w.google.Requests("search"))
		if spent > 25 || spent < 10 {
			t.Errorf("%d searches of 100 are spent in 15 seconds", spent)
		}
		if d := second.decideFor("198.51.100.1", "evil.example."); d.Verdict != lookup.Unsafe {
			t.Errorf("another client's threat at the other CoreDNS: %+v", d)
		}
		if d := first.decideFor("192.0.2.1", "worse.example."); d.Verdict != lookup.Unsafe {
			t.Errorf("another client's threat at the same CoreDNS: %+v", d)
		}
		for hour := range 3 { // and it continues
			time.Sleep(time.Hour)
			flood(150+150*hour, 300+150*hour)
		}
		if d := second.decideFor("198.51.100.1", "worst.example."); d.Verdict != lookup.Unsafe {
			t.Errorf("hours later, a threat at the other CoreDNS: %+v, %d searches", d, len(w.google.Requests("search")))
		}
		if d := first.decideFor("192.0.2.1", "bad.example."); d.Verdict != lookup.Unsafe {
			t.Errorf("hours later, a threat at the same CoreDNS: %+v, %d searches", d, len(w.google.Requests("search")))
		}
	})
}

// A relay with one CoreDNS, and that with one forwarder, spends its budget.
func TestALoneClientOfARelayMaySpendTheBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		names := []string{"evil.example/"}
		for i := range 200 {
			names = append(names, fmt.Sprintf("collides%d.example/", i))
		}
		w.threaten(names[0])
		w.suspect(names...)
		w.cfg.Settings.Budget, w.cfg.Settings.Share = 20, lookup.DefaultShare
		w.start()
		c := w.replica(1)
		confirmed := 0
		for i := range 12 {
			if d := c.decideFor("192.0.2.1", fmt.Sprintf("collides%d.example.", i)); d.Verdict == lookup.Safe {
				confirmed++
			}
			time.Sleep(time.Second)
		}
		if confirmed != 12 {
			t.Errorf("%d of 12 are confirmed", confirmed)
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
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.cfg.Settings.DB = t.TempDir()
				var names []string
				for i := range 60 {
					names = append(names, fmt.Sprintf("evil%d.example/", i))
				}
				w.threaten(names...)
				w.cfg.Settings.Budget, w.cfg.Settings.Share = before.budget, before.share
				w.cfg.Key = before.key
				w.start()
				c := w.replica(1)
				if before.key != "" {
					w.google.Break("search", 1, protocoltest.Fault{Status: http.StatusTooManyRequests})
				}
				refused := -1
				for i := range 59 {
					if d := c.decideFor("192.0.2.1", fmt.Sprintf("evil%d.example.", i)); d.Verdict == lookup.Unsure {
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
					if d := c.decideFor("192.0.2.1", fmt.Sprintf("evil%d.example.", i)); d.Verdict != lookup.Unsafe {
						t.Errorf("a minute after it was raised, name %d (the first refused is %d): %+v", i, refused, d)
					}
				}
			})
		})
	}
}

// limitedWorld starts a relay with the default limits, or an EMA if threshold is not 0, whose
// lists have n hosts, and a client.
func limitedWorld(t *testing.T, n int, threshold float64) (*world, *replica) {
	w := newWorld(t)
	all := hosts(n)
	w.suspect(all...)
	w.cfg.Rate, w.cfg.Burst, w.cfg.EMA = DefaultRate, DefaultBurst, threshold
	w.start()
	c := w.replica(1)
	return w, c
}

// limited returns how many searches of clients the relay has refused.
func (w *world) limited() int {
	var m dto.Metric
	testkit.Must(w.t, w.relay.handler.metrics.requests.WithLabelValues("search", outcomeLimited).Write(&m))
	return int(m.GetCounter().GetValue())
}

// A client is a whole name server. One with 500 users that look up 30 new names a second, all
// need a search, is within the limit, also if 150 such names come at once.
func TestANameServerWithManyUsersIsNotLimited(t *testing.T) {
	const perSecond, seconds, atOnce = 30, 60, 150
	synctest.Test(t, func(t *testing.T) {
		w, c := limitedWorld(t, atOnce+perSecond*seconds, 0)
		for i := range atOnce + perSecond*seconds {
			if d := c.decide(hostName(i) + "."); d.Verdict != lookup.Safe || d.Err != nil {
				t.Fatalf("name %d: %+v", i, d)
			}
			if i >= atOnce {
				time.Sleep(time.Second / perSecond)
			}
		}
		if n := w.limited(); n != 0 {
			t.Errorf("%d searches were limited, want none", n)
		}
		if n := len(w.google.Requests("search")); n != atOnce+perSecond*seconds {
			t.Errorf("%d searches of the server, want one for each name", n)
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
		if hold := c.SearchHold(); hold.Active(time.Now()) || hold.Failures != 0 {
			t.Errorf("the client waits with all names: %+v", hold)
		}
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
