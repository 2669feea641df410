package relay

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
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

// mustTell searches for expressions and wants a number of threats. whole says whether the answer is about all of them, and so may be kept.
func (w *world) mustTell(threats int, whole bool, expressions ...string) {
	w.t.Helper()
	got := w.searchOf(expressions...)
	var answer sbv5.SearchHashesResponse
	answered(w.t, got, &answer)
	testkit.Equal(w.t, "threats", len(answer.FullHashes), threats)
	testkit.Equal(w.t, "is whole", got.Header().Get(protocol.UnansweredHeader) == "", whole)
	testkit.Equal(w.t, "may be kept", answer.GetCacheDuration().AsDuration() > 0, whole)
}

// mustSearch wants that the server has seen a number of searches more than before.
func (w *world) mustSearch(before, more int) {
	w.t.Helper()
	testkit.Equal(w.t, "searches of the server", len(w.google.Requests("search"))-before, more)
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
			w.mustTell(want, want == lookup.MaxPrefixes, names...)
			time.Sleep(time.Second)
		}
		c := w.replica(1)
		time.Sleep(time.Minute)
		c.mustBe(t, lookup.Unsafe, hostName(lookup.MaxPrefixes-1)+".")
	})
}

// A client that does not know the header of a relay sees threats, keeps nothing, and takes no prefix for harmless that nobody knows.
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
		w.mustTell(1, false, "new.example/", "evil.example/")
		w.mustTell(1, true, "good.example/", "evil.example/")
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
		testkit.Between(t, "the wait of the first relay", time.Until(until), 10*time.Minute, 24*time.Hour)
		far.mustBe(t, lookup.Unsafe, "a.bad.example.")
		far.mustBe(t, lookup.Unsafe, "evil.example.")
		testkit.Between(t, "how long the threat is blocked", far.decide("a.bad.example.").Expires.Sub(known), 0, 30*time.Minute)
		for time.Now().Before(until) {
			d := far.decide("late.example.")
			testkit.Equal(t, "during the back-off", []any{d.Verdict, d.By}, []any{lookup.Unsure, lookup.ByBackoff})
			time.Sleep(time.Second)
		}
		time.Sleep(time.Minute)
		far.mustBe(t, lookup.Unsafe, "late.example.")
		mustNotWait(t, "the second relay", second.relay.engine.SearchHold())
		mustNotWait(t, "its client", far.SearchHold())
		mustNotWait(t, "the other client", near.SearchHold())
	})
}

// A relay's server hangs. A client that confirms for half a second learns the known threat, and costs the server no request more.
func TestAClientLearnsWhatItsRelayKnowsWhileTheServerHangs(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.threaten("bad.example/", "a.bad.example/")
		w.begin()
		c, other := w.replica(1), w.replica(2)
		time.Sleep(time.Minute)
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
		w.mustSearch(asked, 1)
		mustNotWait(t, "the relay", w.relay.engine.SearchHold())
		mustNotWait(t, "its client", c.SearchHold())
	})
}

// A relay's server hangs. A client with two relays gives up after five seconds, and is told before that its relay does not know yet.
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
			testkit.Equal(t, when+": searches that are told", w.relay.handler.costs.sum(time.Now()).Searches, want)
			w.mustSearch(0, want)
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
		w.mustTell(1, true, "good.example/", "new.example/")
	})
}

// A relay behind another one has spent its share. What the other one knows is told all the same, and costs no search of the server.
func TestAClientThatHasSpentItsShareLearnsWhatARelayFartherAwayKnows(t *testing.T) {
	lines := testkit.Capture(t)
	inWorld(t, func(t *testing.T, w *world) {
		w.threaten(append(hosts(60), "evil.example/")...)
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
		testkit.WantParts(t, lines.Only(t, "has spent its share of the day's budget and"), `If it forwards for others, write "-budget 200,100%"`)
		for _, name := range []string{"evil.example.", hostName(spent) + "."} {
			near.mustBe(t, lookup.Unsafe, name)
			before := len(w.google.Requests("search"))
			time.Sleep(time.Minute) // a refused name is asked for again after it
			far.mustBe(t, lookup.Unsafe, name)
			w.mustSearch(before, 0)
		}
	})
}

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
		testkit.Between(t, "searches of 100 that are spent in 15 seconds", len(w.google.Requests("search")), 10, 25)
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
			refused := 0
			for refused < 59 && c.decideFor("192.0.2.1", hostName(refused)+".").Verdict != lookup.Unsure {
				refused++
			}
			testkit.Equal(t, fmt.Sprint("names before the one that was refused: ", refused), refused > 0, before.key == "")
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

// limitedWorld starts a relay with the default limits, or an EMA if threshold is not 0, whose lists have n hosts, and a client.
func limitedWorld(t *testing.T, n int, threshold float64) (*world, *replica) {
	w := newWorld(t)
	w.suspect(hosts(n)...)
	w.cfg.Rate, w.cfg.Burst, w.cfg.EMA = DefaultRate, DefaultBurst, threshold
	w.start()
	return w, w.replica(1)
}

