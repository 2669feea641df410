package relay

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/engine"
	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol"
	"github.com/coredns-safebrowsing/safebrowsing/internal/sharing"
	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
)

// redisOf returns a Redis for relays, with a deadline that a busy machine keeps.
func redisOf(t testing.TB, s *testkit.Redis) *sharing.Config {
	t.Helper()
	target, err := sharing.Parse(s.URL())
	if err != nil {
		t.Fatal(err)
	}
	return &sharing.Config{Target: target, Deadline: 2 * time.Second}
}

// shows waits until a page has a text.
func shows(t testing.TB, url, text string) {
	t.Helper()
	testkit.Until(t, text, func() bool { _, body := codeOf(t, http.DefaultClient, url); return strings.Contains(body, text) })
}

// relays starts n relays with one folder, which wait for lists and for Redis.
func (w *world) relays(n int) (all []*running) {
	w.t.Helper()
	w.cfg.Admin = "127.0.0.1:0"
	for range n {
		r := run(w.t, w.cfg)
		testkit.Until(w.t, "lists", func() bool { code, _ := codeOf(w.t, http.DefaultClient, r.admin+"/readyz"); return code == 200 })
		if w.cfg.Redis != nil {
			shows(w.t, r.admin+"/metrics", "safebrowsing_relay_redis_up 1\n")
		}
		all = append(all, r)
	}
	return all
}

// Relays that share Redis search like one, whoever asks them at the same time. Without Redis
// the judging server fails this test, because an answer that is fresh is asked for again.
func TestRelaysOnOneRedisSearchLikeOne(t *testing.T) {
	testkit.Long(t)
	const clients, names, takes = 64, 20, 20 * time.Millisecond
	out := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(out, "relays\tclients\tprefixes searched\ttime for all clients to have an answer\t")
	for _, n := range []int{1, 2, 4} {
		w := newWorld(t)
		var all []string
		for i := range names {
			all = append(all, hostName(i)+"/")
		}
		w.threaten(all...)
		server := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			if strings.Contains(r.URL.Path, "search") {
				time.Sleep(takes)
			}
			w.google.ServeHTTP(rw, r)
		}))
		t.Cleanup(server.Close)
		w.cfg.Settings.Endpoint, w.cfg.Edge.Transport, w.cfg.Settings.DB = server.URL, nil, t.TempDir()
		if n > 1 {
			w.cfg.Redis, w.cfg.patience = redisOf(t, testkit.StartRedis(t)), time.Second // less than the life of a claim
		}
		relays := w.relays(n)
		begin := time.Now()
		askTogether(t, relays, clients, all)
		took := time.Since(begin) / names
		got := 0
		for _, search := range w.google.Requests("search") {
			got += len(search.Prefixes)
		}
		fmt.Fprintf(out, "%d\t%d\t%d\t%s\t\n", n, clients, got, took.Round(100*time.Microsecond))
		if bound := names + names/20; got > bound {
			t.Errorf("%d relays: expected a search about at most %d prefixes, got %d", n, bound, got)
		}
		for _, r := range relays {
			if err := r.stop(); err != nil {
				t.Error(err)
			}
		}
	}
	out.Flush()
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
				code, body := codeOf(t, c, relays[i%len(relays)].url+"/v5/hashes:search?hashPrefixes="+param(prefixOf(e, 4)))
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
	w := newWorld(t)
	var all []string
	for i := range 20 {
		all = append(all, hostName(i)+"/")
	}
	w.threaten(all...)
	server := httptest.NewServer(w.google)
	t.Cleanup(server.Close)
	w.cfg.Settings.Endpoint, w.cfg.Edge.Transport, w.cfg.Settings.DB = server.URL, nil, t.TempDir()
	s := testkit.StartRedis(t)
	w.cfg.Redis, w.cfg.Rate, w.cfg.Burst = redisOf(t, s), 0.001, 4
	relays := w.relays(2)
	next := 0
	search := func(r *running) int {
		code, _ := codeOf(t, http.DefaultClient, r.url+"/v5/hashes:search?hashPrefixes="+param(prefixOf(all[next], 4)))
		next++
		return code
	}
	for i := range 4 {
		if code := search(relays[i%2]); code != 200 {
			t.Errorf("Search %d: expected 200, got %d", i, code)
		}
	}
	for _, r := range relays {
		if code := search(r); code != 503 {
			t.Errorf("Expected 503 for a search beyond the limit of all relays, got %d", code)
		}
	}
	s.Kill()
	for i, want := range []int{200, 200, 200, 200, 503, 503} { // each has admitted two of four
		if code := search(relays[i%2]); code != want {
			t.Errorf("Without Redis, search %d: expected %d, got %d", i, want, code)
		}
	}
}

