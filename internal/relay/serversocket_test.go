package relay

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/coredns-safebrowsing/safebrowsing/internal/engine"
	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol"
	"github.com/coredns-safebrowsing/safebrowsing/internal/protocoltest"
	"github.com/coredns-safebrowsing/safebrowsing/internal/sharing"
	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
	"github.com/coredns-safebrowsing/safebrowsing/updater"
)

// running is a relay on sockets.
type running struct {
	url, admin string
	stop       func() error
}

// run runs a relay on sockets until the test ends.
func run(t testing.TB, cfg Config) *running {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	r, started := new(running), make(chan struct{})
	go func() {
		ended <- Run(ctx, cfg, func(listen, admin net.Addr) {
			r.url = cfg.URL(listen)
			if admin != nil {
				r.admin = "http://" + admin.String()
			}
			close(started)
		})
	}()
	r.stop = sync.OnceValue(func() error { cancel(); return <-ended })
	select {
	case <-started:
	case err := <-ended:
		t.Fatalf("the relay ended: %v", err)
	}
	t.Cleanup(func() { testkit.Must(t, r.stop()) })
	return r
}

// statusOf returns the status of a page; 0: no connection.
func statusOf(t testing.TB, url string) int {
	t.Helper()
	status, _ := codeOf(t, http.DefaultClient, url)
	return status
}

// codeOf returns the status and the body of a page for a client.
func codeOf(t testing.TB, c *http.Client, url string) (int, string) {
	t.Helper()
	answer, err := c.Get(url)
	if err != nil {
		return 0, err.Error()
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	testkit.Must(t, err)
	return answer.StatusCode, string(body)
}

// valueOf returns the value of a counter.
func valueOf(t testing.TB, counter prometheus.Metric) float64 {
	var m dto.Metric
	testkit.Must(t, counter.Write(&m))
	return m.GetCounter().GetValue()
}

func TestOperatorsSeeHowTheRelayIs(t *testing.T) {
	w := newWorld(t)
	w.cfg.Admin = "127.0.0.1:0"
	hold := make(chan struct{})
	w.cfg.Edge.Transport = guarded{w.google, func(r *http.Request) error {
		select {
		case <-hold:
		case <-r.Context().Done():
		}
		return r.Context().Err()
	}}
	r := run(t, w.cfg)
	for page, want := range map[string]int{"/healthz": 200, "/readyz": 503, "/metrics": 200, "/": 404, "/v5/hashLists": 404} {
		testkit.Equal(t, "before the lists: "+page, statusOf(t, r.admin+page), want)
	}
	evil, clean := searchRequest("evil.example/"), searchRequest("clean.example/")
	testkit.Equal(t, "a search before the lists", statusOf(t, r.url+clean), 503)
	close(hold)
	testkit.WantOK(t, r.admin+"/readyz")
	for _, target := range []string{evil, evil, clean, "/v5/hashes:search", "/v5/hashList/se-4b", "/nothing"} {
		statusOf(t, r.url+target)
	}
	testkit.WantParts(t, testkit.Body(t, r.admin+"/metrics"),
		`safebrowsing_relay_prefixes_total{from="upstream"} 1`, `safebrowsing_relay_prefixes_total{from="cache"} 1`,
		`safebrowsing_relay_prefixes_total{from="unlisted"} 1`, `safebrowsing_relay_prefixes_total{from="merged"} 0`,
		`safebrowsing_relay_searches_total{reason="new"} 1`, `safebrowsing_relay_searches_total{reason="popular"} 0`,
		`safebrowsing_relay_requests_total{method="search",outcome="success"} 3`, `safebrowsing_relay_requests_total{method="search",outcome="invalid"} 1`,
		`safebrowsing_relay_requests_total{method="search",outcome="unavailable"} 1`, `safebrowsing_relay_requests_total{method="get",outcome="success"} 1`,
		`safebrowsing_relay_requests_total{method="search",outcome="denied"} 0`,
		`safebrowsing_relay_requests_total{method="other",outcome="invalid"} 1`, "safebrowsing_relay_clients 1\n", "safebrowsing_relay_sent_bytes_total ",
		"coredns_safebrowsing_list_entries{")
}

// guarded is a transport that does something before each request; an error ends the request.
type guarded struct {
	http.RoundTripper
	before func(*http.Request) error
}

func (g guarded) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := g.before(r); err != nil {
		return nil, err
	}
	return g.RoundTripper.RoundTrip(r)
}

