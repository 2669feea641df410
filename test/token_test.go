package test

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol"
	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
)

const (
	oldToken = "ya29.OLD"
	newToken = "ya29.NEW"
)

// tokenWorld is a world of Web Risk whose token is in a file.
func tokenWorld(t *testing.T) (w *world, file string) {
	testkit.Long(t)
	w = newWorld(t)
	w.protocol = protocol.DialectWebRisk
	w.google.SetCacheDuration(time.Millisecond) // each query is a search
	w.threaten("evil.example.com/")
	return w, writeFile(t, t.TempDir(), "token", oldToken+"\n")
}

// putToken replaces the token in a file, as a helper of the operator's would.
func putToken(t *testing.T, file, token string) {
	t.Helper()
	if err := os.WriteFile(file+".new", []byte(token+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(file+".new", file); err != nil {
		t.Fatal(err)
	}
}

// wantProtected waits for the name to be blocked, and wants no token in the log or in db.
func (w *world) wantProtected(t *testing.T, lines *testkit.Lines) {
	t.Helper()
	testkit.Until(w.t, "protection", func() bool { return isBlocked(w.ask("evil.example.com.", dns.TypeA)) })
	wantNoKey(t, w, lines, oldToken, newToken)
}

// As long as the server takes both tokens no name passes.
func TestATokenThatIsReplacedIsUsedWithinSeconds(t *testing.T) {
	lines := testkit.Capture(t)
	w, file := tokenWorld(t)
	var mu sync.Mutex
	used := map[string]bool{}
	front := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		mu.Lock()
		used[r.Header.Get("Authorization")] = true
		mu.Unlock()
		w.google.ServeHTTP(rw, r)
	}))
	defer front.Close()
	w.endpoint = front.URL
	w.start(w.corefile("token_file "+file, "limit off"))
	w.updated(w.perUpdate(3))
	putToken(t, file, newToken)
	testkit.Until(w.t, "the new token", func() bool {
		w.wantBlocked("evil.example.com.", dns.TypeA, w.blames("social engineering"))
		mu.Lock()
		defer mu.Unlock()
		return used["Bearer "+newToken]
	})
	if len(used) != 2 || !used["Bearer "+oldToken] {
		t.Errorf("Expected the two tokens and no others, got %v", used)
	}
	if n := len(w.fetches()); n != w.perUpdate(3) {
		t.Errorf("Expected no request for lists before their minimum waits are over, got %d", n-w.perUpdate(3))
	}
	w.wantProtected(t, lines)
}

func TestANewTokenEndsTheBackoffOfTheOldOne(t *testing.T) {
	lines := testkit.Capture(t)
	for name, tc := range map[string]struct {
		listed  bool // the lists are in force before the token expires
		restart bool // CoreDNS restarts with the new token
	}{
		"of searches":                     {listed: true},
		"of searches, over a restart":     {listed: true, restart: true},
		"of list updates":                 {},
		"of list updates, over a restart": {restart: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, file := tokenWorld(t)
			corefile := w.corefile("token_file "+file, "limit off")
			refused := w.fetches
			if tc.listed {
				w.google.SetToken(oldToken)
				w.start(corefile)
				w.updated(w.perUpdate(3))
				w.google.SetToken(newToken)
				refused = w.searches
			} else {
				w.google.SetToken(newToken)
				w.start(corefile)
			}
			testkit.Until(w.t, "the refusal", func() bool {
				w.ask("evil.example.com.", dns.TypeA)
				all := refused()
				return len(all) > 0 && all[len(all)-1].Status == http.StatusUnauthorized
			})
			testkit.Until(w.t, "a clock that knows it", func() bool { // a stop before that would be no failure
				clocks, _ := filepath.Glob(filepath.Join(w.db, "*.json"))
				return slices.ContainsFunc(clocks, func(name string) bool {
					text, _ := os.ReadFile(name)
					return bytes.Contains(text, []byte("status 401"))
				})
			})
			asked := len(refused())
			w.wantPassed("evil.example.com.", dns.TypeA)
			w.stop()
			w.google.ClientStarted()
			w.start(corefile) // with the old token
			w.wantPassed("evil.example.com.", dns.TypeA)
			if n := len(refused()); n != asked {
				t.Errorf("Expected no request during the back-off, got %d", n-asked)
			}
			if tc.restart {
				w.stop()
				w.google.ClientStarted()
				putToken(t, file, newToken)
				w.start(corefile)
			} else {
				putToken(t, file, newToken)
			}
			w.wantProtected(t, lines)
			if n, want := len(w.google.Requests("computeDiff")), w.perUpdate(3); tc.listed && n != want {
				t.Errorf("Expected the minimum waits to stay, got %d requests for lists, want %d", n, want)
			}
		})
	}
}
