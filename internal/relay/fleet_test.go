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
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
	"github.com/coredns-safebrowsing/safebrowsing/updater"
)

// quick are times that let a test see several leases.
var quick = sharing.StoreConfig{Lease: 3 * time.Second, Beat: 100 * time.Millisecond, Settle: 600 * time.Millisecond, Spread: 100 * time.Millisecond}

// onRedis starts a relay that shares a Redis with others. Its folder is dir.
func (w *world) onRedis(url, dir string, transport http.RoundTripper) *Relay {
	w.t.Helper()
	target, err := sharing.Parse(url)
	if err != nil {
		w.t.Fatal(err)
	}
	cfg := w.cfg
	cfg.Settings.DB, cfg.Redis, cfg.fleetTimes = dir, &sharing.Config{Target: target}, quick
	if transport != nil {
		cfg.Edge.Transport = transport
	}
	r, err := New(cfg)
	if err != nil {
		w.t.Fatal(err)
	}
	return r
}

// judged returns a judging server on a socket whose list has names.
func judged(t *testing.T, names int) (*world, string) {
	w := newWorld(t)
	var all []string
	for i := range names {
		all = append(all, hostName(i)+"/")
	}
	w.threaten(all...)
	s := httptest.NewServer(w.google)
	t.Cleanup(s.Close)
	return w, s.URL
}

// inForce returns the number of entries that a relay serves.
func inForce(r *Relay) (n int) {
	for _, l := range r.engine.Lists() {
		n += l.Set.Len()
	}
	return n
}

// Several relays on one Redis cost the server what one client costs, and all have its lists.
func TestRelaysOnOneRedisAreOneClient(t *testing.T) {
	testkit.Long(t)
	t.Parallel()
	const clients, names = 64, 64
	out := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(out, "relays\tclients\trequests for lists\t")
	for _, n := range []int{1, 2, 4} {
		w, url := judged(t, names)
		w.cfg.Settings.Endpoint, w.cfg.Edge.Transport = url, nil
		server := testkit.StartRedis(t)
		var relays []*Relay
		for range n {
			r := w.onRedis(server.URL(), t.TempDir(), nil)
			defer r.Close()
			relays = append(relays, r)
		}
		var wg sync.WaitGroup
		for i := range clients {
			wg.Go(func() { follow(t, relays[i%n], i, names) })
		}
		wg.Wait()
		for i, r := range relays {
			testkit.Until(t, fmt.Sprintf("lists of relay %d", i), func() bool { return inForce(r) == names })
		}
		fetches := len(w.google.Requests("update"))
		fmt.Fprintf(out, "%d\t%d\t%d\t\n", n, clients, fetches)
		if fetches != 1 {
			t.Errorf("%d relays made %d requests for lists, want 1", n, fetches)
		}
	}
	if testing.Verbose() {
		out.Flush()
	}
}

// follow runs a client of a relay until it has its lists.
func follow(t *testing.T, r *Relay, i, names int) {
	c := &wire{handler: r, remote: fmt.Sprintf("192.0.2.%d:4000", i)}
	registry := engine.NewRegistry(engine.Edge{Transport: c, FirstContact: atOnce})
	s := engine.Settings{Endpoint: fmt.Sprintf("http://relay%d.internal", i), Protocol: protocol.DialectV5.Name, Lists: "se-4b mw-4b"}
	e, release, err := registry.Acquire(s, "")
	if err != nil {
		t.Error(err)
		return
	}
	defer release()
	testkit.Until(t, "lists of a client", func() bool {
		n := 0
		for _, l := range e.Lists() {
			n += l.Set.Len()
		}
		return n == names
	})
	name := hostName(i % names)
	if d, candidates := e.Checker.Check(lookup.FromQname(name + ".")); candidates == nil {
		t.Errorf("client %d: %s is %+v", i, name, d)
	}
}

// A relay starts without Redis, serves the lists of its folder, and asks for none. When Redis is
// there, it has one leader again. The log has one line for each state.
func TestARelayWithListsStartsWithoutRedis(t *testing.T) {
	testkit.Long(t)
	lines := testkit.Capture(t)
	w, url := judged(t, 20)
	w.cfg.Settings.Endpoint, w.cfg.Edge.Transport, w.cfg.Admin = url, nil, "127.0.0.1:0"
	w.cfg.Settings.DB = t.TempDir()
	alone := run(t, w.cfg)
	testkit.Until(t, "lists in the folder", func() bool {
		l, err := updater.Status(w.cfg.Settings.DB)
		return err == nil && len(l) == 2 && l[0].Err == nil && l[1].Err == nil
	})
	if err := alone.stop(); err != nil {
		t.Fatal(err)
	}
	s := testkit.StartRedis(t)
	s.Kill()
	w.cfg.Redis = redisOf(t, s)
	r := run(t, w.cfg)
	testkit.Until(t, "the loss of Redis", func() bool { return len(lines.About("Cannot use Redis")) == 1 })
	shows(t, r.admin+"/metrics", "safebrowsing_relay_leader 0\n")
	testkit.Until(t, "lists in force", func() bool { code, _ := codeOf(t, http.DefaultClient, r.admin+"/readyz"); return code == 200 })
	testkit.StartRedisAt(t, s.Addr)
	shows(t, r.admin+"/metrics", "safebrowsing_relay_leader 1\n")
	shows(t, r.admin+"/metrics", `safebrowsing_relay_redis_list_updated_timestamp_seconds{list="se-4b"} `)
	if got := len(w.google.Requests("update")); got != 1 {
		t.Errorf("Expected that a wait in the folder holds, got %d requests for lists", got)
	}
	for line, want := range map[string]int{"Cannot use Redis": 1, "This relay shares lists, clocks, answers and limits": 1, "This relay fetches lists for all": 1} {
		if got := lines.About(line); len(got) != want {
			t.Errorf("Expected %d line with %q, got %q", want, line, got)
		}
	}
}

// When Redis dies, requests of clients and the lists both find out. That is one state.
func TestTheLogHasOneLineWhenRedisDies(t *testing.T) {
	testkit.Long(t)
	lines := testkit.Capture(t)
	w, url := judged(t, 1)
	w.cfg.Settings.Endpoint, w.cfg.Edge.Transport, w.cfg.Admin = url, nil, "127.0.0.1:0"
	w.cfg.Settings.DB, w.cfg.fleetTimes = t.TempDir(), quick
	s := testkit.StartRedis(t)
	w.cfg.Redis = redisOf(t, s)
	r := run(t, w.cfg)
	works := func() int { return len(lines.About("This relay shares")) }
	testkit.Until(t, "a line that Redis works", func() bool { return works() > 0 })
	s.Kill()
	shows(t, r.admin+"/metrics", "safebrowsing_relay_redis_up 0\n")
	testkit.Until(t, "a line that Redis is lost", func() bool { return len(lines.About("Cannot")) > 0 })
	shows(t, r.admin+"/metrics", "safebrowsing_relay_leader 0\n")
	before := works()
	s.Restart()
	shows(t, r.admin+"/metrics", "safebrowsing_relay_redis_up 1\n")
	shows(t, r.admin+"/metrics", "safebrowsing_relay_leader 1\n")
	testkit.Until(t, "a line that Redis works again", func() bool { return works() > before })
	told := 0 // losses since Redis has worked; a busy machine may have lost it more than once
	for _, line := range lines.About(s.Addr) {
		if told++; !strings.Contains(line, "Cannot") {
			told = 0
		}
		if told > 1 {
			t.Errorf("Expected 1 line for a loss, got %q", lines.About(s.Addr))
		}
	}
}
