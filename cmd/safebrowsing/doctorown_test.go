package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/ownlist"
	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol"
	"github.com/coredns-safebrowsing/safebrowsing/internal/protocoltest"
	"github.com/coredns-safebrowsing/safebrowsing/internal/say"
	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
	"github.com/coredns-safebrowsing/safebrowsing/updater"
)

func TestDoctorOfOwnLists(t *testing.T) {
	w := newWorld(t)
	for name, test := range map[string]struct {
		word, content string
		status        int
		want          string // status of the check
		text          string // the text of the diagnosis, after the path of the list
		advice        string
	}{
		"good":              {"block", "a.example\nb.example\n", 0, isOK, " blocks 2 names, last changed TIME", ""},
		"one name":          {"block", "a.example\n", 0, isOK, " blocks 1 name, last changed TIME", ""},
		"not supported":     {"block", "a.example\n/x/\n", 0, isOK, " blocks 1 name, last changed TIME; 1 line is not supported (1 regular expression, first at line 2)", ""},
		"bad lines":         {"block", "a.example\na b\nc d\n", 0, isWarning, ` blocks 1 name, last changed TIME; 2 lines are not list entries (first at line 2: "a b")`, "correct the lines"},
		"machines":          {"block", "a.example\n10.0.0.1 nas\n", 0, isWarning, ` blocks 1 name, last changed TIME; 1 line has an address other than`, "0.0.0.0"},
		"HTML":              {"block", "<html>\nerror\n", 1, isProblem, " blocks nothing: it looks like an HTML page, last changed TIME", "download the list again"},
		"empty":             {"block", "", 1, isProblem, " blocks nothing: it is empty, last changed TIME", "replace it with a list"},
		"top-level domain":  {"block", "a.example\n||de^\n", 0, isWarning, " blocks 2 names, last changed TIME; line 2 blocks the whole top-level domain de", "unless you want them"},
		"empty, to allow":   {"allow", "# none\n", 0, isOK, " allows nothing: it has only comments, last changed TIME", ""},
		"some have ended":   {"allow", "a.example # until 2020-01-31\nb.example # until 2099-01-31\n", 0, isWarning, " allows 1 name, last changed TIME; 1 entry has ended", "a later date"},
		"all have ended":    {"allow", "a.example # until 2020-01-31\n", 0, isOK, " allows nothing: it has only entries that have ended, last changed TIME; 1 entry has ended", ""},
		"allows everything": {"allow", "* CNAME .\n", 0, isWarning, " allows 1 name, last changed TIME; line 1 allows every name", "unless you want them"},
	} {
		t.Run(name, func(t *testing.T) {
			list := filepath.Join(t.TempDir(), "list.txt")
			write(t, list, test.content)
			changed := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
			testkit.Must(t, os.Chtimes(list, changed, changed))
			block := " {\n safebrowsing {\n  endpoint ENDPOINT\n  db off\n  " + test.word + " " + list + "\n }\n}\n"
			status, found, out := examine(t, w.corefile(t, "a"+block+"b"+block), "-offline")
			d := found["own list"]
			text := strings.Replace(string(d.Text), testkit.LocalTimes("2026-05-01T12:00:00Z"), "TIME", 1)
			if status != test.status || d.Status != test.want || !strings.HasPrefix(text, list+test.text) || !strings.Contains(string(d.Advice), test.advice) {
				t.Errorf("status %d, %+v, want %d, %s, %q", status, d, test.status, test.want, test.text)
			}
			if n := strings.Count(out, `"check":"own list"`); n != 1 {
				t.Errorf("a list of two server blocks is told of %d times", n)
			}
		})
	}
}

func TestDoctorOfHostsThatTheCorefileAllows(t *testing.T) {
	w := newWorld(t)
	stanza := func(allow string) string {
		return ". {\n safebrowsing {\n  endpoint ENDPOINT\n  db off\n  allow " + allow + "\n }\n}\n"
	}
	if _, found, _ := examine(t, w.corefile(t, stanza("a.example until 2099-01-31")), "-offline"); found["own list"].Check != "" {
		t.Errorf("%+v, want nothing about what is well", found["own list"])
	}
	_, found, _ := examine(t, w.corefile(t, stanza("a.example b.example until 2020-01-31")), "-offline")
	if d := found["own list"]; d.Status != isWarning || d.Text != "the Corefile itself allows 1 name; 1 entry has ended" {
		t.Errorf("%+v", d)
	}
}

