package relay

import (
	"cmp"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/engine"
	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol"
	"github.com/coredns-safebrowsing/safebrowsing/internal/sharing"
	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
	"github.com/coredns-safebrowsing/safebrowsing/updater"
)

var chaosRounds = flag.Int("chaos", 2, "rounds of TestChaos")

// childVariable has the configuration of a relay that runs in a process of its own.
const childVariable = "SAFEBROWSING_TEST_RELAY"

// childConfig is what that process is told.
type childConfig struct {
	Endpoint, Redis, Folder string
	Counts                  string // "address:port" where it tells its goroutines; "": none
	Connections             int    // see Config
}

// runChild runs a relay until its process ends.
func runChild(text string) {
	var c childConfig
	_ = json.Unmarshal([]byte(text), &c) // by this test
	cfg := Config{
		Settings: engine.Settings{Endpoint: c.Endpoint, Protocol: protocol.DialectV5.Name, Lists: "se-4b mw-4b", DB: c.Folder},
		Edge:     engine.Edge{FirstContact: atOnce},
		Listen:   "127.0.0.1:0", Connections: c.Connections,
		fleetTimes: sharing.StoreConfig{Lease: 1500 * time.Millisecond, Beat: 100 * time.Millisecond, Settle: 500 * time.Millisecond, Spread: 50 * time.Millisecond},
	}
	if target, err := sharing.Parse(c.Redis); err == nil {
		cfg.Redis = &sharing.Config{Target: target}
	}
	if c.Counts != "" {
		listener, err := net.Listen("tcp", c.Counts)
		if err != nil {
			panic(err)
		}
		go http.Serve(listener, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, runtime.NumGoroutine()) }))
	}
	err := Run(context.Background(), cfg, func(listen, _ net.Addr) { fmt.Println("listens", listen) })
	panic(err)
}

// child is such a process.
type child struct {
	t      *testing.T
	config childConfig
	link   *testkit.Link // to Redis
	off    bool          // it is dead or hangs
	url    string
	client protocol.Client
	*testkit.Process
}

func (c *child) start() {
	c.t.Helper()
	config, err := json.Marshal(c.config)
	testkit.Must(c.t, err)
	c.Process = testkit.StartWith(c.t, []string{childVariable + "=" + string(config)}, os.Args[0])
	_, address, _ := strings.Cut(strings.TrimSpace(c.Line("listens ", time.Minute)), "listens ")
	c.url, c.off = "http://"+address, false
	c.client, err = protocol.NewV5(protocol.Config{Endpoint: c.url, UserAgent: "test/1"})
	testkit.Must(c.t, err)
}

func (c *child) kill() {
	c.off = true
	c.Kill()
	c.client.Close()
}

// entries returns how many entries of phishing the relay serves, -1 if it does not answer.
func (c *child) entries() int {
	ctx, cancel := context.WithTimeout(c.t.Context(), 2*time.Second)
	defer cancel()
	n := -1
	_, _ = c.client.Fetch(ctx, []updater.Want{{List: "se-4b"}}, func(_ int, u *updater.Update) { // without a list it has failed
		if l, _, err := updater.Apply(updater.List{Name: "se-4b"}, u, 1<<20); err == nil {
			n = l.Set.Len()
		}
	})
	return n
}

// chaos is a fleet of relays, a Redis and a judging server.
type chaos struct {
	*world
	server *testkit.Redis
	fleet  []*child
	names  []string
	next   int // of the names that were not asked for
	resets int
}

// leader returns the relay that has the lease, or nil.
func (c *chaos) leader() *child {
	for _, r := range c.fleet {
		id := "/" + strconv.Itoa(r.Pid()) + "/"
		if strings.Contains(c.server.Do("GET", sharing.Prefix(c.asker())+"lease:schedule.json"), id) {
			return r
		}
	}
	return nil
}

func (c *chaos) asker() string { return c.cfg.Settings.Origin("").Asker }

// strike does something bad, and returns its name and what ends it.
func (c *chaos) strike(n int) (what string, end func()) {
	leader := cmp.Or(c.leader(), c.fleet[0])
	hang := func(s syscall.Signal) func() {
		return func() { leader.Signal(s); leader.off = s == syscall.SIGSTOP }
	}
	link := func(lost, down bool, relays ...*child) func() {
		return func() {
			for _, r := range relays {
				r.link.Set(lost, down)
			}
		}
	}
	strikes := []struct {
		what       string
		begin, end func()
	}{
		{"SIGKILL of the leader", leader.kill, leader.start},
		{"SIGSTOP of the leader", hang(syscall.SIGSTOP), hang(syscall.SIGCONT)},
		{"SIGKILL of Redis", c.server.Kill, c.server.Restart},
		{"SIGSTOP of Redis", c.server.Stop, c.server.Continue},
		{"Redis flushed", func() { c.server.Do("FLUSHALL") }, func() {}},
		{"the leader is refused by Redis", link(false, true, leader), link(false, false, leader)},
		{"the leader is cut off from Redis", link(true, false, leader), link(false, false, leader)},
		{"all are cut off from Redis", link(true, false, c.fleet...), link(false, false, c.fleet...)},
		{"SIGKILL of both", func() { leader.kill(); c.server.Kill() }, func() { c.server.Restart(); leader.start() }},
	}
	s := strikes[n%len(strikes)]
	s.begin()
	return s.what, s.end
}

