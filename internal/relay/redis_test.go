package relay

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	dto "github.com/prometheus/client_model/go"

	"github.com/coredns-safebrowsing/safebrowsing/internal/engine"
	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol"
	"github.com/coredns-safebrowsing/safebrowsing/internal/sharing"
	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
)

// redisOf returns a Redis for relays, with a deadline that a busy machine keeps.
func redisOf(t testing.TB, s *testkit.Redis) *sharing.Config {
	t.Helper()
	target, err := sharing.Parse(s.URL())
	testkit.Must(t, err)
	return &sharing.Config{Target: target, Deadline: 20 * time.Second}
}

// shows waits until a page has a text.
func shows(t testing.TB, url, text string) {
	t.Helper()
	testkit.Until(t, text, func() bool { return strings.Contains(testkit.Body(t, url), text) })
}

// relays starts n relays with one folder, which wait for lists and for Redis.
func (w *world) relays(n int) (all []*running) {
	w.t.Helper()
	w.cfg.Admin = "127.0.0.1:0"
	for range n {
		r := run(w.t, w.cfg)
		testkit.WantOK(w.t, r.admin+"/readyz")
		if w.cfg.Redis != nil {
			shows(w.t, r.admin+"/metrics", "safebrowsing_relay_redis_up 1\n")
		}
		all = append(all, r)
	}
	return all
}

// Relays on one Redis search like one. Without it the judging server fails this test: a fresh answer is asked for again.
func TestRelaysOnOneRedisSearchLikeOne(t *testing.T) {
	testkit.Long(t)
	const clients, names, takes = 64, 20, 20 * time.Millisecond
	for _, n := range []int{1, 2, 4} {
		w, all := judged(t, names), hosts(names)
		w.listen(func(r *http.Request) error {
			if strings.Contains(r.URL.Path, "search") {
				time.Sleep(takes)
			}
			return nil
		})
		if n > 1 {
			w.cfg.Redis, w.cfg.patience = redisOf(t, testkit.StartRedis(t)), time.Minute // a busy machine makes a search slow
		}
		relays := w.relays(n)
		begin := time.Now()
		askTogether(t, relays, clients, all)
		took := time.Since(begin) / names
		got := 0
		for _, search := range w.google.Requests("search") {
			got += len(search.Prefixes)
		}
		t.Logf("%d relays, %d clients: searches about %d prefixes, %s until all have an answer", n, clients, got, took)
		testkit.Between(t, fmt.Sprint("prefixes of searches with relays: ", n), got, names, names+names/20)
		for _, r := range relays {
			testkit.Must(t, r.stop())
		}
	}
}

// askTogether lets clients of relays ask about one name after the other, all at once.
func askTogether(t *testing.T, relays []*running, clients int, expressions []string) {
	t.Helper()
	c := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: clients}}
	defer c.CloseIdleConnections()
	for _, e := range expressions {
		var wg sync.WaitGroup
		for i := range clients {
			wg.Go(func() {
				code, body := codeOf(t, c, relays[i%len(relays)].url+searchRequest(e))
				if hash := prefixOf(e, 32); code != 200 || !strings.Contains(body, string(hash)) {
					t.Errorf("%s: expected a threat, got %d", e, code)
				}
			})
		}
		wg.Wait()
	}
}

// What one relay admits counts at the other one, until Redis is away.
func TestTheRateOfAClientHoldsOverRelays(t *testing.T) {
	testkit.Long(t)
	w, all := judged(t, 20), hosts(20)
	s := testkit.StartRedis(t)
	w.cfg.Redis, w.cfg.Rate, w.cfg.Burst = redisOf(t, s), 0.001, 4
	relays := w.relays(2)
	six := []int{200, 200, 200, 200, 503, 503}
	for i, want := range append(six, six...) { // without Redis each has admitted two of four
		if i == len(six) {
			s.Kill()
		}
		testkit.Equal(t, fmt.Sprint("search ", i, ", six of them with Redis"), statusOf(t, relays[i%2].url+searchRequest(all[i])), want)
	}
}

func TestARelayWithoutAFolderFetchesItsListsForItself(t *testing.T) {
	lines := testkit.Capture(t)
	w := newWorld(t)
	w.cfg.Redis = &sharing.Config{Target: sharing.Target{Addresses: []string{testkit.FreeAddr(t)}}}
	w.open()
	lines.Only(t, "fetches its lists for itself, since it has no folder")
}