func TestDoctorOfAListThatCannotBeRead(t *testing.T) {
	w := newWorld(t)
	for _, list := range []string{"HERE/none.txt", "HERE"} { // HERE is a folder
		status, found, out := examine(t, w.corefile(t, ". {\n safebrowsing {\n  block "+list+"\n }\n}\n"), "-offline")
		if d := found["corefile"]; status != 1 || d.Status != isProblem || !strings.Contains(string(d.Text), strings.TrimPrefix(list, "HERE/")) && list != "HERE" {
			t.Errorf("%s: status %d, %s", list, status, out)
		}
	}
}

const listURL = "https://user:s3cret@lists.example.org/hosts.txt"

// saved writes a list by URL and its state into a folder, as a CoreDNS does. Without
// content there is no list.
func saved(t *testing.T, db, content string, s ownlist.URLState) ownlist.URLConfig {
	t.Helper()
	c := ownlist.URLConfig{URL: listURL, DB: db}
	s.Name, s.Bytes = c.Name(), int64(len(content))
	raw, err := json.Marshal(s)
	testkit.Must(t, err)
	testkit.Must(t, os.MkdirAll(filepath.Dir(c.Path()), 0o700))
	if content != "" {
		write(t, c.Path(), content)
	}
	write(t, strings.TrimSuffix(c.Path(), ".list")+".json", string(raw))
	return c
}

func TestListsByURLInDoctorAndLists(t *testing.T) {
	now := time.Now().Truncate(time.Second)
	yes, no := now.Add(-time.Hour), now.Add(time.Hour)
	good := ownlist.URLState{Changed: yes, Checked: yes, Tried: yes, Next: no, Entries: 2}
	failing := good
	failing.Failures, failing.Since, failing.Error = 3, yes, "the server answered status 503"
	late := good
	late.Next = now.Add(-3 * time.Hour)
	for _, test := range []struct {
		name, content string
		state         *ownlist.URLState
		want          string // status of the diagnosis
		text, advice  string
	}{
		{"well", "a.example\nb.example\n", &good, isOK, " blocks 2 names, last changed ", ""},
		{"failing", "a.example\nb.example\n", &failing, isWarning, "; not updated since " + say.Time(yes) + ": the server answered status 503", "open the URL in a browser"},
		{"late", "a.example\nb.example\n", &late, isWarning, "next fetch " + say.Time(late.Next), "the next fetch is late"},
		{"never fetched, failing", "", &failing, isProblem, " has no effect: it was never fetched. the server answered status 503; next attempt ", "open the URL"},
		{"not fetched yet", "", nil, isWarning, " has no effect: it has not been fetched yet", "start CoreDNS"},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := newWorld(t)
			name := ownlist.URLConfig{URL: listURL}.Name()
			if test.state != nil {
				saved(t, w.dir, test.content, *test.state)
			}
			corefile := w.corefile(t, ". {\n safebrowsing {\n  block "+listURL+"\n  db DB\n }\n}\n")
			status, found, out := examine(t, corefile, "-offline")
			d := found["own list"]
			if d.Status != test.want || !strings.HasPrefix(string(d.Text), name) || !strings.Contains(string(d.Text), test.text) || !strings.Contains(string(d.Advice), test.advice) {
				t.Errorf("status %d, %+v, want %s, %q", status, d, test.want, test.text)
			}
			if strings.Contains(out, "s3cret") {
				t.Error("a secret is printed")
			}
		})
	}
}

func TestDoctorOfListsByURLWithoutAFolder(t *testing.T) {
	w := newWorld(t)
	corefile := w.corefile(t, ". {\n safebrowsing {\n  block "+listURL+"\n  db off\n }\n}\n")
	if _, found, _ := examine(t, corefile, "-offline"); found["own list"].Status != isSkipped {
		t.Errorf("%+v", found["own list"])
	}
}

// Commands that edit lists neither edit nor fetch one by URL.
func TestAListByURLIsNotEdited(t *testing.T) {
	w := newWorld(t)
	s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the list is fetched") }))
	defer s.Close()
	stanza := func(file string) string {
		return w.corefile(t, ". {\n safebrowsing {\n  block "+s.URL+"/hosts.txt "+file+"\n  db DB\n }\n}\n")
	}
	status, out, errOut := invoke(t, "block", "-corefile", stanza(""), "bad.example")
	if status == 0 || !strings.Contains(errOut, "has no file of block") {
		t.Errorf("status %d, %s%s", status, out, errOut)
	}
	file := filepath.Join(t.TempDir(), "block.txt")
	write(t, file, "a.example\n")
	status, out, errOut = invoke(t, "block", "-corefile", stanza(file), "bad.example")
	if raw, err := os.ReadFile(file); status != 0 || err != nil || !strings.Contains(string(raw), "bad.example") {
		t.Errorf("status %d, %s%s, %s, %v", status, out, errOut, raw, err)
	}
}

