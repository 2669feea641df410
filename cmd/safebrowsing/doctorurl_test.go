package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/ownlist"
	"github.com/coredns-safebrowsing/safebrowsing/internal/say"
)

const listURL = "https://user:s3cret@lists.example.org/hosts.txt"

// saved writes a list by URL and its state into a folder, as a CoreDNS does. Without
// content there is no list.
func saved(t *testing.T, db, content string, s ownlist.URLState) ownlist.URLConfig {
	t.Helper()
	c := ownlist.URLConfig{URL: listURL, DB: db}
	s.Name, s.Bytes = c.Name(), int64(len(content))
	raw, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Dir(c.Path()), 0o700); err != nil {
		t.Fatal(err)
	}
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
