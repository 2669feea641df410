package test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"testing"

	"github.com/coredns/caddy"
	"github.com/miekg/dns"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/coredns-safebrowsing/safebrowsing/internal/config"
	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
)

// gathered returns all metrics of the process.
func gathered(t *testing.T) string {
	t.Helper()
	all, err := prometheus.DefaultGatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
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
