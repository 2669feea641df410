package relay

import (
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

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