// check asks each relay that runs about a threat and about a clean name, until it answers, and returns how long the slowest took.
func (c *chaos) check(begun time.Time) (took time.Duration) {
	for _, r := range c.fleet {
		evil, clean := lookup.HashExpression(c.names[c.next]), lookup.HashExpression("clean.example/")
		c.next++
		if r.off {
			continue
		}
		for answered := false; !answered; {
			answered = c.confirms(r, evil, 1) && c.confirms(r, clean, 0)
			if took = time.Since(begun); took > time.Minute {
				c.t.Fatal("Expected that a relay that runs confirms names")
			}
		}
	}
	return took
}

// confirms asks a relay to confirm a name. It reports whether the relay answers; threats is how many it must know.
func (c *chaos) confirms(r *child, hash lookup.FullHash, threats int) bool {
	ctx, cancel := context.WithTimeout(c.t.Context(), 2*time.Second)
	defer cancel()
	answer, err := r.client.Search(ctx, []lookup.Prefix{hash.Prefix(4)})
	if err == nil && (len(answer.Threats) != threats || threats > 0 && answer.Threats[0].Hash != hash) {
		c.t.Errorf("Expected %d threats, got %+v", threats, answer)
	}
	if err != nil {
		time.Sleep(10 * time.Millisecond)
	}
	return err == nil
}

// backsOff reports whether a fetch was cut in two: then the fleet backs off for 15 minutes at least, as it must.
func (c *chaos) backsOff() bool {
	raw := c.server.Do("GET", sharing.Prefix(c.asker())+"schedule.json")
	_, raw, _ = strings.Cut(raw, " ")
	var doc struct {
		Schedule struct {
			Fetch struct {
				Failures int
				Asking   bool // a request that is under way counts as failed
			}
		}
	}
	return json.Unmarshal([]byte(raw), &doc) == nil && doc.Schedule.Fetch.Failures > 0 && !doc.Schedule.Fetch.Asking
}

// reset begins again with empty folders.
func (c *chaos) reset() {
	c.resets++
	for _, r := range c.fleet {
		r.kill()
	}
	c.server.Do("FLUSHALL")
	c.google.ClientLostState()
	for _, r := range c.fleet {
		r.link.Set(false, false)
		c.withFolder(r)
		r.start()
	}
}

// withFolder gives a relay of the fleet an empty folder.
func (c *chaos) withFolder(r *child) {
	r.config = childConfig{Endpoint: c.cfg.Settings.Endpoint, Redis: "redis://" + r.link.Addr, Folder: c.t.TempDir()}
}

// maxResets is how often a fetch may be cut in two before one content is everywhere. Nothing bad happens after a reset.
const maxResets = 3