// Relays share with those that ask the same server in the same words with the same key.
func TestKeysInRedisAreOfOneFleet(t *testing.T) {
	w := newWorld(t)
	other := w.cfg.Settings
	other.Endpoint = "http://other.internal"
	webRisk := w.cfg.Settings
	webRisk.Protocol = protocol.DialectWebRisk.Name
	of := []string{redisPrefix(w.cfg.Settings.Origin("s3cret")), redisPrefix(w.cfg.Settings.Origin("other")), redisPrefix(w.cfg.Settings.Origin(""))}
	of = append(of, redisPrefix(other.Origin("s3cret")), redisPrefix(webRisk.Origin("s3cret")))
	for i, prefix := range of {
		testkit.Equal(t, prefix+": the first place", slices.Index(of, prefix), i)
		testkit.WantNone(t, prefix, "s3cret")
		testkit.WantStart(t, prefix, "safebrowsing:1:{")
	}
}

// One relay has a new key since its file was replaced, the other one since its start.
func TestRelaysShareAnswersAfterTheKeyWasReplaced(t *testing.T) {
	testkit.Long(t)
	lines := testkit.Capture(t)
	w := judged(t, 1)
	w.cfg.Redis, w.cfg.patience = redisOf(t, testkit.StartRedis(t)), time.Minute
	w.cfg.Settings.KeyFile, w.cfg.Key = testkit.Write(t, t.TempDir(), "key", "one\n"), "one"
	relays := w.relays(1)
	put(t, w.cfg.Settings.KeyFile, "two\n")
	testkit.Until(t, "the new key", func() bool { return len(lines.About("has changed and is in use")) == 1 })
	w.cfg.Settings.DB, w.cfg.Key = t.TempDir(), "two"
	relays = append(relays, w.relays(1)...)
	askTogether(t, relays, 2, hosts(1))
	w.mustSearch(0, 1)
}

// Relays share answers if their searches ask for the same threats, in whatever order the lists are.
func TestRelaysWithOtherListsShareNoAnswersOfTypedSearches(t *testing.T) {
	scope := func(d *protocol.Dialect, lists string) string {
		return searchScope(engine.Settings{Protocol: d.Name, Lists: lists})
	}
	testkit.Equal(t, "scopes in version 5, whose search has no types", scope(protocol.DialectV5, "se-4b")+scope(protocol.DialectV5, "mw-4b"), "")
	if got := scope(protocol.DialectWebRisk, "mw-4b"); got == "" || got == scope(protocol.DialectWebRisk, "se-4b mw-4b") {
		t.Errorf("Expected another scope for other threats, got %q", got)
	}
	testkit.Equal(t, "the scope of the same lists", scope(protocol.DialectWebRisk, "mw-4b se-4b"), scope(protocol.DialectWebRisk, "se-4b mw-4b"))
}

