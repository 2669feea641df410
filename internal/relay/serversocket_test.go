package relay

import (
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/netip"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol"
	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
)

func unzip(t testing.TB, r io.Reader) io.Reader {
	t.Helper()
	z, err := gzip.NewReader(r)
	testkit.Must(t, err)
	return z
}

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
		if got := statusOf(t, r.admin+page); got != want {
			t.Errorf("before the lists: %s: %d, want %d", page, got, want)
		}
	}
	evil, clean := searchRequest("evil.example/"), searchRequest("clean.example/")
	if got := statusOf(t, r.url+clean); got != 503 {
		t.Errorf("a search before the lists: %d, want 503", got)
	}
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
	if got := <-answered; got != 200 {
		t.Errorf("the request under way got %d", got)
	}
	testkit.Must(t, <-stopped)
}

// Who leads clients to relays that are ready needs a moment to see that one is to stop. A search that nobody answers
// lets suspected names pass.
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
	if got, body := codeOf(t, c, r.url+"/v5/hashLists"); got != 200 {
		t.Errorf("status %d, %s", got, body)
	}
	if took := time.Since(begun); took < time.Second {
		t.Errorf("a third connection of two was served after %s", took)
	}
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
	want := make(map[string]bool)
	for desc := range descs {
		m := regexp.MustCompile(`fqName: "([^"]*)".* variableLabels: {([^}]*)}`).FindStringSubmatch(desc.String())
		labels := ""
		if m[2] != "" {
			labels = "{" + strings.ReplaceAll(m[2], ",", ", ") + "}"
		}
		want["`"+m[1]+labels+"`"] = true
	}
	for _, name := range regexp.MustCompile("`safebrowsing_relay_[^`]*`").FindAllString(text, -1) {
		if !want[name] {
			t.Errorf("there is no metric %s", name)
		}
		delete(want, name)
	}
	for name := range want {
		t.Errorf("docs/fleet.md does not have %s", name)
	}
	for _, outcome := range []string{outcomeSuccess, outcomeInvalid, outcomeDenied, outcomeLimited, outcomeBudget, outcomeBackoff, outcomeUnavailable, outcomeCancelled} {
		if !strings.Contains(text, "`"+outcome+"`") {
			t.Errorf("docs/fleet.md does not have the outcome %s", outcome)
		}
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
		if c.Searches != searches || c.Reasons["new"] != 12 || c.Reasons["popular"] != searches-12 || !c.Since.Equal(began) {
			t.Errorf("%+v, want %d searches, 12 of them new", c, searches)
		}
		if want := searches * 0.05; math.Abs(c.Dollars-want) > 1e-9 || math.Abs(c.Month-want*float64(month)/float64(time.Since(began))) > 1e-6 {
			t.Errorf("%v US-$, %v a month", c.Dollars, c.Month)
		}
		if len(c.Today) != 10 || c.Today[0] != (Dear{fmt.Sprintf("%x", prefixOf(expressions[0], 4)), 12}) || c.Today[9].Searches != 3 {
			t.Errorf("today %+v", c.Today)
		}
		said, most := c.Text(time.Now())
		testkit.WantParts(t, said+"\n"+most, "78 searches (12 new, 0 expired, 66 popular) since the start, 7h50m0s ago: 3.90 US-$, at this rate ",
			c.Today[0].Prefix+" 12 (0.60 US-$), ")
	})
}

// A relay whose server is free, or is a relay, counts and names no money.
func TestARelayWhoseSearchesCostNothingNamesNoMoney(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.start()
		if _, most := w.relay.handler.costs.sum(time.Now()).Text(time.Now()); most != "" {
			t.Errorf("before the first search: %s", most)
		}
		w.ttlAt("evil.example/")
		said, most := w.relay.handler.costs.sum(time.Now()).Text(time.Now())
		if strings.Contains(said+most, "US-$") || !strings.HasPrefix(said, "1 search (1 new, ") {
			t.Errorf("%s\n%s", said, most)
		}
	})
}

// A client that is told http://[::]:8099 would ask its own machine.
func TestTheURLForClientsLeadsToTheRelay(t *testing.T) {
	for address, want := range map[string]string{
		"127.0.0.1:8099": "http://127.0.0.1:8099", "[2001:db8::1]:8099": "http://[2001:db8::1]:8099",
		"0.0.0.0:8099": "http://ADDRESS:8099", "[::]:8099": "http://ADDRESS:8099", "[fe80::1%eth0]:8099": "http://[fe80::1%25eth0]:8099",
	} {
		if got := new(Config).URL(net.TCPAddrFromAddrPort(netip.MustParseAddrPort(address))); got != want {
			t.Errorf("%s: expected %s, got %s", address, want, got)
		}
	}
}
