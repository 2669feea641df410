//go:build unix

package fleet

import (
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

// scene is a fleet and its relay.
type scene struct {
	t        *testing.T
	google   *judged
	upstream *testkit.Link // between the relay and its server
	relay    *relay
	network  *testkit.Link // between the clients and the relay
	clients  []*embedded
	known    []name // that all clients have asked for before the fault
	fresh    []name // that none has
}

const faultClients = 64

// fault is something that goes wrong with a relay.
type fault struct {
	name       string
	begin, end func(*scene)
	delays     bool // answers come late and not never: a search under way is answered at the end
	unserved   bool // the relay serves again only after its random first contact
}

func kill(s *scene) { s.relay.Kill() }

var faults = []fault{
	{name: "killed", begin: kill, end: func(s *scene) { s.google.ClientStarted(); s.relay.start() }},
	{name: "stopped by SIGTERM", begin: func(s *scene) { s.relay.Signal(syscall.SIGTERM); s.relay.Wait() }, end: func(s *scene) { s.google.ClientStarted(); s.relay.start() }},
	{name: "paused", begin: func(s *scene) { s.relay.Signal(syscall.SIGSTOP) }, end: func(s *scene) { s.relay.Signal(syscall.SIGCONT) }, delays: true},
	{name: "network loses all", begin: func(s *scene) { s.network.Set(true, false) }, end: func(s *scene) { s.network.Set(false, false) }, delays: true},
	{name: "network refuses all", begin: func(s *scene) { s.network.Set(false, true) }, end: func(s *scene) { s.network.Set(false, false) }},
	{name: "relay cut from its server", begin: func(s *scene) { s.upstream.Set(true, false) }, end: func(s *scene) { s.upstream.Set(false, false) }, delays: true},
	{name: "given other lists", begin: kill, end: func(s *scene) {
		s.google.ClientStarted()
		s.google.ClientLostState()
		publish(s.google.Server, append(s.google.names, name{"new.example", threatening}))
		s.relay.db = filepath.Join(s.t.TempDir(), "other")
		fetch(s.t, s.relay.db, s.relay.upstream)
		s.relay.start()
	}},
	{name: "given an empty folder", begin: kill, end: func(s *scene) {
		s.google.ClientStarted()
		s.google.ClientLostState()
		s.relay.db = s.t.TempDir()
		s.relay.start()
	}, unserved: true},
}

// Whatever goes wrong with a relay: no listed name is ever taken for safe, what clients know stays, the server is not asked too early,
// each prefix is asked for once, and no client hurries to fetch lists. The relay is a process, and 64 clients ask over sockets. How
// clients come to have new lists, which takes minutes, is in TestNoStampede of internal/relay.
func TestFaultsOfARelay(t *testing.T) {
	testkit.Long(t)
	for _, f := range faults {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			newScene(t).suffer(f)
		})
	}
}

// newScene starts a fleet whose clients know half of the names.
func newScene(t *testing.T) *scene {
	names := population(96)
	s := &scene{t: t, google: judge(t, names, nil), known: names[:48], fresh: names[48:]}
	s.upstream = testkit.NewLink(t, strings.TrimPrefix(s.google.url, "http://"))
	s.relay = startRelay(t, s.upstream.URL)
	s.network = testkit.NewLink(t, strings.TrimPrefix(s.relay.url, "http://"))
	s.clients = startEmbedded(t, slices.Repeat([]string{s.network.URL}, faultClients))
	decideAll(t, s.clients, s.known)
	return s
}

// suffer lets a fault begin and end.
func (s *scene) suffer(f fault) {
	s.t.Helper()
	f.begin(s)
	decideAll(s.t, s.clients, s.known) // from their caches
	timeout := time.Second
	if f.delays {
		timeout = 3 * time.Second // nothing else makes the fault last
	}
	s.wantNoneSafe(timeout)
	before := costOf(s.google)
	f.end(s)
	back := time.Now()
	decideAll(s.t, s.clients, s.known)
	if f.unserved {
		s.wantNoneSafe(time.Second)
		s.wantNoHurry(back)
		return
	}
	if !f.delays && s.clients[0].SearchHold().Failures == 0 {
		s.t.Error("a client has noticed nothing: the fault shows nothing")
	}
	decideAll(s.t, s.clients, s.fresh)
	testkit.Between(s.t, "prefixes that reached the server after the fault", costOf(s.google).minus(before).prefixes, 0, listed(s.fresh))
	s.wantNoHurry(back)
}

// wantNoneSafe asks at all clients for four unknown threats, so that a search is failing for some and merged for others.
func (s *scene) wantNoneSafe(timeout time.Duration) {
	s.t.Helper()
	threats := slices.DeleteFunc(slices.Clone(s.fresh), func(n name) bool { return n.kind != threatening })
	var wg sync.WaitGroup
	for i, c := range s.clients {
		wg.Go(func() {
			defer func(before time.Duration) { c.timeout = before }(c.timeout)
			c.timeout = timeout
			host := threats[i%4].host
			if got, _ := c.verdict(host); got == lookup.Safe {
				s.t.Errorf("client %d, %s: %s", i, host, got)
			}
		})
	}
	wg.Wait()
}

// wantNoHurry wants that clients ask for lists in their time after the end of a fault.
func (s *scene) wantNoHurry(back time.Time) {
	s.t.Helper()
	var fetches []time.Time
	for _, c := range s.clients {
		var last time.Time
		for _, at := range c.fetches.since(back) {
			if at.Sub(last) < 10*time.Second { // the least wait that a relay gives
				s.t.Errorf("a client asked for lists again after %s", at.Sub(last))
			}
			fetches, last = append(fetches, at), at
		}
	}
	// A client waits 10 to 55 seconds from its last answer, at random.
	slices.SortFunc(fetches, time.Time.Compare)
	for i := range len(fetches) - faultClients/4 {
		testkit.Between(s.t, "how long a quarter of the requests for lists takes", fetches[i+faultClients/4].Sub(fetches[i]), time.Second, time.Hour)
	}
}

func (r *recorder) since(t time.Time) []time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(r.fetches), t.After)
}
