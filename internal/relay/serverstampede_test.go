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
	"text/tabwriter"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

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

// herdMost is the most requests for lists in a second. In quiet times 500 clients send 15 on
// average: each asks every 10 to 55 seconds.
func herdMost() int { return *herdClients/10 + 10 }

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
	{"network cut, 25 min", func(h *herd) { h.cut(25 * time.Minute) }, 66 * time.Minute}, // a second failure doubles the wait
	{"relay cut from its server, 20 min", func(h *herd) { h.cutUpstream(20 * time.Minute) }, 31 * time.Minute},
	{"given an empty folder, 1 s", func(h *herd) { h.restart(time.Second, h.empty) }, 31 * time.Minute},
	{"given an empty folder, 2 min", func(h *herd) { h.restart(2*time.Minute, h.empty) }, 31 * time.Minute},
	{"given other lists, 1 s", func(h *herd) { h.restart(time.Second, h.other) }, 31 * time.Minute},
}

// After a fault of the relay its clients do not come all at once, all of them get the lists, and
// no listed name is ever taken for safe.
func TestNoStampedeAfterAFault(t *testing.T) {
	testkit.Long(t)
	var table strings.Builder
	out := tabwriter.NewWriter(&table, 0, 0, 2, ' ', 0)
	fmt.Fprintln(out, "fault\tmost list requests/s\trelay has new lists after\thalf of the clients after\tall clients after")
	for _, s := range stampedes {
		t.Run(s.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { fmt.Fprintln(out, s.name+"\t"+newHerd(t).suffer(s.fault, s.converge)) })
		})
	}
	out.Flush()
	t.Logf("\n%s", table.String())
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
		h.clients = append(h.clients, h.replicaAfter(n, func() time.Duration { return rand.N(time.Minute) }))
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

// cut cuts the network between the clients and the relay.
func (h *herd) cut(d time.Duration) {
	h.connect(nil)
	time.Sleep(d)
	h.connect(h.relay)
}

// cutUpstream cuts the network between the relay and its server.
func (h *herd) cutUpstream(d time.Duration) {
	h.upstream.Store(true)
	time.Sleep(d)
	h.upstream.Store(false)
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

// suffer changes the lists and lets a fault happen. It returns the row of the table.
func (h *herd) suffer(fault func(*herd), converge time.Duration) string {
	defer func() {
		h.relay.Close()
		for _, c := range h.clients {
			c.close()
		}
	}()
	if !h.decideAll("evil.example.", lookup.Unsafe) {
		return ""
	}
	h.threaten("evil.example/", "worse.example/")
	stopped := make(chan struct{})
	done := make(chan struct{})
	go func() { // names are looked up all the time
		defer close(done)
		for h.gone.Load() || h.decideAll("evil.example.", lookup.Unsafe, lookup.Unsure) {
			select {
			case <-stopped:
				return
			case <-time.After(4 * time.Minute):
			}
		}
	}()
	fault(h)
	back := time.Now()
	relay, half, all := h.follow(back, converge)
	close(stopped)
	<-done
	if all == 0 {
		h.t.Errorf("not all clients have the lists %s after the fault", converge)
		return ""
	}
	h.decideAll("worse.example.", lookup.Unsafe, lookup.Unsure)
	n := h.most(back)
	if n > herdMost() {
		h.t.Errorf("%d requests for lists in a second after the fault, want %d at most", n, herdMost())
	}
	return fmt.Sprintf("%d\t%s\t%s\t%s", n, relay, half, all)
}

// watchTime is how long all clients keep asking after a fault. Then those that have the change end:
// they would make the wait for the others long.
const watchTime = 5 * time.Minute

// follow returns after what times the relay, half of the clients and all of them have the
// change; 0: not in time.
func (h *herd) follow(back time.Time, within time.Duration) (relay, half, all time.Duration) {
	waiting := slices.Clone(h.clients)
	for all == 0 && time.Since(back) < within {
		time.Sleep(5 * time.Second)
		since := time.Since(back)
		behind := slices.DeleteFunc(slices.Clone(waiting), func(c *replica) bool { return c.entries() == 2 })
		for _, reached := range []struct {
			after *time.Duration
			yes   bool
		}{{&relay, entriesOfAll(h.relay.engine.Lists()) == 2}, {&half, len(behind) <= *herdClients/2}, {&all, len(behind) == 0}} {
			if *reached.after == 0 && reached.yes {
				*reached.after = since
			}
		}
		if since < watchTime {
			continue
		}
		for _, c := range waiting {
			if !slices.Contains(behind, c) {
				h.decide(c, "worse.example.", lookup.Unsafe, lookup.Unsure)
				c.close()
			}
		}
		waiting = behind
	}
	return relay, half, all
}

// decide asks a client to decide about a name, and reports whether it has come to one of the
// verdicts.
func (h *herd) decide(c *replica, qname string, want ...lookup.Verdict) bool {
	d := c.decide(qname)
	ok := slices.Contains(want, d.Verdict)
	if !ok {
		h.t.Errorf("%s: %+v", qname, d)
	}
	return ok
}

// decideAll asks all clients at once to decide about a name, and reports whether each has come to
// one of the verdicts.
func (h *herd) decideAll(qname string, want ...lookup.Verdict) bool {
	var wg sync.WaitGroup
	var wrong atomic.Bool
	for _, c := range h.clients {
		wg.Go(func() {
			if !wrong.Load() && !h.decide(c, qname, want...) {
				wrong.Store(true)
			}
		})
	}
	wg.Wait()
	return !wrong.Load()
}

// most returns the most requests for lists within a second, since a time.
func (h *herd) most(since time.Time) (n int) {
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
	first := 0
	for i, at := range times {
		for at.Sub(times[first]) >= time.Second {
			first++
		}
		n = max(n, i-first+1)
	}
	return n
}