// A stop lets a request end that is under way, and accepts no other.
func TestTheRelayLetsRequestsEnd(t *testing.T) {
	w := newWorld(t)
	slow := make(chan struct{})
	w.cfg.Edge.Transport = guarded{w.google, func(r *http.Request) error {
		if strings.Contains(r.URL.Path, "hashes:search") {
			slow <- struct{}{}
			<-slow
		}
		return nil
	}}
	r := run(t, w.cfg)
	testkit.WantOK(t, r.url+searchRequest("clean.example/")) // it is in no list: the relay answers itself
	answered := make(chan int, 1)
	go func() { answered <- statusOf(t, r.url+searchRequest("evil.example/")) }()
	select {
	case <-slow: // the search is under way
	case got := <-answered:
		t.Fatalf("answered with status %d without a search", got)
	}
	stopped := make(chan error, 1)
	go func() { stopped <- r.stop() }()
	testkit.Until(t, "refused", func() bool {
		got, _ := codeOf(t, &http.Client{Transport: &http.Transport{}}, r.url+"/v5/hashLists")
		return got == 0
	})
	slow <- struct{}{}
	testkit.Equal(t, "the request under way", <-answered, 200)
	testkit.Must(t, <-stopped)
}

// Who leads clients to relays that are ready needs a moment to see that one is to stop. Without an answer suspected names pass.
func TestALameRelayServesAndIsNotReady(t *testing.T) {
	t.Parallel()
	testkit.Long(t)
	w := newWorld(t)
	w.cfg.Admin, w.cfg.Lameduck = "127.0.0.1:0", 3*time.Second
	r := run(t, w.cfg)
	testkit.WantOK(t, r.admin+"/readyz")
	stopped := make(chan error, 1)
	go func() { stopped <- r.stop() }()
	for lame, got := false, 200; got != 0 || !lame; { // until it has stopped
		ready := statusOf(t, r.admin+"/readyz")
		got = statusOf(t, r.url+searchRequest("evil.example/"))
		if lame = lame || ready == 503 && got == 200; got == 0 && !lame {
			t.Fatal("It was never lame")
		}
	}
	testkit.Must(t, <-stopped)
}

// Clients that send nothing, or slowly, are cut, and those beyond the bound wait.
func TestSlowClientsDoNotBlockOthers(t *testing.T) {
	t.Parallel()
	testkit.Long(t)
	w := newWorld(t)
	w.cfg.Connections = 2
	r := run(t, w.cfg)
	address := strings.TrimPrefix(r.url, "http://")
	begun := time.Now() // before the first ones, which are cut after 5 s
	for range 2 {
		conn, err := net.Dial("tcp", address)
		testkit.Must(t, err)
		defer conn.Close()
		_, err = io.WriteString(conn, "GET /v5/hashLists HTTP/1.1\r\nHost: ")
		testkit.Must(t, err)
	}
	c := &http.Client{Timeout: time.Minute}
	got, body := codeOf(t, c, r.url+"/v5/hashLists")
	testkit.Equal(t, body, got, 200)
	testkit.Between(t, "the wait of a third connection of two", time.Since(begun), time.Second, time.Minute)
}

func TestMetricsOfTheRelayAreInTheDocuments(t *testing.T) {
	text := testkit.Read(t, "../../docs/fleet.md")
	descs := make(chan *prometheus.Desc)
	go func() {
		defer close(descs)
		newMetrics().registry.Describe(descs)
		fleet := newFleetMetrics()
		for _, c := range append(newRedisMetrics(nil).all(), fleet.leader, fleet.changes, fleet.age) {
			c.Describe(descs)
		}
	}()
	var want []string
	for desc := range descs {
		m := regexp.MustCompile(`fqName: "([^"]*)".* variableLabels: {([^}]*)}`).FindStringSubmatch(desc.String())
		labels := "{" + strings.ReplaceAll(m[2], ",", ", ") + "}"
		want = append(want, "`"+m[1]+strings.TrimSuffix(labels, "{}")+"`")
	}
	slices.Sort(want)
	got := regexp.MustCompile("`safebrowsing_relay_[^`]*`").FindAllString(text, -1)
	slices.Sort(got)
	testkit.Equal(t, "metrics in docs/fleet.md", slices.Compact(got), want)
	for _, outcome := range []string{outcomeSuccess, outcomeInvalid, outcomeDenied, outcomeLimited, outcomeBudget, outcomeBackoff, outcomeUnavailable, outcomeCancelled} {
		testkit.WantParts(t, text, "`"+outcome+"`")
	}
}

