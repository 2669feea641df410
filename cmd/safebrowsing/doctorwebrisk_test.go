package main

import (
	"cmp"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/protocoltest"
	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
)

func TestDoctorSaysWhatIsLeftOfTheBudget(t *testing.T) {
	testkit.Long(t)
	today := time.Now().Format(time.DateOnly)
	spent := func(n int) string { return fmt.Sprintf(`{"day":%q,"spent":{%q:%d}}`, today, today, n) }
	const paused = "confirmations are paused until TIME (the day's budget of 5 searches is spent)"
	for name, test := range map[string]struct {
		properties string
		file       string // "": none
		diagnosis         // without the check
		note       string // of check
	}{
		"nothing is spent":  {"budget 5", "", diagnosis{"", isOK, "0 of 5 searches of today are spent or reserved; the next day begins at TIME", ""}, ""},
		"some are spent":    {"budget 5", spent(3), diagnosis{"", isOK, "3 of 5 searches of today are spent or reserved; the next day begins at TIME", ""}, ""},
		"most are spent":    {"budget 5", spent(4), diagnosis{"", isWarning, "4 of 5 searches of today are spent or reserved; the next day begins at TIME", "raise budget in the Corefile if this happens often"}, ""},
		"all are spent":     {"budget 5", spent(5), diagnosis{"", isProblem, "all of the 5 searches of today are spent: suspected names pass until TIME", "raise budget in the Corefile, or wait"}, paused},
		"an hour's part":    {"budget 400", fmt.Sprintf(`{"day":%q,"spent":{%q:100},"recent":{%q:100}}`, today, today, time.Now().UTC().Truncate(5*time.Minute).Format("2006-01-02T15:04Z")), diagnosis{"", isWarning, "in part: the 100 searches that one hour may take of the day's 400 are spent, and 300 are left for later today: suspected names pass until TIME", "raise budget in the Corefile if this happens often"}, "confirmations are paused until TIME (the 100 searches that one hour may take of the day's 400 are spent)"},
		"of another day":    {"budget 5", `{"day":"2026-01-02","spent":{"2026-01-02":5}}`, diagnosis{"", isOK, "0 of 5 searches of today are spent or reserved; the next day begins at TIME", ""}, ""},
		"unknown":           {"budget 5", "{", diagnosis{"", isProblem, "", "wait; or stop CoreDNS, delete the file and start CoreDNS: then the day begins with the whole budget"}, "confirmations are paused until TIME (the number of searches spent today is unknown)"},
		"unlimited":         {"budget unlimited", spent(5), diagnosis{"", isWarning, "unlimited: each search costs money, and one client that asks for random names causes as many as limit allows", "replace budget unlimited by budget COUNT, the most searches a day"}, ""},
		"kept in memory":    {"budget 1; db off", "", diagnosis{"", isSkipped, "1 search a day; only CoreDNS knows how many are spent: see the metric coredns_safebrowsing_budget_remaining", ""}, ""},
		"of Safe Browsing":  {"budget 5; protocol v5", spent(3), diagnosis{"", isOK, "0 of 5 searches of today are spent or reserved; the next day begins at TIME", ""}, ""},
		"none, of the same": {"protocol v5", spent(3), diagnosis{}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			testkit.Must(t, os.MkdirAll(w.dir, 0o700))
			properties := test.properties
			for word, usual := range map[string]string{"db ": "; db DB", "protocol ": "; protocol webrisk"} {
				if !strings.Contains(properties, word) {
					properties += usual
				}
			}
			corefile := w.corefile(t, ". {\n safebrowsing {\n  endpoint ENDPOINT\n  "+strings.ReplaceAll(properties, "; ", "\n  ")+"\n }\n}\n")
			if strings.Contains(properties, "db DB") {
				w.mustUpdate(t, 0, corefile)
			}
			if test.file != "" {
				write(t, filepath.Join(w.dir, "budget-webrisk.json"), test.file)
			}
			_, found, out := examine(t, corefile, "-offline")
			got, want := found["budget"], test.diagnosis
			got.Text = text(w.plain(string(got.Text)))
			if got.Check, want.Text = "", cmp.Or(want.Text, got.Text); got != want {
				t.Errorf("got %+v, want %+v; all: %s", got, want, out)
			}
			if name == "unknown" && !strings.HasPrefix(string(got.Text), "the number of searches spent today is unknown: the file stays as it is: DB/budget-webrisk.json: damaged file") {
				t.Errorf("got %s", got.Text)
			}
			if name == "kept in memory" && !strings.Contains(string(found["corefile"].Text), "db is off: the budget is kept in memory") {
				t.Errorf("got %+v", found["corefile"])
			}
			if d, twice := found["confirm"]; twice {
				t.Errorf("said twice: %+v", d)
			}
		})
	}
}

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
	testkit.Must(t, os.Chtimes(file, long, long))
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
