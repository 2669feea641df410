package relay

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
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

// A threat that the server confirms no more is blocked behind two relays for at most 30 minutes from the last confirmation, however slow
// the answers of both are. It is cached for no longer than the server said; an answer that is on its way at that time is used once.
func TestNoAnswerIsOlderThan30MinutesBehindTwoRelays(t *testing.T) {
	testkit.Long(t)
	for _, ttl := range []time.Duration{5 * time.Minute, 29*time.Minute + 55*time.Second, 24 * time.Hour} {
		for _, delay := range []time.Duration{0, 9 * time.Second} {
			for _, warmed := range []time.Duration{0, 2 * time.Minute, 20 * time.Minute} { // when the second relay asks the first
				for _, before := range []time.Duration{time.Second, 12 * time.Second} { // the end of the 30 minutes, or of the TTL
					bubble(t, fmt.Sprint(ttl, " ", delay, " ", warmed, " ", before), func(t *testing.T) { chainEnds(t, ttl, delay, warmed, before) })
				}
			}
		}
	}
}

// chainEnds lets a threat end after the first relay has confirmed it. The second one asks when it is warmed old, its client at the end.
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

// "In no list" is said for a minute in all, not for a minute by each relay. Then a new name is blocked when both have the new list.
func TestAPrefixInNoListIsSafeForAMinuteBehindTwoRelays(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.suspect("gone.example/", "evil.example/")
		w.start()
		second := w.behind()
		c := second.replica(1)
		testkit.Equal(t, "a prefix in no list of either relay", second.ttlAt("new.example/"), time.Minute)

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
		testkit.Equal(t, "a prefix that only the second relay has", first, time.Minute)
		testkit.Between(t, "the same 9 seconds later", second.ttlAt("gone.example/"), 0, time.Minute-9*time.Second)

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
			clients = append(clients, second.replica(n))
		}
		time.Sleep(2 * time.Minute)
		neverSafe := func() {
			for i, c := range clients {
				if d := c.decide("evil.example."); d.Verdict == lookup.Safe {
					t.Errorf("client %d: %+v", i, d)
				}
			}
		}
		neverSafe()
		second.wire.connect(nil, 0)
		w.threaten("evil.example/", "late.example/")
		for range 12 {
			time.Sleep(5 * time.Minute)
			neverSafe()
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
		neverSafe()
		testkit.Between(t, "requests for lists in an hour and some minutes, one in 30 minutes", len(w.google.Requests("update")), 1, 4)
	})
}

var herdClients = flag.Int("herd", 100, "clients of TestNoStampedeAfterAFault")

// herd is herdClients clients of a relay that gets into trouble.
type herd struct {
	*world
	clients  []*replica
	upstream atomic.Bool // the relay cannot reach its server
	gone     atomic.Bool // evil.example is no threat any more
}

// updateWait is the minimum wait of the relay's server.
const updateWait = 10 * time.Minute

// stampedes are faults of a relay. The lists change meanwhile.
var stampedes = []struct {
	name     string
	fault    func(*herd)
	converge time.Duration // at most, from the end of the fault until all clients have the change
}{
	{"none", func(*herd) {}, updateWait + time.Minute},
	{"paused, 20 s", func(h *herd) { h.hang(20 * time.Second) }, updateWait + time.Minute},
	// A client whose request has failed asks again after 15 to 30 minutes, see updater.Backoff.
	{"paused, 2 min", func(h *herd) { h.hang(2 * time.Minute) }, 31 * time.Minute},
	{"restarted, 1 s", func(h *herd) { h.restart(time.Second, func() {}) }, 31 * time.Minute},
	{"killed, 2 min", func(h *herd) { h.restart(2*time.Minute, func() {}) }, 31 * time.Minute},
	{"network cut, 25 min", func(h *herd) {
		h.connect(nil)
		time.Sleep(25 * time.Minute)
		h.connect(h.relay)
	}, 66 * time.Minute}, // a second failure doubles the wait
	{"relay cut from its server, 20 min", func(h *herd) {
		h.upstream.Store(true)
		time.Sleep(20 * time.Minute)
		h.upstream.Store(false)
	}, 31 * time.Minute},
	{"given an empty folder, 1 s", func(h *herd) { h.restart(time.Second, h.empty) }, 31 * time.Minute},
	{"given an empty folder, 2 min", func(h *herd) { h.restart(2*time.Minute, h.empty) }, 31 * time.Minute},
	{"given other lists, 1 s", func(h *herd) { h.restart(time.Second, h.other) }, 31 * time.Minute},
}

// After a fault of the relay its clients do not come all at once, all of them get the lists, and no listed name is ever taken for safe.
func TestNoStampedeAfterAFault(t *testing.T) {
	testkit.Long(t)
	for _, s := range stampedes {
		bubble(t, s.name, func(t *testing.T) { newHerd(t).suffer(s.fault, s.converge) })
	}
}