// A relay tells why it asked its server, what that costs, and which prefixes cost most. It knows no names.
func TestARelayTellsWhatItCosts(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		expressions := hosts(12)
		w.suspect(expressions...)
		w.google.SetNegativeCacheDuration(5 * time.Minute)
		w.cfg.Settings.Protocol = protocol.DialectWebRisk.Name
		sleepUntil(9) // no midnight comes
		w.start()
		began := time.Now()
		time.Sleep(2 * time.Minute)
		for i, e := range expressions { // the first one costs most
			for range 12 - i {
				w.ttlAt(e)
				time.Sleep(6 * time.Minute)
			}
		}
		var c Costs
		testkit.Must(t, json.Unmarshal(ask(t, w.relay.admin(), "GET", "/costs").Body.Bytes(), &c))
		const searches = 12 * 13 / 2
		testkit.Equal(t, "searches, new, popular", [3]int{c.Searches, c.Reasons["new"], c.Reasons["popular"]}, [3]int{searches, 12, searches - 12})
		testkit.Equal(t, "since the start", c.Since.Equal(began), true)
		testkit.Between(t, "US-$", c.Dollars, searches*0.05-1e-9, searches*0.05+1e-9)
		testkit.Between(t, "US-$ a month", c.Month-searches*0.05*float64(month)/float64(time.Since(began)), -1e-6, 1e-6)
		testkit.Equal(t, "prefixes today", len(c.Today), 10)
		testkit.Equal(t, "the first and the last", []any{c.Today[0], c.Today[9].Searches}, []any{Dear{fmt.Sprintf("%x", prefixOf(expressions[0], 4)), 12}, 3})
		said, most := c.Text(time.Now())
		testkit.WantStart(t, said, "78 searches (12 new, 0 expired, 66 popular) since the start, 7h50m0s ago: 3.90 US-$, at this rate ")
		testkit.WantParts(t, most, c.Today[0].Prefix+" 12 (0.60 US-$), ")
	})
}

// A relay whose server is free, or is a relay, counts and names no money.
func TestARelayWhoseSearchesCostNothingNamesNoMoney(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.start()
		_, most := w.relay.handler.costs.sum(time.Now()).Text(time.Now())
		testkit.Equal(t, "before the first search", most, "")
		w.ttlAt("evil.example/")
		said, most := w.relay.handler.costs.sum(time.Now()).Text(time.Now())
		testkit.WantNone(t, said+most, "US-$")
		testkit.WantStart(t, said, "1 search (1 new, ")
	})
}

// A client that is told http://[::]:8099 would ask its own machine.
func TestTheURLForClientsLeadsToTheRelay(t *testing.T) {
	for address, want := range map[string]string{
		"127.0.0.1:8099": "http://127.0.0.1:8099", "[2001:db8::1]:8099": "http://[2001:db8::1]:8099",
		"0.0.0.0:8099": "http://ADDRESS:8099", "[::]:8099": "http://ADDRESS:8099", "[fe80::1%eth0]:8099": "http://[fe80::1%25eth0]:8099",
	} {
		testkit.Equal(t, address, new(Config).URL(net.TCPAddrFromAddrPort(netip.MustParseAddrPort(address))), want)
	}
}

