package main

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/protocoltest"
)

// Web Risk has no request that is free and needs no wait. So the doctor sends none with the
// key, and says what CoreDNS has noted.
func TestDoctorOfWebRisk(t *testing.T) {
	const (
		billing = "and that the project has a billing account"
		unknown = "it answers; whether it accepts the API key is not known yet: Web Risk has no request to try it with"
	)
	for name, test := range map[string]struct {
		before func(w *world, corefile string)
		flags  []string
		status int
		check  string
		want   string // status of the check
		text   string // in its text or advice
	}{
		"before the first update": {func(*world, string) {}, nil, 0, "server", isWarning, unknown + " start CoreDNS, or run safebrowsing update"},
		"the clock is looked at":  {func(*world, string) {}, nil, 0, "clock", isOK, "from the server's"},
		"after an update": {func(w *world, corefile string) { w.mustUpdate(t, 0, corefile) }, nil, 0, "server", isOK,
			"it answers, and it accepted the API key at the last update of the lists"},
		"after an update that was refused": {func(w *world, corefile string) {
			w.Break("computeDiff", 1, protocoltest.Fault{Status: http.StatusForbidden})
			w.mustUpdate(t, 2, corefile)
		}, nil, 1, "server", isProblem, billing},
		"lists in force, but the last update was refused": {func(w *world, corefile string) {
			v5 := filepath.Join(filepath.Dir(corefile), "v5")
			write(t, v5, strings.NewReplacer("protocol webrisk", "protocol v5", "budget 5", "").Replace(read(t, corefile)))
			w.mustUpdate(t, 0, v5)
			w.Break("computeDiff", 1, protocoltest.Fault{Status: http.StatusForbidden})
			w.mustUpdate(t, 2, corefile)
		}, []string{"-offline"}, 0, "lists", isWarning, "3 of 3 in force, 3 entries, but not updated at present; not asked before "},
		"offline": {func(*world, string) {}, []string{"-offline"}, 0, "server", isSkipped, "-offline"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.SetKey("SECRET")
			corefile := w.riskCorefile(t, "api_key SECRET; budget 5")
			test.before(w, corefile)
			before := len(w.Requests(""))
			status, found, out := examine(t, corefile, test.flags...)
			d := found[test.check]
			if status != test.status || d.Status != test.want || !strings.Contains(string(d.Text+" "+d.Advice), test.text) {
				t.Errorf("status %d, %+v, want %d, %s with %q; all: %s", status, d, test.status, test.want, test.text, out)
			}
			for _, r := range w.Requests("")[before:] {
				if r.Method != "" {
					t.Errorf("the doctor sent the request %s", r.Method)
				}
			}
		})
	}
}

func TestDoctorSendsWebRiskNoKey(t *testing.T) {
	var asked []*http.Request
	server := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		asked = append(asked, r)
		rw.WriteHeader(http.StatusNotFound)
	}))
	w := newWorld(t)
	w.endpoint = server.URL
	_, found, _ := examine(t, w.riskCorefile(t, "api_key SECRET; budget 5"))
	server.Close() // waits for the handler
	if len(asked) != 1 || asked[0].URL.Path != "/" || asked[0].Header.Get("X-Goog-Api-Key") != "" || !strings.HasPrefix(asked[0].UserAgent(), "coredns-safebrowsing/") {
		t.Errorf("asked %+v, want one request for / without the key", asked)
	}
	if d := found["server"]; d.Status != isWarning {
		t.Errorf("%+v", d)
	}
	status, found, out := examine(t, w.riskCorefile(t, "api_key SECRET; budget 5")) // nobody listens
	if d := found["server"]; status != 1 || d.Status != isProblem || !strings.Contains(string(d.Text), "no answer from "+server.URL) {
		t.Errorf("status %d, %+v; all: %s", status, d, out)
	}
}

func TestDoctorOfAToken(t *testing.T) {
	w := newWorld(t)
	w.SetToken("FRESH")
	corefile := w.riskCorefile(t, "token_file token; budget 5")
	file := filepath.Join(filepath.Dir(corefile), "token")
	write(t, corefile, strings.Replace(read(t, corefile), "token_file token", "token_file "+file, 1))
	status, found, out := examine(t, corefile)
	if d := found["corefile"]; status != 1 || d.Status != isProblem || !strings.Contains(string(d.Text), "token_file: open "+file) || !strings.Contains(string(d.Advice), "or the file that the line names") {
		t.Errorf("no file: status %d, %+v; all: %s", status, d, out)
	}
	renew := "put a new token into " + file + ", and have something do so every hour; CoreDNS uses it within 5 seconds"
	write(t, file, "STALE\n")
	long := time.Now().Add(-61 * time.Minute)
	if err := os.Chtimes(file, long, long); err != nil {
		t.Fatal(err)
	}
	_, found, _ = examine(t, corefile, "-offline")
	if d, want := found["key"], (diagnosis{"key", isWarning, text("the token in " + file + " was written 1h1m ago, and tokens last an hour"), text(renew)}); d != want {
		t.Errorf("got %+v, want %+v", d, want)
	}
	if _, errOut := w.mustUpdate(t, 2, corefile); strings.Contains(errOut, "STALE") {
		t.Errorf("the token is printed: %s", errOut)
	}
	status, found, out = examine(t, corefile)
	if d := found["server"]; status != 1 || d.Status != isProblem || !strings.Contains(string(d.Text), "status 401") || string(d.Advice) != renew {
		t.Errorf("refused: status %d, %+v; all: %s", status, d, out)
	}
	write(t, file, "FRESH\n")
	_, found, out = examine(t, corefile)
	if d := found["key"]; d != (diagnosis{"key", isOK, text("a token, in " + file), ""}) {
		t.Errorf("a new token: %+v", d)
	}
	if d := found["server"]; d.Status != isWarning || !strings.Contains(string(d.Text), "whether it accepts the token is not known yet") {
		t.Errorf("a new token: %+v; all: %s", d, out)
	}
}
