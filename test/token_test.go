package test

import (
	"bufio"
	"bytes"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/coredns/caddy"

	"github.com/miekg/dns"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/coredns-safebrowsing/safebrowsing/internal/config"
	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol"
	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
)

// putToken replaces the token in a file, as a helper of the operator's would.
func putToken(t *testing.T, file, token string) {
	t.Helper()
	testkit.Must(t, os.WriteFile(file+".new", []byte(token+"\n"), 0o600))
	testkit.Must(t, os.Rename(file+".new", file))
}

// As long as the server takes both tokens no name passes.
func TestATokenThatIsReplacedIsUsedWithinSeconds(t *testing.T) {
	const oldToken, newToken = "ya29.OLD", "ya29.NEW"
	testkit.Long(t)
	lines := testkit.Capture(t)
	w := newWorld(t)
	w.protocol = protocol.DialectWebRisk
	w.google.SetCacheDuration(time.Millisecond) // each query is a search
	w.threaten("evil.example.com/")
	file := writeFile(t, t.TempDir(), "token", oldToken+"\n")
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
	wantNoKey(t, w, lines, oldToken, newToken)
}

func gathered(t *testing.T) string {
	t.Helper()
	all, err := prometheus.DefaultGatherer.Gather()
	testkit.Must(t, err)
	return fmt.Sprint(all)
}

// A key is in the right place, in a list's URL, and in what servers answer.
func TestAKeyIsOnNoPageInNoMetricAndInNoLog(t *testing.T) {
	testkit.Long(t)
	if !apart(t) {
		return
	}
	t.Setenv(config.KeyVariable, "")
	lines := testkit.Capture(t)
	w := newWorld(t)
	w.google.SetKey(testkit.Key)
	w.threaten("evil.example.com/")
	repeats := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		rw.Header().Set("Location", "http://"+testkit.Key+".example/"+testkit.Token)
		rw.WriteHeader(http.StatusFound)
	}))
	defer repeats.Close()
	key := writeFile(t, t.TempDir(), "key", testkit.Key+"\n")
	w.start(w.corefile("status 127.0.0.1:0 names", "log json", "api_key_file "+key, "resolver 127.0.0.1:1",
		"block "+repeats.URL+"/hosts?key="+testkit.Key+"&token="+testkit.Token))
	w.updated(1)
	url := w.pageURL(lines)
	w.wantBlocked("evil.example.com.", dns.TypeA, phishing)
	testkit.Until(w.t, "the failure of the list", func() bool { return len(lines.About("cannot be updated")) > 0 })
	writeFile(t, filepath.Dir(key), "key", "'"+testkit.Token+"'")
	testkit.Until(w.t, "the refusal of the new key", func() bool { return len(lines.About("Cannot replace the API key")) > 0 })
	for what, text := range map[string]string{
		"the page": get(t, url), "the page of a name": get(t, url+"?name=evil.example.com"), "a metric": gathered(t), "the log": fmt.Sprint(lines.About("")),
	} {
		for _, secret := range []string{testkit.Key, testkit.Token} {
			if testkit.Leaks(text, secret) {
				t.Errorf("%s has the secret:\n%s", what, text)
			}
		}
	}
}

// What CoreDNS prints when it does not start goes to a journal.
func TestAKeyInAWrongPlaceIsNotInTheErrorOfTheStart(t *testing.T) {
	t.Setenv(config.KeyVariable, "")
	t.Setenv("STATE_DIRECTORY", t.TempDir())
	for _, stanza := range testkit.Stanzas(config.Usages(), testkit.Key) {
		caddyMu.Lock()
		err := caddy.ValidateAndExecuteDirectives(input(".:0 {\n"+stanza+"\n}\n"), nil, true)
		caddyMu.Unlock()
		if err != nil && testkit.Leaks(err.Error(), testkit.Key) {
			t.Errorf("%q: %v", stanza, err)
		}
	}
}

// A key that is replaced in its file is used within seconds, and has a first contact
// of its own. So has one that is replaced in the Corefile.
func TestARepairedKeyIsUsedAtOnce(t *testing.T) {
	testkit.Long(t)
	const bad, good = "AIzaBAD", "AIzaGOOD"
	lines := testkit.Capture(t)
	for name, db := range map[string]string{"in the file": "", "in the Corefile": "", "in the Corefile, without a db": "off"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			if db != "" {
				w.db = db
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
			if name == "in the file" {
				putToken(t, file, good)
			} else {
				testkit.Must(t, w.reload(w.corefile("api_key "+good)))
			}
			testkit.Until(w.t, "protection", func() bool { return isBlocked(w.ask("evil.example.com.", dns.TypeA)) })
			wantNoKey(t, w, lines, bad, good)
		})
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

// A server that sends more than one answer on a kept connection has package net/http write the surplus into the log of
// the process: the key, if it likes.
func TestTheKeyIsNotInWhatAServerSendsUnasked(t *testing.T) {
	lines := testkit.Capture(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	testkit.Must(t, err)
	defer l.Close()
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				for from := bufio.NewReader(conn); ; {
					r, err := http.ReadRequest(from)
					if err != nil {
						return
					}
					fmt.Fprintf(conn, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\nthe \"key\" is %s", r.Header.Get("X-Goog-Api-Key"))
				}
			}()
		}
	}()
	w := newWorld(t)
	w.endpoint, w.db = "http://"+l.Addr().String(), "off"
	w.start(w.corefile("api_key made-for-this-test", "mode nostorage"))
	w.ask("www.example.org.", dns.TypeA)
	testkit.Until(t, "the line of net/http", func() bool { return len(lines.About("Unsolicited response")) > 0 })
	if got := lines.About("made-for-this-test"); len(got) > 0 {
		t.Errorf("the key is in the log: %q", got)
	}
}
