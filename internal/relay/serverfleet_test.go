package relay

import (
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"text/tabwriter"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/config"
	"github.com/coredns-safebrowsing/safebrowsing/internal/engine"
	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

// cost is what reached judging servers.
type cost struct{ fetches, searches, prefixes int }

func (w *world) cost() (c cost) {
	c.fetches = len(w.google.Requests("update"))
	for _, s := range w.google.Requests("search") {
		c.searches++
		c.prefixes += len(s.Prefixes)
	}
	return c
}

// fleet runs n clients of an endpoint over sockets. Each decides on all names.
func fleet(t *testing.T, endpoints []string, names int) {
	t.Helper()
	var wg sync.WaitGroup
	for i, endpoint := range endpoints {
		wg.Go(func() {
			registry := engine.NewRegistry(engine.Edge{FirstContact: atOnce})
			s := config.Settings{Endpoint: endpoint, Protocol: protocol.DialectV5, Lists: "se-4b mw-4b"}
			e, release, err := registry.Acquire(s, "")
			if err != nil {
				t.Error(err)
				return
			}
			defer release()
			until(t, "lists of a client", func() bool { return len(e.Lists()) == 2 })
			for n := range names {
				name := hostName((n + i*names/len(endpoints)) % names)
				d, candidates := e.Checker.Check(lookup.FromQname(name + "."))
				if candidates != nil {
					d = e.Checker.Confirm(candidates, nil).Wait(t.Context())
				}
				if d.Verdict != lookup.Unsafe {
					t.Errorf("client %d, %s: %+v", i, name, d)
				}
			}
		})
	}
	wg.Wait()
}

func hostName(i int) string { return fmt.Sprintf("h%d.example", i) }

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

// What reaches the server behind a relay is what one client costs.
func TestAFleetCostsWhatOneClientCosts(t *testing.T) {
	const names = 100
	var table strings.Builder
	out := tabwriter.NewWriter(&table, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(out, "clients\trelay\trequests for lists\tsearches\tprefixes\t")
	for _, n := range []int{1, 8} {
		var alone cost
		var endpoints []string
		var worlds []*world
		for range n {
			w, url := judged(t, names)
			worlds, endpoints = append(worlds, w), append(endpoints, url)
		}
		fleet(t, endpoints, names)
		for _, w := range worlds {
			c := w.cost()
			alone = cost{alone.fetches + c.fetches, alone.searches + c.searches, alone.prefixes + c.prefixes}
		}
		w, url := judged(t, names)
		w.cfg.Settings.Endpoint, w.cfg.Edge.Transport = url, nil
		w.cfg.Settings.DB = t.TempDir()
		r := run(t, w.cfg)
		endpoints = nil
		for range n {
			endpoints = append(endpoints, r.url)
		}
		fleet(t, endpoints, names)
		behind := w.cost()
		fmt.Fprintf(out, "%d\tno\t%d\t%d\t%d\t\n%d\tyes\t%d\t%d\t%d\t\n", n, alone.fetches, alone.searches, alone.prefixes, n, behind.fetches, behind.searches, behind.prefixes)
		if want := (cost{n, n * names, n * names}); alone != want {
			t.Errorf("%d clients without a relay: %+v, want %+v", n, alone, want)
		}
		if behind.fetches != 1 || behind.prefixes != names || behind.searches > names {
			t.Errorf("%d clients behind a relay: %+v, want 1 request for lists and %d prefixes", n, behind, names)
		}
	}
	out.Flush()
	t.Logf("\n%s", table.String())
}

// However the relay ends and comes back, clients keep what they have, the server is not asked
// early, and clients with versions of before need no full update.
func TestTheRelayComesBack(t *testing.T) {
	for _, tc := range []struct {
		name string
		back func(t *testing.T, w *world)
		lost bool // the relay asks for lists again
	}{
		{"restarted", func(_ *testing.T, w *world) {
			w.relay.Close()
			w.google.ClientStarted()
		}, false},
		{"killed", func(t *testing.T, w *world) {
			copied := t.TempDir()
			if err := os.CopyFS(copied, os.DirFS(w.cfg.Settings.DB)); err != nil {
				t.Fatal(err)
			}
			w.relay.Close()
			w.cfg.Settings.DB = copied
			w.google.ClientStarted()
		}, false},
		{"given an empty folder", func(t *testing.T, w *world) {
			w.relay.Close()
			w.cfg.Settings.DB = t.TempDir()
			w.google.ClientLostState()
		}, true},
		{"without its history", func(t *testing.T, w *world) {
			w.relay.Close()
			if err := os.RemoveAll(filepath.Join(w.cfg.Settings.DB, "relay")); err != nil {
				t.Fatal(err)
			}
			w.google.ClientStarted()
		}, false},
		{"with a damaged list", func(t *testing.T, w *world) {
			w.relay.Close()
			files, err := filepath.Glob(filepath.Join(w.cfg.Settings.DB, "*se-4b*"))
			if err != nil || len(files) == 0 {
				t.Fatalf("%v, %v", files, err)
			}
			for _, file := range files {
				put(t, file, "damaged")
			}
			w.google.ClientStarted()
		}, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { comesBack(t, tc.back, tc.lost) })
		})
	}
}

func comesBack(t *testing.T, back func(*testing.T, *world), lost bool) {
	w := newWorld(t)
	w.cfg.Settings.DB = t.TempDir()
	w.start()
	synctest.Wait()
	c := w.replica(1)
	defer c.close()
	synctest.Wait()
	if d := c.decide("evil.example."); d.Verdict != lookup.Unsafe {
		t.Fatalf("before: %+v", d)
	}
	fetched := len(w.google.Requests("update"))
	back(t, w)
	w.start()
	defer func() { w.relay.Close() }()
	c.wire.connect(w.relay, 0)
	time.Sleep(10 * time.Minute)
	if n := len(w.google.Requests("update")) - fetched; (n > 0) != lost {
		t.Errorf("%d requests for lists within 10 minutes, want some: %t", n, lost)
	}
	if d := c.decide("evil.example."); d.Verdict != lookup.Unsafe {
		t.Errorf("after: %+v", d)
	}
	w.threaten("evil.example/", "worse.example/")
	time.Sleep(31 * time.Minute)
	if d := c.decide("worse.example."); d.Verdict != lookup.Unsafe || c.entries() != 2 {
		t.Errorf("after the next update: %+v with entries: %d", d, c.entries())
	}
}