// What a list by URL may not do has no effect, and the doctor says which lines these are.
func TestDoctorNamesWhatAListByURLLeavesOut(t *testing.T) {
	w := newWorld(t)
	now := time.Now().Truncate(time.Second)
	saved(t, w.dir, "bad.example\n||org^\n||example.org^\n", ownlist.URLState{Changed: now, Checked: now, Tried: now, Next: now.Add(time.Hour), Entries: 2})
	const needs = "that it has pass, because this server needs them: lists.example.org (line 3), the host of a list by URL"
	for word, want := range map[string]string{
		"":     "1 line is left out, which a list by URL may not have unless the word wide follows it in the Corefile: line 2 blocks the whole top-level domain org; 1 name " + needs,
		"wide": "2 names " + needs + "; pool.ntp.org (line 2), a time server: DNSSEC and TLS need the clock",
	} {
		corefile := w.corefile(t, ". {\n safebrowsing {\n  block "+listURL+" "+word+"\n  db DB\n }\n}\n")
		if _, found, out := examine(t, corefile, "-offline"); !strings.Contains(string(found["own list"].Text), want) {
			t.Errorf("%q: the doctor does not say %q: %s", word, want, out)
		}
	}
}

// The doctor follows a folder in which one list is misspelt, from the first refusal
// to a server that is down for days.
func TestDoctorSaysWhatProtects(t *testing.T) {
	const endpoint = "http://doctor.example"
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		server := protocoltest.New(t)
		server.SetMinimumWait("", 30*time.Minute)
		server.Publish("se-4b", [][]byte{{1, 2, 3, 4}})
		corefile := dir + "/Corefile"
		write(t, corefile, fmt.Sprintf(". {\n safebrowsing {\n  endpoint %s\n  lists se-4b pha4-4b\n  db %s/db\n }\n}\n", endpoint, dir))
		diagnose := func() diagnosis {
			blocks, err := readCorefile(corefile)
			testkit.Must(t, err)
			defer closeBlocks(blocks)
			return listsDiagnosis(blocks[0].Block, time.Now())
		}
		want := func(status string, parts ...string) {
			t.Helper()
			d := diagnose()
			for _, part := range parts {
				if !strings.Contains(string(d.Text+" → "+d.Advice), part) {
					t.Errorf("want %q in %+v", part, d)
				}
			}
			if d.Status != status {
				t.Errorf("want %s, got %+v", status, d)
			}
		}
		fetch := func() {
			t.Helper()
			client, err := protocol.NewV5(protocol.Config{Endpoint: endpoint, UserAgent: "doctor/1", Transport: server})
			testkit.Must(t, err)
			store, err := updater.OpenStore(dir+"/db", updater.Origin{Name: endpoint, Asker: updater.Asker(endpoint, "")})
			testkit.Must(t, err)
			schedule, err := updater.NewSchedule(store)
			testkit.Must(t, err)
			u, err := updater.New(updater.Config{Source: client, Database: new(lookup.Database), Schedule: schedule, Store: store, Lists: []string{"se-4b", "pha4-4b"}})
			testkit.Must(t, err)
			testkit.Must(t, u.Once(t.Context()))
		}
		want(isWarning, "0 of 2 in force, missing: se-4b, pha4-4b", "within a minute after its start")
		fetch() // the whole batch is refused
		want(isProblem, "0 of 2 in force, missing: se-4b, pha4-4b; not asked before 20", "back-off after a failure", "status 400", "the names in lists")
		time.Sleep(31 * time.Minute)
		fetch() // each by itself
		want(isProblem, "1 of 2 in force, missing: pha4-4b (back-off after ", "status 400", "did you mean pha-4b?", "the names in lists")
		time.Sleep(25 * time.Hour)
		want(isWarning, "1 of 2 in force, missing: pha4-4b")
		write(t, corefile, strings.Replace(read(t, corefile), "pha4-4b", "", 1))
		want(isProblem, "but not updated: se-4b since ")
	})
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
