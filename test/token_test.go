package test

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"testing"

	"github.com/miekg/dns"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/coredns-safebrowsing/safebrowsing/internal/config"
	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
)

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
