package relay

import (
	"context"
	"fmt"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

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
		defer w.relay.Close()
		synctest.Wait()
		first, second := w.replica(1), w.replica(2)
		defer first.close()
		defer second.close()
		synctest.Wait()
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
		defer w.relay.Close()
		synctest.Wait()
		c := w.replica(1)
		defer c.close()
		synctest.Wait()
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
