package relay

import (
	"testing"
	"testing/synctest"
	"time"

	dto "github.com/prometheus/client_model/go"

	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

// limitedWorld starts a relay with the default limits, or an EMA if threshold is not 0, whose
// lists have n hosts, and a client.
func limitedWorld(t *testing.T, n int, threshold float64) (*world, *replica) {
	w := newWorld(t)
	var all []string
	for i := range n {
		all = append(all, hostName(i)+"/")
	}
	w.suspect(all...)
	w.cfg.Rate, w.cfg.Burst, w.cfg.EMA = DefaultRate, DefaultBurst, threshold
	w.start()
	synctest.Wait()
	c := w.replica(1)
	synctest.Wait()
	return w, c
}

// limited returns how many searches of clients the relay has refused.
func (w *world) limited() int {
	var m dto.Metric
	if err := w.relay.handler.metrics.requests.WithLabelValues("search", outcomeLimited).Write(&m); err != nil {
		w.t.Fatal(err)
	}
	return int(m.GetCounter().GetValue())
}

// A client is a whole name server. One with 500 users that look up 30 new names a second, all
// need a search, is within the limit, also if 150 such names come at once.
func TestANameServerWithManyUsersIsNotLimited(t *testing.T) {
	const perSecond, seconds, atOnce = 30, 60, 150
	synctest.Test(t, func(t *testing.T) {
		w, c := limitedWorld(t, atOnce+perSecond*seconds, 0)
		defer w.relay.Close()
		defer c.close()
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
		defer w.relay.Close()
		defer c.close()
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
		defer w.relay.Close()
		defer c.close()
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