func TestTheLogAndMetricsTellOfRedis(t *testing.T) {
	testkit.Long(t)
	lines := testkit.Capture(t)
	w := newWorld(t)
	w.cfg.Admin = "127.0.0.1:0"
	s := testkit.StartRedis(t, "--requirepass", "s3cret")
	w.cfg.Redis = redisOf(t, s)
	w.cfg.Redis.Password = "wr0ng"
	r := run(t, w.cfg)
	testkit.Until(t, "a line about Redis", func() bool { return len(lines.About("Cannot use Redis")) == 1 })
	shows(t, r.admin+"/metrics", "safebrowsing_relay_redis_up 0\n")
	testkit.Until(t, "lists without Redis", func() bool { code, _ := codeOf(t, http.DefaultClient, r.admin+"/readyz"); return code == 200 })
	if line := lines.Only(t, "Redis"); !strings.Contains(line, "WRONGPASS") || strings.Contains(line, "wr0ng") || !strings.Contains(line, "[ERROR]") {
		t.Errorf("Expected the reason without the password, got %q", line)
	}
	if code, _ := codeOf(t, http.DefaultClient, r.url+"/v5/hashes:search?hashPrefixes="+param(prefixOf("evil.example/", 4))); code != 200 {
		t.Errorf("Expected an answer without Redis, got %d", code)
	}
	s.Kill()
	s = testkit.StartRedisAt(t, s.Addr)
	shows(t, r.admin+"/metrics", "safebrowsing_relay_redis_up 1\n")
	if code, _ := codeOf(t, http.DefaultClient, r.url+"/v5/hashes:search?hashPrefixes="+param(prefixOf("evil.example/", 4))); code != 200 {
		t.Errorf("Expected an answer with Redis, got %d", code)
	}
	if got := lines.About("Redis"); len(got) != 2 || !strings.Contains(got[1], "answers and limits over Redis at "+s.Addr) {
		t.Errorf("Expected one line when Redis is lost and one when it is back, got %q", got)
	}
}

// Relays share with those that ask the same server in the same words with the same key.
func TestKeysInRedisAreOfOneFleet(t *testing.T) {
	w := newWorld(t)
	other := w.cfg.Settings
	other.Endpoint = "http://other.internal"
	webRisk := w.cfg.Settings
	webRisk.Protocol = protocol.DialectWebRisk.Name
	seen := make(map[string]bool)
	for _, of := range []struct {
		settings engine.Settings
		key      string
	}{{w.cfg.Settings, "s3cret"}, {w.cfg.Settings, "other"}, {w.cfg.Settings, ""}, {other, "s3cret"}, {webRisk, "s3cret"}} {
		prefix := redisPrefix(of.settings.Origin(of.key))
		if seen[prefix] || strings.Contains(prefix, "s3cret") || !strings.HasPrefix(prefix, "safebrowsing:1:{") {
			t.Errorf("Expected a prefix of its own, without the key, got %q", prefix)
		}
		seen[prefix] = true
	}
}

func TestWarningsAboutRedis(t *testing.T) {
	for _, tt := range []struct {
		name, url string
		want      []string
	}{
		{"on this machine", "redis://127.0.0.1:6379", nil},
		{"with TLS", "rediss://cache.example", nil},
		{"clear text", "redis://cache.example", []string{"has no TLS"}},
		{"one of several in clear text", "redis+cluster://127.0.0.1,192.0.2.1", []string{"has no TLS"}},
		{"a password", "rediss://:s3cret@cache.example", []string{"can read the password"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			target, err := sharing.Parse(tt.url)
			if err != nil {
				t.Fatal(err)
			}
			cfg := Config{Listen: "127.0.0.1:1", Redis: &sharing.Config{Target: target}}
			got := cfg.warnings()
			if len(got) != len(tt.want) || len(got) == 1 && (!strings.Contains(got[0], tt.want[0]) || strings.Contains(got[0], "s3cret")) {
				t.Errorf("Expected %q, got %q", tt.want, got)
			}
		})
	}
}
