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
	"github.com/coredns-safebrowsing/safebrowsing/updater"
)

func TestDoctorOfOwnLists(t *testing.T) {
	w := newWorld(t)
	for name, test := range map[string]struct {
		word, content      string
		status             int
		want, text, advice string // the status of the check, and the text after the path of the list
	}{
		"good":              {"block", "a.example\nb.example\n", 0, isOK, " blocks 2 names, last changed TIME", ""},
		"bad lines":         {"block", "a.example\na b\nc d\n", 0, isWarning, ` blocks 1 name, last changed TIME; 2 lines are not list entries (first at line 2: "a b")`, "correct the lines"},
		"HTML":              {"block", "<html>\nerror\n", 1, isProblem, " blocks nothing: it looks like an HTML page, last changed TIME", "download the list again"},
		"machines":          {"block", "a.example\n10.0.0.1 nas\n", 0, isWarning, ` blocks 1 name, last changed TIME; 1 line has an address other than`, "0.0.0.0"},
		"empty":             {"block", "", 1, isProblem, " blocks nothing: it is empty, last changed TIME", "replace it with a list"},
		"top-level domain":  {"block", "a.example\n||de^\n", 0, isWarning, " blocks 2 names, last changed TIME; line 2 blocks the whole top-level domain de", "unless you want them"},
		"empty, to allow":   {"allow", "# none\n", 0, isOK, " allows nothing: it has only comments, last changed TIME", ""},
		"some have ended":   {"allow", "a.example # until 2020-01-31\nb.example # until 2099-01-31\n", 0, isWarning, " allows 1 name, last changed TIME; 1 entry has ended", "a later date"},
		"allows everything": {"allow", "* CNAME .\n", 0, isWarning, " allows 1 name, last changed TIME; line 1 allows every name", "unless you want them"},
	} {
		t.Run(name, func(t *testing.T) {
			list := testkit.Write(t, t.TempDir(), "list.txt", test.content)
			changed := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
			testkit.Must(t, os.Chtimes(list, changed, changed))
			block := " {\n safebrowsing {\n  endpoint ENDPOINT\n  db off\n  " + test.word + " " + list + "\n }\n}\n"
			status, found, out := examine(t, w.corefile(t, "a"+block+"b"+block), "-offline")
			d := found["own list"]
			text := strings.Replace(string(d.Text), testkit.LocalTimes("2026-05-01T12:00:00Z"), "TIME", 1)
			expect(t, "status", status, test.status)
			wantIs(t, d, test.want)
			testkit.WantStart(t, text, list+test.text)
			testkit.WantParts(t, string(d.Advice), test.advice)
			expect(t, "a list of two server blocks is told of", strings.Count(out, `"check":"own list"`), 1)
		})
	}
}

const listURL = "https://user:s3cret@lists.example.org/hosts.txt"

// saved writes a list by URL and its state into a folder, as a CoreDNS does. Without content there is no list.
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
		name, content      string
		state              *ownlist.URLState
		want, text, advice string // want is the status
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
			_, found, out := examine(t, corefile, "-offline")
			wantIs(t, found["own list"], test.want, test.text, test.advice)
			testkit.WantStart(t, string(found["own list"].Text), name)
			testkit.WantNone(t, out, "s3cret")
		})
	}
}

// Whoever may not look into the folder is not told that all is well.
func TestDoctorOfAListByURLThatMayNotBeRead(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("root may read everything")
	}
	now := time.Now()
	c := saved(t, t.TempDir(), "a.example\n", ownlist.URLState{Changed: now, Checked: now, Tried: now, Next: now.Add(time.Hour), Entries: 1})
	testkit.Must(t, os.Chmod(filepath.Dir(c.Path()), 0))
	defer os.Chmod(filepath.Dir(c.Path()), 0o700)
	wantIs(t, byURLDiagnosis(diagnosis{Check: "own list"}, c, now), isWarning, "as the user of CoreDNS")
}

func TestAListByURLIsNotEdited(t *testing.T) {
	w := newWorld(t)
	s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the list is fetched") }))
	defer s.Close()
	stanza := func(file string) string {
		return w.corefile(t, ". {\n safebrowsing {\n  block "+s.URL+"/hosts.txt "+file+"\n  db DB\n }\n}\n")
	}
	run(t, "block", "-corefile", stanza(""), "bad.example").want(2, "has no file of block")
	file := testkit.Write(t, t.TempDir(), "block.txt", "a.example\n")
	run(t, "block", "-corefile", stanza(file), "bad.example").want(0)
	testkit.WantParts(t, read(t, file), "bad.example")
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
		_, found, _ := examine(t, corefile, "-offline")
		testkit.WantParts(t, string(found["own list"].Text), want)
	}
}

// The doctor follows a folder in which one list is misspelt, from the first refusal to a server that is down for days.
func TestDoctorSaysWhatProtects(t *testing.T) {
	const endpoint = "http://doctor.example"
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		server := protocoltest.New(t)
		server.SetMinimumWait("", 30*time.Minute)
		server.Publish("se-4b", [][]byte{{1, 2, 3, 4}})
		corefile := dir + "/Corefile"
		write(t, corefile, fmt.Sprintf(". {\n safebrowsing {\n  endpoint %s\n  lists se-4b pha4-4b\n  db %s/db\n }\n}\n", endpoint, dir))
		want := func(status string, parts ...string) {
			t.Helper()
			wantIs(t, listsDiagnosis(blocksOf(t, corefile)[0].Block, time.Now()), status, parts...)
		}
		fetch := func() {
			t.Helper()
			client, err := protocol.NewV5(protocol.Config{Endpoint: endpoint, UserAgent: "doctor/1", Transport: server})
			testkit.Must(t, err)
			fetchInto(t, dir+"/db", client, updater.Origin{Name: endpoint, Asker: updater.Asker(endpoint, "")}, "se-4b", "pha4-4b")
		}
		want(isWarning, "0 of 2 in force, missing: se-4b, pha4-4b", "within a minute after its start")
		fetch() // the whole batch is refused
		want(isProblem, "0 of 2 in force, missing: se-4b, pha4-4b; not asked before ", "back-off after a failure", "status 400", "the names in lists")
		time.Sleep(31 * time.Minute)
		fetch() // each by itself
		want(isProblem, "1 of 2 in force, missing: pha4-4b (back-off after ", "status 400", "did you mean pha-4b?", "the names in lists")
		time.Sleep(25 * time.Hour)
		want(isWarning, "1 of 2 in force, missing: pha4-4b")
		write(t, corefile, strings.Replace(read(t, corefile), "pha4-4b", "", 1))
		want(isProblem, "but not updated: se-4b since ", "within a minute after its start")
		write(t, corefile, strings.Replace(read(t, corefile), endpoint, "http://other.example", 1))
		want(isWarning, "0 of 1 in force, missing: se-4b") // the file came from another server
	})
}