// counted returns how many searches of clients have an outcome.
func (w *world) counted(outcome string) int {
	return int(valueOf(w.t, w.relay.handler.metrics.requests.WithLabelValues("search", outcome)))
}

// One name server with 500 users that look up 30 new names a second is within the limit, also if 150 such names come at once.
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
		w.mustSearch(0, names)
		testkit.Equal(t, "searches that were limited", w.counted(outcomeLimited), 0)
	})
}

// A name for which a client is over the limit is confirmed a second later: the answer is 503 with Retry-After. After 429 the client
// would wait for 15 minutes at least. One that stays over the limit causes no more searches than the limit allows.
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
		testkit.Between(t, "names that failed", failed, 40, 50)
		testkit.Equal(t, "searches that were limited", w.counted(outcomeLimited), failed)
		mustNotWait(t, "the client", c.SearchHold())
		time.Sleep(time.Second)
		testkit.Must(t, c.decide(hostName(DefaultBurst+49)+".").Err)
		begun, before := time.Now(), len(w.google.Requests("search"))
		for i := DefaultBurst + 50; i < names; i++ {
			c.decide(hostName(i) + ".")
			time.Sleep(time.Millisecond)
		}
		allowed := DefaultBurst + int(DefaultRate*time.Since(begun).Seconds()) + 1
		testkit.Between(t, "searches of the server", len(w.google.Requests("search"))-before, 0, allowed)
	})
}

// With -ema a client that asked regularly and suddenly asks faster is refused, but not for a steady rate, however high.
func TestABurstIsRefusedByEMA(t *testing.T) {
	const names = 500
	synctest.Test(t, func(t *testing.T) {
		w, c := limitedWorld(t, names, 3)
		for i := range names - 10 {
			testkit.Must(t, c.decide(hostName(i)+".").Err)
			time.Sleep(time.Second / 200)
		}
		for i := names - 10; i < names; i++ {
			c.decide(hostName(i) + ".")
		}
		testkit.Equal(t, "searches of a burst that were limited, from which the rule learns", w.counted(outcomeLimited), 1)
	})
}

var orderSeeds = flag.Int("order.seeds", 20, "orders of events that TestNoOrderOfEventsTurnsAKnownThreatIntoAPass tries")

// orderNames are the names of TestNoOrderOfEventsTurnsAKnownThreatIntoAPass, and what each of their expressions is.
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
	relays  []*Relay             // by client
	known   int                  // decisions about names whose threat was known
	refused map[string]time.Time // when an expression was last left without an answer, by any relay
}

// knownTo reports whether a client, or a relay that it asks, directly or through another, has an answer in its cache that names a
// threat of a query. A relay that has learnt it since the client was refused is asked again within a minute.
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
	o.t.Logf("%s client %d: %s is %s by %s (%v), known: %t", time.Now().Format(time.TimeOnly), client, qname, d.Verdict, d.By, d.Err, known)
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
	names := slices.Sorted(maps.Keys(orderNames))
	switch o.rng.IntN(6) {
	case 0:
		f := []protocoltest.Fault{{Status: http.StatusTooManyRequests}, {Status: http.StatusInternalServerError}, {Status: http.StatusServiceUnavailable, RetryAfter: 20 * time.Minute}, {Status: http.StatusForbidden}, {Delay: 3 * time.Second}}[o.rng.IntN(5)]
		f.Delay = max(f.Delay, time.Millisecond) // as on a network: searches that begin with a failure are not after it
		o.t.Logf("the next search: status %d after %s", f.Status, f.Delay)
		o.google.Break("search", 1, f)
	case 1:
		pause := []time.Duration{time.Second, time.Minute, 4 * time.Minute, 11 * time.Minute}[o.rng.IntN(4)]
		time.Sleep(pause)
	default:
		o.decide(o.rng.IntN(len(o.clients)), names[o.rng.IntN(len(names))])
	}
}

// No order of (answers from a cache, a relay, a relay behind it or the server; errors; budgets and shares; back-offs) turns a threat
// that is known and has not expired into a pass, and the server is never asked too early.
func TestNoOrderOfEventsTurnsAKnownThreatIntoAPass(t *testing.T) {
	seeds := *orderSeeds
	if testing.Short() {
		seeds = 8
	}
	known := 0
	for seed := range uint64(seeds) {
		runWorld(t, fmt.Sprint("seed ", seed), func(t *testing.T, w *world) {
			o := &order{world: w, t: t, refused: make(map[string]time.Time), rng: rand.New(rand.NewPCG(seed, 25))}
			o.suspect(slices.Concat(slices.Collect(maps.Values(orderNames))...)...)
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
			known += o.known
		})
	}
	testkit.Between(t, "decisions about names whose threat was known", known, seeds*5, seeds*60)
}
