package test

import (
	"bytes"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
)

// Two engines of the same lists are told apart.
func TestGaugesTellEnginesApart(t *testing.T) {
	one, other := newWorld(t), newWorld(t)
	one.threaten("evil.example.com/")
	other.threaten("evil.example.com/", "bad.example.com/", "worse.example.com/")
	one.start(one.corefile("lists se-4b"))
	other.start(other.corefile("lists se-4b"))
	one.updated(1)
	other.updated(1)
	for _, tc := range []struct {
		w    *world
		want float64
	}{{one, 1}, {other, 3}} {
		testkit.Until(tc.w.t, "the list", func() bool { return testkit.Metric(t, "list_entries", "endpoint", tc.w.endpoint) == tc.want })
		if got := testkit.Metric(t, "list_entries", "db", tc.w.db); got != tc.want {
			t.Errorf("Expected %v entries, got %v", tc.want, got)
		}
	}
}

// A key that is replaced in its file is used within seconds, and has a first contact
// of its own. So has one that is replaced in the Corefile.
func TestARepairedKeyIsUsedAtOnce(t *testing.T) {
	testkit.Long(t)
	const bad, good = "AIzaBAD", "AIzaGOOD"
	lines := testkit.Capture(t)
	for name, tc := range map[string]struct {
		db     string
		repair func(w *world, file string) error
	}{
		"in the file": {"", func(_ *world, file string) error {
			if err := os.WriteFile(file+".new", []byte(good+"\n"), 0o600); err != nil {
				return err
			}
			return os.Rename(file+".new", file)
		}},
		"in the Corefile":                  {"", func(w *world, _ string) error { return w.reload(w.corefile("api_key " + good)) }},
		"in the Corefile, without a db":    {"off", func(w *world, _ string) error { return w.reload(w.corefile("api_key " + good)) }},
		"in the file after it was emptied": {"", emptied(good)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			if tc.db != "" {
				w.db = tc.db
			}
			w.google.SetKey(good)
			w.threaten("evil.example.com/")
			file := writeFile(t, t.TempDir(), "key", bad)
			w.start(w.corefile("api_key_file " + file))
			testkit.Until(w.t, "the refusal", func() bool {
				requests := w.google.Requests("update")
				return len(requests) == 1 && requests[0].Status == http.StatusForbidden
			})
			testkit.Until(w.t, "readiness", engines.Ready)
			w.wantPassed("evil.example.com.", dns.TypeA)
			if err := tc.repair(w, file); err != nil {
				t.Fatal(err)
			}
			testkit.Until(w.t, "protection", func() bool { return isBlocked(w.ask("evil.example.com.", dns.TypeA)) })
			wantNoKey(t, w, lines, bad, good)
		})
	}
}

// emptied returns a repair that finds the file empty for a while.
func emptied(good string) func(w *world, file string) error {
	return func(_ *world, file string) error {
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			return err
		}
		time.Sleep(6 * time.Second)
		return os.WriteFile(file, []byte(good), 0o600)
	}
}

// wantNoKey fails if a key is in the log or in a file of the folder.
func wantNoKey(t *testing.T, w *world, lines *testkit.Lines, keys ...string) {
	t.Helper()
	for _, key := range keys {
		if got := lines.About(key); len(got) > 0 {
			t.Errorf("The key is in the log: %q", got)
		}
		files, _ := filepath.Glob(filepath.Join(w.db, "*"))
		for _, file := range files {
			if raw, _ := os.ReadFile(file); bytes.Contains(raw, []byte(key)) {
				t.Errorf("The key is in %s", file)
			}
		}
	}
}
