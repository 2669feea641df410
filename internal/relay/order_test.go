package relay

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol"
	"github.com/coredns-safebrowsing/safebrowsing/internal/protocoltest"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

var orderSeeds = flag.Int("order.seeds", 20, "orders of events that TestNoOrderOfEventsTurnsAKnownThreatIntoAPass tries")

// orderNames are the names of TestNoOrderOfEventsTurnsAKnownThreatIntoAPass, and what each of their
// expressions is.
var orderNames = map[string][]string{ // by query
	"evil.example.":     {"evil.example/"},
	"a.bad.example.":    {"a.bad.example/", "bad.example/"},
	"b.a.bad.example.":  {"b.a.bad.example/", "a.bad.example/", "bad.example/"},
	"new.good.example.": {"new.good.example/", "good.example/"},
	"worse.example.":    {"worse.example/"},
}

// orderThreats are the expressions that the server lists; the others are in its lists only.
var orderThreats = map[string]bool{"evil.example/": true, "bad.example/": true, "b.a.bad.example/": true, "worse.example/": true}

// order is a fleet to which things happen: a server, a relay, one behind it, and clients of both.
type order struct {
	*world
	t       *testing.T
	rng     *rand.Rand
	second  *chain
	clients []*replica
	relays  []*Relay // by client
	log     []string
	known   int                  // decisions about names whose threat was known
	refused map[string]time.Time // when an expression was last left without an answer, by any relay
}

// note keeps what has happened, for a failure.
func (o *order) note(format string, args ...any) {
	o.log = append(o.log, time.Now().Format("15:04:05 ")+fmt.Sprintf(format, args...))
}

// knownTo reports whether a client, or a relay that it asks, directly or through another, has an
// answer in its cache that names a threat of a query. A relay that has learnt it since the client was
// refused is asked again within a minute.
func (o *order) knownTo(client int, expressions []string) bool {
	checkers := []*lookup.Checker{o.clients[client].Checker, o.relays[client].handler.checker, o.relay.handler.checker}
	for _, e := range expressions {
		for i, c := range checkers {
			at := c.Confirmed(e)
			waits := i > 0 && time.Since(o.refused[e]) <= lookup.MaxUnanswered && time.Since(at) <= lookup.MaxUnanswered
			if orderThreats[e] && !at.IsZero() && !waits {
				return true
			}
		}
	}
	return false
}

// decide lets a client decide about a name, and judges the decision.
func (o *order) decide(client int, qname string) {
	known := o.knownTo(client, orderNames[qname])
	d := o.clients[client].decide(qname)
	o.note("client %d: %s is %s by %s (%v), known: %t", client, qname, d.Verdict, d.By, d.Err, known)
	threatened := false
	for _, e := range orderNames[qname] {
		threatened = threatened || orderThreats[e]
		if d.Verdict == lookup.Unsure || d.By == lookup.ByServer && o.clients[client].Checker.Confirmed(e).IsZero() { // or half an answer
			o.refused[e] = time.Now()
		}
	}
	if known {
		o.known++
	}
	if known && d.Verdict != lookup.Unsafe || threatened && d.Verdict == lookup.Safe || !threatened && d.Verdict == lookup.Unsafe {
		o.t.Errorf("client %d: %s is %s by %s (%v), known: %t", client, qname, d.Verdict, d.By, d.Err, known)
	}
}

// step lets one thing happen.
func (o *order) step() {
	names := []string{"evil.example.", "a.bad.example.", "b.a.bad.example.", "new.good.example.", "worse.example."}
	switch o.rng.IntN(6) {
	case 0:
		f := []protocoltest.Fault{{Status: http.StatusTooManyRequests}, {Status: http.StatusInternalServerError}, {Status: http.StatusServiceUnavailable, RetryAfter: 20 * time.Minute}, {Status: http.StatusForbidden}, {Delay: 3 * time.Second}}[o.rng.IntN(5)]
		f.Delay = max(f.Delay, time.Millisecond) // as on a network: searches that begin with a failure are not after it
		o.note("the next search: status %d after %s", f.Status, f.Delay)
		o.google.Break("search", 1, f)
	case 1:
		pause := []time.Duration{time.Second, time.Minute, 4 * time.Minute, 11 * time.Minute}[o.rng.IntN(4)]
		o.note("%s pass", pause)
		time.Sleep(pause)
	default:
		o.decide(o.rng.IntN(len(o.clients)), names[o.rng.IntN(len(names))])
	}
}

// No order of (answers from a cache, a relay, a relay behind it or the server; errors; budgets and
// shares; back-offs) turns a threat that is known and has not expired into a pass, and the server
// is never asked too early.
func TestNoOrderOfEventsTurnsAKnownThreatIntoAPass(t *testing.T) {
	seeds := *orderSeeds
	if testing.Short() {
		seeds = 8
	}
	known := 0
	for seed := range uint64(seeds) {
		synctest.Test(t, func(t *testing.T) {
			o := &order{world: newWorld(t), t: t, refused: make(map[string]time.Time), rng: rand.New(rand.NewPCG(seed, 25))}
			var all []string
			for _, expressions := range orderNames {
				all = append(all, expressions...)
			}
			o.suspect(all...)
			for e := range orderThreats {
				o.google.AddThreat(e, 2)
			}
			o.google.SetCacheDuration([]time.Duration{time.Minute, 5 * time.Minute, 25 * time.Minute}[o.rng.IntN(3)])
			if o.rng.IntN(2) == 0 {
				o.cfg.Settings.Protocol = protocol.DialectNames()[1:][o.rng.IntN(len(protocol.Dialects())-1)]
			}
			if o.rng.IntN(2) == 0 {
				o.cfg.Settings.Budget, o.cfg.Settings.Share = 12, []int{20, 50, 100}[o.rng.IntN(3)]
			}
			if o.rng.IntN(3) == 0 {
				o.cfg.Rate, o.cfg.Burst = 0.01, 2
			}
			o.begin()
			o.cfg.Settings.Protocol, o.cfg.Settings.Budget, o.cfg.Rate = protocol.DialectV5.Name, 0, 0 // of the relay behind it
			o.second = o.behind()
			for i := range 4 {
				from := []*world{o.world, o.second.world}[i%2]
				c := from.replica(i + 1)
				o.clients, o.relays = append(o.clients, c), append(o.relays, from.relay)
			}
			time.Sleep(2 * time.Minute)
			synctest.Wait()
			for range 60 {
				o.step()
			}
			if known += o.known; t.Failed() {
				for _, line := range o.log {
					t.Log(line)
				}
			}
		})
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
	t.Logf("%d decisions about names whose threat was known", known)
	if known < seeds*5 {
		t.Errorf("%d decisions about names whose threat was known, in %d orders", known, seeds)
	}
}