func TestTheLogTellsEachStateOfRedisOnce(t *testing.T) {
	dead := errors.New("connection refused")
	up, down := func(l *redisLog) { l.State(nil) }, func(l *redisLog) { l.State(dead) }
	back := func(l *redisLog) { l.report(sharing.Event{Kind: sharing.Back}) }
	lost := func(l *redisLog) { l.report(sharing.Event{Kind: sharing.Lost, Err: dead}) }
	newer := func(l *redisLog) { l.report(sharing.Event{Kind: sharing.Newer, Holder: "2 v9"}) }
	short, long := func(*redisLog) { time.Sleep(8 * time.Second) }, func(*redisLog) { time.Sleep(time.Minute) }
	clock := func(ahead time.Duration) func(*redisLog) { return func(l *redisLog) { l.clock(ahead) } }
	const agrees = "[INFO] plugin/safebrowsing: The clock of this machine agrees with the clock of Redis at r:1 again"
	differs := func(by string) string { // a relay whose clock is wrong by more than the life of answers shares none: see sharing
		return "[WARNING] plugin/safebrowsing: The clock of this machine is " + by + " the clock of Redis at r:1. Until they differ by less than 2 seconds, this relay and others ask the server about more names, since each may take answers of the other for older than they are. Set the clocks of all relays and of Redis by NTP: \"chronyc tracking\" shows whether one is"
	}
	const works, gone, slow, future = "This relay shares lists, clocks, answers and limits", "Cannot use Redis at r:1: connection", "for requests of clients", "newer format"
	for name, test := range map[string]struct {
		steps []func(*redisLog)
		want  []string
	}{
		"it works":                           {[]func(*redisLog){up, long, back, long}, []string{works}},
		"it works, in the other order":       {[]func(*redisLog){back, up, long}, []string{works}},
		"requests find the loss first":       {[]func(*redisLog){up, back, down, short, lost, long}, []string{works, gone}},
		"lists find the loss first":          {[]func(*redisLog){up, back, lost, short, down, long}, []string{works, gone}},
		"only requests find it slow":         {[]func(*redisLog){up, back, down, long, up, long}, []string{works, slow, works}},
		"slow for a moment":                  {[]func(*redisLog){up, back, down, short, up, long}, []string{works}},
		"slow, then lost":                    {[]func(*redisLog){up, back, down, long, lost, long}, []string{works, slow, gone}},
		"lists find first that it works":     {[]func(*redisLog){down, lost, long, back, short, short, up, long}, []string{gone, works}},
		"requests find first that it works":  {[]func(*redisLog){down, lost, long, up, short, back, long}, []string{gone, works}},
		"works again for lists, but is slow": {[]func(*redisLog){down, lost, back, long}, []string{gone, slow}},
		"newer data":                         {[]func(*redisLog){up, newer, long}, []string{future}},
		"lost, then newer":                   {[]func(*redisLog){down, lost, up, newer, long}, []string{gone, future}},
		"a clock that is right":              {[]func(*redisLog){clock(0), clock(4 * time.Second), clock(-4 * time.Second)}, nil},
		"ahead":                              {[]func(*redisLog){clock(time.Hour), clock(time.Hour + time.Second), clock(3 * time.Second)}, []string{differs("1h0m0s ahead of")}},
		"behind":                             {[]func(*redisLog){clock(0), clock(-90 * time.Second)}, []string{differs("1m30s behind")}},
		"right in the end":                   {[]func(*redisLog){clock(6 * time.Second), clock(time.Second), clock(0), clock(-time.Minute)}, []string{differs("6s ahead of"), agrees, differs("1m0s behind")}},
		"without a folder":                   {[]func(*redisLog){down, up, long}, []string{slow, "This relay shares answers and limits"}},
	} {
		lines := testkit.Capture(t)
		bubble(t, name, func(t *testing.T) {
			l := &redisLog{fleet: name != "without a folder"}
			l.target.Addresses = []string{"r:1"}
			for _, step := range test.steps {
				step(l)
			}
			synctest.Wait()
			l.close()
			if got := lines.About("Redis"); !slices.EqualFunc(got, test.want, strings.Contains) {
				t.Errorf("Expected %q, got %q", test.want, got)
			}
		})
	}
}

func TestTheGaugeOfRedisFollowsItsState(t *testing.T) {
	m := newRedisMetrics(new(redisLog))
	defer m.log.close()
	for _, tc := range []struct {
		err  error
		want float64
	}{{nil, 1}, {errors.New("connection refused"), 0}, {nil, 1}} {
		m.State(tc.err)
		var sample dto.Metric
		testkit.Must(t, m.up.Write(&sample))
		testkit.Equal(t, fmt.Sprint("redis_up after ", tc.err), sample.GetGauge().GetValue(), tc.want)
	}
}

// A relay works alone also if it has never fetched lists, and ceases also for one whose lists it cannot read.
func TestTheLogSaysOfTheLeaseWhatIsKnown(t *testing.T) {
	lines := testkit.Capture(t)
	f := &sharedLists{relay: &Relay{cfg: Config{Redis: new(sharing.Config)}}, metrics: newFleetMetrics()}
	f.report(sharing.Event{Kind: sharing.Alone, Since: time.Now()})
	f.report(sharing.Event{Kind: sharing.LeaseLost})
	testkit.WantParts(t, lines.Only(t, "has been away since"), "knows of no other that fetches lists, so it continues by itself")
	testkit.WantNone(t, lines.Only(t, "no longer fetches lists"), "takes over") // another relay may not exist
}