// newHerd starts a relay, and its clients within a minute.
func newHerd(t *testing.T) *herd {
	h := &herd{world: newWorld(t)}
	h.cfg.Settings.DB = t.TempDir()
	for _, list := range []string{"se-4b", "mw-4b"} {
		h.google.SetMinimumWait(list, updateWait)
	}
	h.cfg.Edge.Transport = guarded{h.google, func(*http.Request) error {
		if h.upstream.Load() {
			return errRefused
		}
		return nil
	}}
	h.start()
	for n := range *herdClients {
		h.clients = append(h.clients, h.replicaIn(lookup.Local, n, func() time.Duration { return rand.N(time.Minute) }))
	}
	time.Sleep(4 * time.Minute)
	return h
}

// connect lets all clients reach a relay, or none with nil.
func (h *herd) connect(handler http.Handler) {
	for _, c := range h.clients {
		c.wire.connect(handler, 0)
	}
}

// restart ends the relay and starts it again after a time. The machine changes meanwhile.
func (h *herd) restart(after time.Duration, change func()) {
	h.connect(nil)
	h.relay.Close()
	h.google.ClientStarted()
	time.Sleep(after)
	change()
	h.cfg.Edge.FirstContact = func() time.Duration { return 30 * time.Second }
	h.start()
	h.connect(h.relay)
}

// empty gives the relay an empty folder.
func (h *herd) empty() {
	h.google.ClientLostState()
	h.cfg.Settings.DB = h.t.TempDir()
}

// other gives the relay an empty folder and lists without anything that they had.
func (h *herd) other() {
	h.empty()
	h.gone.Store(true)
	h.google.RemoveThreat("evil.example/")
	h.threaten("worse.example/", "worst.example/")
}

// hang makes the relay answer nothing for a time, and then whoever still waits.
func (h *herd) hang(d time.Duration) {
	running := make(chan struct{})
	h.connect(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-running:
			h.relay.ServeHTTP(w, r)
		case <-time.After(30 * time.Second): // the client gives up, which is a failure too
			w.WriteHeader(http.StatusGatewayTimeout)
		case <-r.Context().Done():
		}
	}))
	time.Sleep(d)
	close(running)
	h.connect(h.relay)
}

// suffer changes the lists and lets a fault happen.
func (h *herd) suffer(fault func(*herd), converge time.Duration) {
	defer func() {
		h.relay.Close()
		for _, c := range h.clients {
			c.close()
		}
	}()
	if !h.decideAll("evil.example.", lookup.Unsafe) {
		return
	}
	h.threaten("evil.example/", "worse.example/")
	stopped := make(chan struct{})
	var asking sync.WaitGroup
	asking.Go(func() { // names are looked up all the time
		for h.gone.Load() || h.decideAll("evil.example.", lookup.Unsafe, lookup.Unsure) {
			select {
			case <-stopped:
				return
			case <-time.After(4 * time.Minute):
			}
		}
	})
	fault(h)
	back := time.Now()
	inTime := h.follow(back, converge)
	close(stopped)
	asking.Wait()
	if !inTime {
		h.t.Fatalf("not all clients have the lists %s after the fault", converge)
	}
	h.decideAll("worse.example.", lookup.Unsafe, lookup.Unsure)
	h.wantNoHurry(back)
}

// watchTime is how long all clients keep asking after a fault. Those with the change end then: they would make the wait long.
const watchTime = 5 * time.Minute

// follow waits until all clients have the change, and reports whether they have it in time.
func (h *herd) follow(back time.Time, within time.Duration) bool {
	waiting := slices.Clone(h.clients)
	behind := func(c *replica) bool { return c.entries() != 2 }
	for slices.ContainsFunc(waiting, behind) && time.Since(back) < within {
		time.Sleep(5 * time.Second)
		waiting = slices.DeleteFunc(waiting, func(c *replica) bool {
			if behind(c) || time.Since(back) < watchTime {
				return false
			}
			h.decide(c, "worse.example.", lookup.Unsafe, lookup.Unsure)
			c.close()
			return true
		})
	}
	return !slices.ContainsFunc(waiting, behind)
}

// decide asks a client to decide about a name and wants one of the verdicts.
func (h *herd) decide(c *replica, qname string, want ...lookup.Verdict) {
	if d := c.decide(qname); !slices.Contains(want, d.Verdict) {
		h.t.Errorf("%s: %+v", qname, d)
	}
}

// decideAll is decide for all clients at once. It reports whether none has been wrong so far.
func (h *herd) decideAll(qname string, want ...lookup.Verdict) bool {
	var wg sync.WaitGroup
	for _, c := range h.clients {
		wg.Go(func() { h.decide(c, qname, want...) })
	}
	wg.Wait()
	return !h.t.Failed()
}

// wantNoHurry wants few requests for lists in any second since a time. In quiet times 500 clients send 15, one each in 10 to 55 seconds.
func (h *herd) wantNoHurry(since time.Time) {
	var times []time.Time
	for _, c := range h.clients {
		c.wire.mu.Lock()
		for i, at := range c.wire.times {
			if at.After(since) && strings.Contains(c.wire.paths[i], "hashLists") {
				times = append(times, at)
			}
		}
		c.wire.mu.Unlock()
	}
	slices.SortFunc(times, time.Time.Compare)
	most := *herdClients/10 + 10
	for i := range len(times) - most {
		testkit.Between(h.t, fmt.Sprint("how long requests for lists take, more than ", most), times[i+most].Sub(times[i]), time.Second, time.Hour)
	}
}