// fresh waits until each relay serves n entries, and returns how long that took since begun.
func (c *chaos) fresh(n int, begun time.Time) time.Duration {
	for resets := c.resets; ; {
		late := slices.IndexFunc(c.fleet, func(r *child) bool { return r.entries() != n })
		took := time.Since(begun)
		switch {
		case late < 0:
			return took
		case took > 15*time.Second && c.backsOff():
			if c.resets-resets == maxResets {
				c.t.Fatalf("Expected %d entries at each relay after %d resets", n, maxResets)
			}
			c.t.Logf("a fetch was cut in two; the fleet backs off and begins again")
			c.reset()
			begun = time.Now()
		case took > 2*time.Minute: // a fetch that was cut with its lease is repeated after a minute
			c.t.Fatalf("Expected %d entries at each relay, not yet at relay %d", n, late)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// Whatever dies, hangs or forgets, the server sees one polite client, no name gets a wrong verdict, and all relays get fresh lists again.
//
//	go test ./internal/relay -run TestChaos -chaos 200 -timeout 1h -v
func TestChaos(t *testing.T) {
	t.Parallel()
	testkit.Long(t)
	rounds := *chaosRounds
	w := judged(t, 6*(rounds+1))
	w.google.OneOfMany() // who takes over may have an older version
	for _, list := range []string{"se-4b", "mw-4b"} {
		w.google.SetMinimumWait(list, time.Second)
	}
	c := &chaos{world: w, server: testkit.StartRedis(t), names: hosts(6 * (rounds + 1))}
	for range 3 {
		r := &child{t: t, link: testkit.NewLink(t, c.server.Addr)}
		c.withFolder(r)
		r.start()
		t.Cleanup(r.kill)
		c.fleet = append(c.fleet, r)
	}
	c.fresh(len(c.names), time.Now())
	all := slices.Clone(c.names)
	longest, unconfirmed := make(map[string]time.Duration), make(map[string]time.Duration)
	for round := range rounds {
		struck := time.Now()
		what, end := c.strike(round + rand.IntN(2)*4)
		unconfirmed[what] = max(unconfirmed[what], c.check(struck))
		all = append(all, fmt.Sprintf("extra%d.example/", round))
		w.suspect(all...)
		published := time.Now()
		time.Sleep(time.Duration(rand.IntN(2500)) * time.Millisecond)
		end()
		longest[what] = max(longest[what], c.fresh(len(all), published))
		unconfirmed[what] = max(unconfirmed[what], c.check(time.Now()))
	}
	t.Logf("%d rounds, %d requests for lists, %d times a fetch was cut in two", rounds, len(w.google.Requests("update")), c.resets)
	t.Logf("%-32s  %-34s  %s", "", "longest until all had a new content", "longest without confirmations at a relay that runs")
	for what, took := range longest {
		t.Logf("%-32s  %-34s  %s", what, took.Round(10*time.Millisecond), unconfirmed[what].Round(time.Millisecond))
	}
}

var floodAll = flag.Bool("flood.all", false, "let TestFloodOfARelay send 10,000 requests at once; otherwise a sample")

// relayFlood is many requests at once that a relay has to hold, since its server is slow.
type relayFlood struct {
	name    string
	sample  bool
	clients int                // addresses that they come from
	request func(n int) string // the path and the query of the nth request
	lists   bool               // the server is slow with the first lists, else with searches
	drowns  bool               // all connections are taken: others wait for one
}

const listsRequest = "/v5/hashLists:batchGet?names=se-4b&names=mw-4b"

// searchRequest asks about expressions.
func searchRequest(expressions ...string) string {
	query := make(url.Values)
	for _, e := range expressions {
		query.Add("hashPrefixes", param64(prefixOf(e, 4)))
	}
	return "/v5/hashes:search?" + query.Encode()
}

var relayFloods = []relayFlood{
	{name: "one client, one prefix", sample: true, clients: 1, request: func(int) string { return searchRequest(hostName(0) + "/") }},
	{name: "one client, many prefixes", clients: 1, request: func(n int) string { return searchRequest(hostName(n) + "/") }},
	{name: "1,000 clients, one prefix", clients: 1000, request: func(int) string { return searchRequest(hostName(0) + "/") }},
	{name: "1,000 clients, many prefixes", sample: true, clients: 1000, request: func(n int) string { return searchRequest(hostName(n) + "/") }},
	{name: "one client, first lists", clients: 1, request: func(int) string { return listsRequest }, lists: true},
	{name: "1,000 clients, first lists", clients: 1000, request: func(int) string { return listsRequest }, lists: true, drowns: true},
}

// A flood takes bounded memory and goroutines, which are as before when it ends. Meanwhile others get lists and cached answers.
func TestFloodOfARelay(t *testing.T) {
	testkit.Long(t)
	if runtime.GOOS != "linux" {
		t.Skip("it reads /proc")
	}
	requests, connections := 600, 256
	if *floodAll {
		requests, connections = 10_000, DefaultConnections
	}
	t.Logf("%-30s %8s %7s  %-24s %s", "flood", "held", "others", "MiB -> peak -> after", "goroutines")
	for _, f := range relayFloods {
		if !f.sample && !*floodAll {
			continue
		}
		t.Run(f.name, func(t *testing.T) { f.try(t, requests, connections) })
	}
}

func (f relayFlood) try(t *testing.T, requests, connections int) {
	r := f.start(t, requests, connections)
	before := r.used()
	refused, end := f.pour(r, requests)
	served := r.others(f.lists)
	peak, held := r.used(), requests-refused
	close(r.gate)
	end()
	testkit.Until(t, "about as few goroutines as before", func() bool { return r.used().goroutines <= before.goroutines+50 })
	after := r.used()
	t.Logf("%-30s %8d %5d %%  %4.0f -> %4.0f -> %4.0f MiB   %5d -> %5d -> %5d", f.name, held, 100*served/floodOthers,
		before.mib, peak.mib, after.mib, before.goroutines, peak.goroutines, after.goroutines)
	if !f.drowns {
		testkit.Equal(t, "requests of other clients that are served", served, floodOthers)
	}
	testkit.Between(t, "goroutines at the peak", peak.goroutines, 0, 3*connections+200) // two for a connection
	testkit.Between(t, "MiB at the peak", peak.mib, 0, before.mib+256)
}

// flooded is a relay in a process of its own.
type flooded struct {
	*child
	counts string
	gate   chan struct{} // closed when the server is no longer slow
}

// start starts the relay, with lists unless the flood is for the first ones.
func (f relayFlood) start(t *testing.T, prefixes, connections int) *flooded {
	t.Helper()
	w := newWorld(t)
	w.suspect(append(hosts(prefixes), "evil.example/")...)
	r := &flooded{gate: make(chan struct{}), counts: testkit.FreeAddr(t)}
	var slow atomic.Bool
	slow.Store(f.lists)
	w.listen(func(q *http.Request) error {
		if slow.Load() && strings.Contains(q.URL.Path, "hashes:search") != f.lists {
			select {
			case <-r.gate:
			case <-q.Context().Done():
			}
		}
		return q.Context().Err()
	})
	r.child = &child{t: t, config: childConfig{Endpoint: w.cfg.Settings.Endpoint, Folder: t.TempDir(), Counts: r.counts, Connections: connections}}
	r.child.start()
	t.Cleanup(r.kill)
	if !f.lists {
		testkit.Until(t, "the lists", func() bool { return r.get(context.Background(), searchRequest("evil.example/"), "127.0.0.9") == nil })
	}
	slow.Store(true)
	w.google.ClientCancelled() // what the relay gives up
	return r
}

// pour sends all requests of a flood at once, each on a connection of its own, and returns when the relay has taken
// or refused all that it will: how many have ended by then, and what ends the others.
func (f relayFlood) pour(r *flooded, requests int) (refused int, end func()) {
	var wg sync.WaitGroup
	var sent, ended atomic.Int64
	ctx, cancel := context.WithCancel(context.Background())
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{WroteRequest: func(httptrace.WroteRequestInfo) { sent.Add(1) }})
	for n := range requests {
		wg.Go(func() {
			defer ended.Add(1) // with an answer, or without a connection
			client := n % f.clients
			_ = r.get(ctx, f.request(n), net.IPv4(127, 77, byte(client>>8), byte(1+client&0xff)).String())
		})
	}
	last := int64(-1)
	testkit.Until(r.t, "all requests that are taken or refused", func() bool {
		time.Sleep(300 * time.Millisecond)
		now := sent.Load() + ended.Load()
		same := now == last && (f.drowns || now >= int64(requests))
		last = now
		return same
	})
	return int(ended.Load()), func() { cancel(); wg.Wait() }
}

// floodOthers is how many requests other clients send during a flood.
const floodOthers = 20

// others sends requests that need no server, by other clients, and returns how many were served. Before the first lists that is: held.
func (r *flooded) others(lists bool) (served int) {
	for n := range floodOthers {
		path, patience := listsRequest, 5*time.Second
		switch {
		case lists:
			patience = 200 * time.Millisecond
		case n%2 == 0:
			path = searchRequest("evil.example/")
		}
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		if err := r.get(ctx, path, fmt.Sprintf("127.99.0.%d", n+1)); err == nil || lists && ctx.Err() != nil {
			served++
		}
		cancel()
	}
	return served
}

// get asks the relay from an address.
func (r *flooded) get(ctx context.Context, path, from string) error {
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	c := http.Client{Transport: &http.Transport{DialContext: d.DialContext, DisableKeepAlives: true}}
	q, _ := http.NewRequestWithContext(ctx, http.MethodGet, r.url+path, nil) // its URL is one
	answer, err := c.Do(q)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("status %d", answer.StatusCode)
	}
	_, err = io.Copy(io.Discard, answer.Body)
	return err
}

// floodUse is what a process uses.
type floodUse struct {
	mib        float64
	goroutines int
}

func (r *flooded) used() (u floodUse) {
	r.t.Helper()
	_, err := fmt.Sscan(testkit.Body(r.t, "http://"+r.counts), &u.goroutines)
	testkit.Must(r.t, err)
	_, rest, _ := strings.Cut(testkit.Read(r.t, fmt.Sprintf("/proc/%d/status", r.Pid())), "VmRSS:") // proc_pid_status(5), in kB
	_, err = fmt.Sscan(rest, &u.mib)
	testkit.Must(r.t, err)
	u.mib /= 1024
	return u
}