// However the relay ends and comes back, clients keep what they have, the server is not asked early, and no client needs a full update.
func TestTheRelayComesBack(t *testing.T) {
	for name, tc := range map[string]struct {
		killed bool                                // its folder is as it was before the end
		back   func(t *testing.T, db string) error // what becomes of the folder
		lost   bool                                // the relay asks for lists again
	}{
		"restarted":             {},
		"killed":                {killed: true},
		"given an empty folder": {lost: true, back: func(_ *testing.T, db string) error { return errors.Join(os.RemoveAll(db), os.Mkdir(db, 0o700)) }},
		"without its history":   {back: func(_ *testing.T, db string) error { return os.RemoveAll(filepath.Join(db, "relay")) }},
		"with a damaged list": {back: func(t *testing.T, db string) error {
			files, err := filepath.Glob(filepath.Join(db, "*se-4b*"))
			testkit.Equal(t, "there are files", len(files) > 0, true)
			for _, file := range files {
				put(t, file, "damaged")
			}
			return err
		}},
	} {
		runWorld(t, name, func(t *testing.T, w *world) {
			w.cfg.Settings.DB = t.TempDir()
			w.start()
			c := w.replica(1)
			c.mustBe(t, lookup.Unsafe, "evil.example.")
			fetched := len(w.google.Requests("update"))
			copied := t.TempDir()
			testkit.Must(t, os.CopyFS(copied, os.DirFS(w.cfg.Settings.DB)))
			w.relay.Close()
			if tc.killed {
				w.cfg.Settings.DB = copied
			}
			if tc.back != nil {
				testkit.Must(t, tc.back(t, w.cfg.Settings.DB))
			}
			if w.google.ClientStarted(); tc.lost {
				w.google.ClientLostState()
			}
			w.start()
			c.wire.connect(w.relay, 0)
			time.Sleep(10 * time.Minute)
			testkit.Equal(t, "has asked for lists within 10 minutes", len(w.google.Requests("update")) > fetched, tc.lost)
			c.mustBe(t, lookup.Unsafe, "evil.example.")
			w.threaten("evil.example/", "worse.example/")
			time.Sleep(31 * time.Minute)
			c.mustBe(t, lookup.Unsafe, "worse.example.")
			testkit.Equal(t, "entries after the next update", c.entries(), 2)
		})
	}
}

// pipes is a network within a testing/synctest bubble. It is a net.Listener.
type pipes struct {
	net.Listener // only for Addr
	conns        chan net.Conn
	closed       chan struct{}
}

func newPipes() *pipes { return &pipes{conns: make(chan net.Conn), closed: make(chan struct{})} }

// dial is for http.Transport.
func (p *pipes) dial(context.Context, string, string) (net.Conn, error) {
	client, server := net.Pipe()
	select {
	case p.conns <- server:
		return client, nil
	case <-p.closed:
		return nil, errRefused
	}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	close(p.closed)
	return nil
}

// A whole site starts at the same time, the relay with an empty folder. Its clients wait for the relay's first contact, which may be a
// minute away, although a client gives up after 30 seconds without the header of an answer.
func TestClientsGetTheFirstListsOverHTTP(t *testing.T) {
	for _, tc := range []struct {
		name    string
		contact time.Duration
		fault   bool // the first fetch fails
		entries int
	}{
		{"at once", 0, false, 1},
		{"before the header is due", 24 * time.Second, false, 1},
		{"after the header", 26 * time.Second, false, 1},
		{"after the client's timeout for a header", 40 * time.Second, false, 1},
		{"after the longest first contact", 59 * time.Second, false, 1},
		{"too late", 3 * time.Minute, false, 0},
		{"the relay gets nothing", 40 * time.Second, true, 0},
	} {
		runWorld(t, tc.name, func(t *testing.T, w *world) {
			w.cfg.Edge.FirstContact = func() time.Duration { return tc.contact }
			if tc.fault {
				w.google.Break("update", 1, protocoltest.Fault{Status: http.StatusServiceUnavailable})
			}
			w.start()
			network := newPipes()
			server := w.relay.server(w.relay)
			served := make(chan error)
			go func() { served <- server.Serve(network) }()
			transport := &http.Transport{DialContext: network.dial, ResponseHeaderTimeout: 30 * time.Second} // as a client has
			s := engine.Settings{Endpoint: "http://relay.internal", Protocol: protocol.DialectV5.Name, Lists: "se-4b mw-4b"}
			c := newReplica(t, engine.Edge{Transport: transport, FirstContact: atOnce}, s)
			time.Sleep(2 * time.Minute)
			testkit.Equal(t, "entries of the client", c.entries(), tc.entries)
			c.close()
			transport.CloseIdleConnections()
			server.Close()
			<-served
		})
	}
}

// quick are times that let a test see several leases.
var quick = sharing.StoreConfig{Lease: 3 * time.Second, Beat: 100 * time.Millisecond, Settle: 600 * time.Millisecond, Spread: 100 * time.Millisecond}

