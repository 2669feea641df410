package fleet

import (
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

var tiers = flag.Int("tiers", 0, "3: run TestThreeTiers, which takes eight minutes; nightly")

const (
	tierRegions = 4
	tierServers = 2   // CoreDNS processes of each region; its other clients are engines
	tierNames   = 300 // that are new in a phase
	tierWindow  = 12  // of these, which an engine asks for; a CoreDNS asks for all

	asking     = 20 * time.Second // clients ask for so long in each phase
	beforehand = asking / 5       // the part of it before the fault
	tierLife   = 25 * time.Minute // of answers: none ends during the test
	// beforeFirst is the wait between requests for lists while it is not known when the first new list comes.
	beforeFirst = 5 * time.Second
)

// phase is a time in which something goes wrong at a provider, or nothing.
type phase struct {
	name       string
	begin, end func(*provider)       // of the fault
	stays      bool                  // others stand in, so that the fault ends with the phase; else it ends when the clients have asked
	cut        func(region int) bool // whose clients can ask nobody during the fault; nil: nobody's
	lasts      time.Duration         // from one new list to the next: so long the service lets clients wait
}

// courses are phases that follow each other at one provider, with the number of clients of a region.
//
// A list comes from a central relay to clients in two waits of 10 to 55 seconds. A relay that starts, or that takes over the lease,
// waits for up to a minute before, and the lease of a dead one ends after 30 seconds. That a region is cut off for an hour is in
// TestARegionIsCutOffForAnHour of internal/relay, where time is simulated.
var courses = []struct {
	clients int
	phases  []phase
}{
	{125, []phase{
		{name: "quiet", begin: nothing, end: nothing, stays: true, lasts: 135 * time.Second},
		{name: "one relay of a region is killed", stays: true, lasts: 135 * time.Second,
			begin: func(p *provider) { p.regions[0].relays[0].Kill() }, end: func(p *provider) { p.regions[0].relays[0].start() }},
		{name: "all relays of a region are killed", lasts: 160 * time.Second, cut: func(region int) bool { return region == 1 },
			begin: func(p *provider) { each(p.regions[1].relays, (*relay).Kill) }, end: func(p *provider) { each(p.regions[1].relays, (*relay).start) }},
	}},
	{125, []phase{
		{name: "Redis is killed, and comes back empty", lasts: 225 * time.Second,
			begin: func(p *provider) { p.redis.Kill() }, end: func(p *provider) { p.redis.Restart() }},
		{name: "all central relays are killed", lasts: 225 * time.Second, cut: everywhere,
			begin: func(p *provider) { each(p.central, (*relay).Kill); p.service.ClientStarted() },
			end:   func(p *provider) { each(p.central, (*relay).start) }},
	}},
	{100, []phase{
		{name: "the central relay that fetches is killed", stays: true, lasts: 230 * time.Second,
			begin: func(p *provider) { p.central[0].Kill(); p.service.ClientStarted() }, end: func(p *provider) { p.central[0].start() }},
		{name: "a new region starts with nothing", stays: true, lasts: 140 * time.Second, cut: func(region int) bool { return region == tierRegions },
			begin: func(p *provider) { p.addRegion(true) }, end: nothing},
	}},
}

func nothing(*provider) {}

func each(relays []*relay, do func(*relay)) {
	for _, r := range relays {
		do(r)
	}
}

// Whatever dies in the three tiers of a provider, the service is asked as by one polite client, no name gets a wrong verdict, and all
// clients get new lists. What is asked is compared with what a client asks that is alone with a service of its own, and is asked for
// the same names. Relays and some of 500 clients are processes; the other clients are engines of this one, with sockets of their own.
// Everybody names the two relays that it asks, as docs/provider.md says.
func TestThreeTiers(t *testing.T) {
	if *tiers != 3 {
		t.Skip("it takes eight minutes: -tiers 3")
	}
	for _, course := range courses {
		t.Run(course.phases[0].name, func(t *testing.T) {
			t.Parallel()
			p := newProvider(t, course.clients, len(course.phases))
			for n, f := range course.phases {
				t.Log(p.suffer(f, n))
			}
		})
	}
}

// provider is clients behind regional relays, behind central relays on one Redis, and the service.
type provider struct {
	t       *testing.T
	size    int    // clients of a region
	names   []name // tierNames for each phase, after as many for the time before
	listed  []name // by the phases so far
	service *judged
	broken  *violations  // by the central relays
	next    atomic.Int64 // when the next new list comes, in nanoseconds; 0: not known yet
	redis   *testkit.Redis
	central []*relay
	regions []*region
	alone   *judged // the service of one client, with which all is compared
	one     client
	tally   *tally
}

// region is two relays with their clients.
type region struct {
	relays  []*relay
	clients []client
}

// violations counts broken rules. It is a protocoltest.Reporter.
type violations struct {
	testing.TB
	n     atomic.Int32
	again atomic.Int32 // of these: prefixes asked for again, which suffer judges
}

// Errorf is the test's own, but for prefixes that are asked for again.
func (v *violations) Errorf(format string, args ...any) {
	v.TB.Helper()
	v.n.Add(1)
	text := fmt.Sprintf(format, args...)
	if strings.Contains(text, "asked for again while the answer is fresh") {
		v.again.Add(1)
		v.TB.Log(text)
		return
	}
	v.TB.Error(text)
}

// lateCalls matches the calls about searches, and the probes, that Redis has not answered a relay in time.
var lateCalls = regexp.MustCompile(`safebrowsing_relay_redis_(?:errors|dropped)_total{operation="(?:lookup|store|probe)"} (\d+)`)

// late returns for each central relay how many calls about searches, and probes, Redis has not answered in time; 0 if it does not run.
func (p *provider) late() (calls []int) {
	p.t.Helper()
	for _, r := range p.central {
		n := 0
		if answer, err := http.Get(r.metrics); err == nil {
			text, err := io.ReadAll(answer.Body)
			answer.Body.Close()
			testkit.Must(p.t, err)
			for _, m := range lateCalls.FindAllSubmatch(text, -1) {
				count, _ := strconv.Atoi(string(m[1])) // digits
				n += count
			}
		}
		calls = append(calls, n)
	}
	return calls
}

// tally counts what clients see in a phase.
type tally struct {
	wrong, unanswered atomic.Int32

	mu  sync.Mutex
	dns []time.Duration // that the answers of CoreDNS took; guarded by mu
}

// newProvider starts a provider for some phases. Its clients know the first names.
func newProvider(t *testing.T, size, phases int) *provider {
	p := &provider{t: t, size: size, names: population(tierNames * (phases + 1)), broken: &violations{TB: t}, redis: testkit.StartRedis(t), tally: new(tally)}
	p.service, p.alone = judge(p.broken, p.names, p.wait), judge(t, p.names, p.wait)
	p.service.OneOfMany() // a relay that takes over may have an older version
	p.service.SetCacheDuration(tierLife)
	p.alone.SetCacheDuration(tierLife)
	for n := range 2 {
		admin := testkit.FreeAddr(t)
		r := newRelay(t, p.service.url, "-redis", p.redis.URL(), "-admin", admin)
		r.metrics = "http://" + admin + "/metrics"
		if n == 0 { // the other one takes over its lists
			fetch(t, r.db, r.upstream)
		}
		r.start()
		if n == 0 {
			r.Line("This relay fetches lists for all relays", 30*time.Second)
		}
		testkit.WantOK(t, r.url+"/v5/hashLists")
		p.central = append(p.central, r)
	}
	for range tierRegions {
		p.addRegion(false)
	}
	p.one = inThisProcess(t, []string{p.alone.url})[0]
	first := p.names[:tierNames]
	p.ask(everywhere, nil, first, asking, nil).Wait()
	p.askOne(first)
	p.next.Store(time.Now().Add(2 * beforeFirst).UnixNano())
	return p
}

// wait is the minimum wait of an answer with lists: until shortly after the next new one.
func (p *provider) wait() time.Duration {
	if d := time.Until(p.nextList()) + 2*time.Second; d > 0 {
		return d
	}
	return beforeFirst
}

// nextList returns when the next new list comes.
func (p *provider) nextList() time.Time { return time.Unix(0, p.next.Load()) }

// addRegion starts a region. All of a cold one begins with nothing, and its clients within a minute.
func (p *provider) addRegion(cold bool) {
	p.t.Helper()
	r := new(region)
	var urls []string
	for range 2 {
		one := newRelay(p.t, p.central[0].url+" "+p.central[1].url)
		if !cold {
			fetch(p.t, one.db, one.upstream)
		}
		one.start()
		r.relays, urls = append(r.relays, one), append(urls, one.url)
	}
	endpoints := slices.Repeat([]string{strings.Join(urls, " ")}, p.size)
	servers, others := endpoints[:tierServers], endpoints[tierServers:]
	if cold {
		r.clients = resolvers(p.t, servers, true)
		r.clients = append(r.clients, asClients(engines(p.t, others, func() time.Duration { return rand.N(time.Minute) }))...)
	} else {
		r.clients = slices.Concat(startResolvers(p.t, servers), inThisProcess(p.t, others))
	}
	p.regions = append(p.regions, r)
}

// suffer lets the n-th phase happen and returns what was seen.
func (p *provider) suffer(f phase, n int) string {
	p.t.Helper()
	known, fresh := p.names[n*tierNames:(n+1)*tierNames], p.names[(n+1)*tierNames:(n+2)*tierNames]
	listed := name{fmt.Sprintf("listed%d.example", n), threatening}
	time.Sleep(time.Until(p.nextList().Add(-beforehand)))

	p.tally = new(tally)
	late, again := p.late(), p.broken.again.Load()
	broken, all, one := p.broken.n.Load(), costOf(p.service), costOf(p.alone)
	asked := p.ask(everywhere, known, fresh, asking, f.cut)
	time.Sleep(time.Until(p.nextList()))
	all.fetches, one.fetches = costOf(p.service).fetches, costOf(p.alone).fetches // asked for before this phase's list
	p.publish(listed, f.lasts)
	since := time.Now()
	f.begin(p)
	asked.Wait()
	if !f.stays {
		f.end(p)
		since = time.Now()
	}
	missing := p.await(listed, p.nextList().Add(-asking))
	took := fmt.Sprint(time.Since(since).Round(time.Second))
	testkit.Equal(p.t, f.name+": clients without the new list after "+took, missing, 0)
	if f.cut != nil { // now they must have all answers
		p.ask(f.cut, known, fresh, beforehand, nil).Wait()
	}
	p.ask(everywhere, nil, []name{listed}, 0, nil).Wait()
	p.askOne(known, fresh, []name{listed})
	now := p.late()
	more := slices.ContainsFunc([]int{0, 1}, func(relay int) bool { return now[relay] > late[relay] })
	if p.broken.again.Load() > again && !more { // else a central relay has asked by itself, see row for how often it may
		p.t.Errorf("%s: prefixes are asked for again, and Redis has answered in time", f.name)
	}
	if f.stays {
		f.end(p)
	}
	return f.name + ": " + p.row(f.name, costOf(p.service).minus(all), costOf(p.alone).minus(one), p.broken.n.Load()-broken) + "; all have the new list after " + took
}

// publish adds a name to a list, which is the last one for a time.
func (p *provider) publish(listed name, lasts time.Duration) {
	p.listed = append(p.listed, listed)
	p.next.Store(time.Now().Add(lasts).UnixNano())
	for _, g := range []*judged{p.service, p.alone} {
		publish(g.Server, slices.Concat(p.names, p.listed))
	}
}

// await waits until all clients have the list with a name, and returns how many have not at the end.
func (p *provider) await(listed name, end time.Time) int {
	var missing atomic.Int32
	var wg sync.WaitGroup
	clients := []client{p.one}
	for _, r := range p.regions {
		clients = append(clients, r.clients...)
	}
	for _, c := range clients {
		wg.Go(func() {
			for ; !suspects(c, listed.host); time.Sleep(250 * time.Millisecond) {
				if time.Now().After(end) {
					missing.Add(1)
					return
				}
			}
		})
	}
	wg.Wait()
	return int(missing.Load())
}

// suspects reports whether a client has a list with a threat.
func suspects(c client, host string) bool {
	if e, ok := c.(*embedded); ok {
		d, candidates := e.Checker.Check(lookup.FromQname(host + "."))
		return candidates != nil || d.Verdict == lookup.Unsafe
	}
	v, _ := c.verdict(host)
	return v == lookup.Unsafe
}

func everywhere(int) bool { return true }

// ask asks at the clients of regions for names that they know, or that others know, and for new ones, within a time. Those that are cut
// off may lack an answer about what they have not asked for before. The caller waits for the end.
func (p *provider) ask(where func(region int) bool, known, fresh []name, within time.Duration, cut func(region int) bool) *sync.WaitGroup {
	p.t.Helper()
	wg := new(sync.WaitGroup)
	for n, r := range p.regions {
		if !where(n) {
			continue
		}
		for i, c := range r.clients {
			wg.Go(func() {
				all := questions(c, known, fresh, i, len(r.clients))
				for _, q := range all {
					p.judge(c, q, cut != nil && cut(n))
					time.Sleep(within / time.Duration(len(all)))
				}
			})
		}
	}
	return wg
}

// question is a name that a client asks for.
type question struct {
	name
	again bool // the client has asked before
}

// questions returns what the i-th of n clients of a region asks for in a phase: names that it knows,
// that others know, and that are new, by turns. All clients of a region ask for all names.
func questions(c client, known, fresh []name, i, n int) (all []question) {
	own, others := rotated(known, i, n), rotated(known, (i+n/2)%n, n)
	fresh = rotated(fresh, i, n)
	_, server := c.(resolver)
	if !server {
		fresh = fresh[:min(len(fresh), tierWindow)]
	}
	for j := range fresh {
		switch {
		case len(known) == 0:
		case server || j%2 == 0:
			all = append(all, question{own[j], true})
		default:
			all = append(all, question{others[j], false})
		}
		all = append(all, question{fresh[j], false})
	}
	return all
}

// judge asks a client a question, and judges the answer.
func (p *provider) judge(c client, q question, cut bool) {
	p.t.Helper()
	begun := time.Now()
	got, err := c.verdict(q.host)
	unanswered := lookup.Unsure
	if _, server := c.(resolver); server {
		p.tally.answered(time.Since(begun))
		unanswered = lookup.Safe // as it passes a name without an answer
	}
	switch {
	case got == q.verdict():
	case cut && !q.again && got == unanswered:
		p.tally.unanswered.Add(1)
	default:
		p.tally.wrong.Add(1)
		p.t.Errorf("%s: verdict %s, want %s: %v", q.host, got, q.verdict(), err)
	}
}

func (t *tally) answered(took time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.dns = append(t.dns, took)
}

// askOne asks at the client that is alone for names.
func (p *provider) askOne(names ...[]name) {
	p.t.Helper()
	for _, name := range slices.Concat(names...) {
		p.judge(p.one, question{name, true}, false)
	}
}

// row holds what a phase has cost against what it has cost one client, and returns that with the tally in words.
func (p *provider) row(what string, all, one cost, broken int32) string {
	p.t.Helper()
	// Web Risk takes one prefix in a search. Version 5 takes several, so there may be fewer searches.
	if d := all.prefixes - one.prefixes; max(d, -d)*50 > one.prefixes || all.searches*50 > one.searches*51 {
		p.t.Errorf("%s: %d searches for %d prefixes, one client makes %d for %d", what, all.searches, all.prefixes, one.searches, one.prefixes)
	}
	testkit.Equal(p.t, what+": requests for lists, and those of one client", all.fetches, one.fetches)
	times := p.tally.dns
	slices.Sort(times)
	return fmt.Sprintf("searches %d, of one client %d; requests for lists %d, of one %d; rules broken %d; wrong %d; unanswered %d; p50, p99 of DNS %.1f, %.1f ms of %d", all.prefixes, one.prefixes, all.fetches, one.fetches, broken,
		p.tally.wrong.Load(), p.tally.unanswered.Load(), milliseconds(times[len(times)/2]), milliseconds(times[len(times)*99/100]), len(times))
}