// judged returns a judging server on a socket whose list has names.
func judged(t *testing.T, names int) *world {
	w := newWorld(t)
	w.threaten(hosts(names)...)
	w.listen(nil)
	w.cfg.Settings.DB = t.TempDir()
	return w
}

// listen gives the server of a world a socket. before, unless nil, is called before each answer: an error is none.
func (w *world) listen(before func(*http.Request) error) {
	server := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, q *http.Request) {
		if before == nil || before(q) == nil {
			w.google.ServeHTTP(rw, q)
		}
	}))
	w.t.Cleanup(server.Close)
	w.cfg.Settings.Endpoint, w.cfg.Edge.Transport = server.URL, nil
}

// A relay starts without Redis with the lists of its folder. When Redis is there, it has one leader. The log has a line for each state.
func TestARelayWithListsStartsWithoutRedis(t *testing.T) {
	testkit.Long(t)
	lines := testkit.Capture(t)
	w := judged(t, 20)
	w.cfg.Admin = "127.0.0.1:0"
	alone := run(t, w.cfg)
	testkit.Until(t, "lists in the folder", func() bool {
		l, err := updater.Status(w.cfg.Settings.DB)
		return err == nil && len(l) == 2 && l[0].Err == nil && l[1].Err == nil
	})
	testkit.Must(t, alone.stop())
	s := testkit.StartRedis(t)
	s.Kill()
	w.cfg.Redis = redisOf(t, s)
	r := run(t, w.cfg)
	testkit.Until(t, "the loss of Redis", func() bool { return len(lines.About("Cannot use Redis")) == 1 })
	shows(t, r.admin+"/metrics", "safebrowsing_relay_leader 0\n")
	testkit.WantOK(t, r.admin+"/readyz")
	s = testkit.StartRedisAt(t, s.Addr)
	shows(t, r.admin+"/metrics", "safebrowsing_relay_leader 1\n")
	shows(t, r.admin+"/metrics", `safebrowsing_relay_redis_list_updated_timestamp_seconds{list="se-4b"} `)
	testkit.Equal(t, "requests for lists, as a wait in the folder holds", len(w.google.Requests("update")), 1)
	for _, line := range []string{"Cannot use Redis", "This relay shares lists, clocks, answers and limits", "This relay fetches lists for all"} {
		lines.Only(t, line)
	}
	s.Kill()
	shows(t, r.admin+"/metrics", "safebrowsing_relay_redis_up 0\n")
	shows(t, r.admin+"/metrics", "safebrowsing_relay_leader 0\n")
	testkit.Until(t, "a line about the end of the lease", func() bool { return len(lines.About("This relay no longer fetches lists")) > 0 })
	lines.Only(t, "This relay no longer fetches lists")
}

// A client keeps a connection that it has not used yet, for 90 s. A server that ends it sooner may do so when a search
// is on its way. What has begun a request is not waited for.
func TestAConnectionMayBeSilentAsLongAsAnIdleOne(t *testing.T) {
	for name, tc := range map[string]struct {
		begins string
		wait   time.Duration
		served bool
	}{
		"silent for as long as a client keeps it": {"", 91 * time.Second, true},
		"silent for longer":                       {"", idleTimeout + time.Second, false},
		"half a header":                           {"GET /none HTTP/1.1\r\nHost: ", headerTimeout + time.Second, false},
	} {
		bubble(t, name, func(t *testing.T) {
			network := newPipes()
			server := (&Relay{handler: &handler{metrics: newMetrics()}}).server(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				select { // a search takes its time
				case <-time.After(20 * time.Second):
				case <-r.Context().Done():
					w.WriteHeader(http.StatusTeapot)
				}
			}))
			go func() { _ = server.Serve(unhurried{network}) }()
			defer server.Close()
			conn, err := network.dial(t.Context(), "", "")
			testkit.Must(t, err)
			defer conn.Close()
			_, err = io.WriteString(conn, tc.begins)
			testkit.Must(t, err)
			time.Sleep(tc.wait)
			_, err = io.WriteString(conn, strings.TrimPrefix("GET /none HTTP/1.1\r\nHost: relay\r\n\r\n", tc.begins))
			answer := new(http.Response)
			if err == nil {
				answer, err = http.ReadResponse(bufio.NewReader(conn), nil)
			}
			testkit.Equal(t, fmt.Sprint("served: ", answer, err), err == nil && answer.StatusCode == http.StatusOK, tc.served)
		})
	}
}
