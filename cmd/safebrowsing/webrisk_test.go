package main

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/config"
	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol"
	"github.com/coredns-safebrowsing/safebrowsing/internal/protocoltest"
	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
	"github.com/coredns-safebrowsing/safebrowsing/updater"
)

// riskCorefile is a Corefile for Web Risk with these properties. KEY is the key.
func (w *world) riskCorefile(t *testing.T, properties string) string {
	t.Helper()
	return w.corefile(t, ". {\n safebrowsing {\n  protocol webrisk\n  endpoint ENDPOINT\n  db DB\n  "+strings.ReplaceAll(properties, "; ", "\n  ")+"\n }\n}\n")
}

// mustUpdate updates the folder of a Corefile and expects this exit status.
func (w *world) mustUpdate(t *testing.T, want int, corefile string) (out, errOut string) {
	t.Helper()
	status, out, errOut := invoke(t, "update", "-now", "-corefile", corefile)
	if status != want {
		t.Fatalf("update: status %d, want %d, %s%s", status, want, out, errOut)
	}
	return out, errOut
}

func TestUpdateByWebRiskAndOnByVersion5(t *testing.T) {
	w := newWorld(t)
	w.SetKey("OWN")
	t.Setenv(config.KeyVariable, "OWN")
	status, out, errOut := w.update(t, "-protocol", "webrisk")
	if status != 0 || errOut != "" {
		t.Errorf("status %d, %s", status, errOut)
	}
	expect(t, "text", w.plain(out), `se-4b: updated, 2 entries, next not before TIME
mw-4b: updated, 1 entry, next not before TIME
uws-4b: updated, 0 entries, next not before TIME
`)
	if asked, all := len(w.Requests("computeDiff")), len(w.Requests("")); asked != 3 || all != 3 {
		t.Errorf("%d of %d requests by Web Risk, want one for each list", asked, all)
	}
	w.wantVerified(t, 3)
	w.ClientStarted()
	if status, out, errOut := w.update(t, "-protocol", "webrisk"); status != 0 || !strings.Contains(out, "nothing is due before ") {
		t.Errorf("by Web Risk again: status %d, %s%s", status, out, errOut)
	}
	if status, out, errOut := w.update(t); status != 0 || !strings.Contains(out, "se-4b: updated, 2 entries") {
		t.Errorf("by version 5: status %d, %s%s", status, out, errOut)
	}
	if got := w.Requests("batchGet"); len(got) != 1 || len(got[0].Versions) != 0 {
		t.Errorf("requests of version 5: %+v, want one without versions: the services do not know each other's", got)
	}
}

func TestUpdateThatWebRiskRefusesSaysUntilWhenForEachList(t *testing.T) {
	w := newWorld(t)
	w.Break("computeDiff", 1, protocoltest.Fault{Status: http.StatusForbidden})
	out, errOut := w.mustUpdate(t, 2, w.riskCorefile(t, "api_key K; budget 5"))
	expect(t, "text", w.plain(out), `se-4b: waiting, 0 entries, next not before TIME
mw-4b: waiting, 0 entries, next not before TIME
uws-4b: waiting, 0 entries, next not before TIME
`)
	if !strings.Contains(errOut, "status 403") || len(w.Requests("")) != 1 {
		t.Errorf("%d requests, %s", len(w.Requests("")), errOut)
	}
}

func TestUpdateTakesATokenFromACorefile(t *testing.T) {
	w := newWorld(t)
	w.SetToken("TOKEN")
	corefile := w.riskCorefile(t, "token_file "+filepath.Join(t.TempDir(), "token")+"; budget 5; lists se-4b se-ext-4b")
	_, file, _ := strings.Cut(read(t, corefile), "token_file ")
	file, _, _ = strings.Cut(file, "\n")
	write(t, file, "TOKEN\n")
	w.Publish("se-ext-4b", [][]byte{{1, 2, 3, 4}})
	if out, errOut := w.mustUpdate(t, 0, corefile); !strings.Contains(out, "se-ext-4b: updated, 1 entry") || errOut != "" {
		t.Errorf("%s%s", out, errOut)
	}
	if all := w.lists(t); len(all) != 2 || all[1].Name != "se-ext-4b" || all[1].Entries != 1 {
		t.Errorf("%+v", all)
	}
}

func TestUpdateRefusesWhatTheProtocolCannotDo(t *testing.T) {
	w := newWorld(t)
	for name, test := range map[string]struct {
		flags []string
		want  string
	}{
		"a list of Safe Browsing":      {[]string{"-protocol", "webrisk", "-lists", "pha-4b"}, `-lists: protocol webrisk has no list "pha-4b", only mw-4b, se-4b, se-ext-4b, uws-4b`},
		"the server of Safe Browsing":  {[]string{"-protocol", "webrisk", "-endpoint", "https://safebrowsing.googleapis.com"}, "https://safebrowsing.googleapis.com does not speak protocol webrisk: leave out -endpoint, or name another protocol"},
		"no key for Google's Web Risk": {[]string{"-protocol", "webrisk", "-endpoint", "https://webrisk.googleapis.com"}, "no API key: set $SAFEBROWSING_API_KEY"},
	} {
		if status, _, errOut := w.update(t, test.flags...); status != 2 || !strings.Contains(errOut, test.want) {
			t.Errorf("%s: status %d, %s, want %s", name, status, errOut, test.want)
		}
	}
	if _, err := os.Stat(w.dir); err == nil {
		t.Error("a folder was made")
	}
}

// fromGoogle puts a list into a folder as if it came from Google.
func fromGoogle(t *testing.T, dir string, d *protocol.Dialect, list string) {
	t.Helper()
	w := newWorld(t)
	w.Publish(list, [][]byte{{1, 2, 3, 4}})
	if list == "se-4b" {
		hash := lookup.HashExpression("evil.example/")
		w.Publish(list, [][]byte{hash[:4]})
	}
	o, err := openFolderOf(dir, "", d, "K", []string{list})
	testkit.Must(t, err)
	defer o.End()
	client, err := o.Settings.Client(o.Config.Secret, new(lookup.Database), w.Server)
	testkit.Must(t, err)
	store, err := updater.OpenStore(dir, o.Settings.Origin(o.Config.Secret))
	testkit.Must(t, err)
	schedule, err := updater.NewSchedule(store)
	testkit.Must(t, err)
	u, err := updater.New(updater.Config{
		Source: client, Database: new(lookup.Database), Schedule: schedule, Store: store, Lists: []string{list},
		Report: func(updater.Event) {}, FirstContact: func() time.Duration { return 0 },
	})
	testkit.Must(t, err)
	testkit.Must(t, u.Once(t.Context()))
}

// A folder with lists of Safe Browsing can go on with Web Risk, which has a server of its own.
func TestAFolderMovesToTheOtherServiceOfGoogle(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "db")
	for _, list := range []string{"se-4b", "pha-4b"} {
		fromGoogle(t, dir, protocol.DialectV5, list)
	}
	for _, test := range []struct {
		dialect  *protocol.Dialect
		endpoint string
		want     string // lists, or the error
	}{
		{protocol.DialectV5, protocol.DialectV5.Endpoint, "pha-4b se-4b"},
		{protocol.DialectWebRisk, protocol.DialectWebRisk.Endpoint, "pha-4b se-4b"},
		{protocol.DialectWebRisk, "http://127.0.0.1:1", dir + " holds lists of https://safebrowsing.googleapis.com: use -endpoint https://safebrowsing.googleapis.com -protocol v5, or another folder"},
	} {
		names, err := heldIn(dir, test.dialect.Origin(test.endpoint, ""))
		got := strings.Join(names, " ")
		if err != nil {
			got = err.Error()
		}
		if got != test.want {
			t.Errorf("%s at %s: %s, want %s", test.dialect, test.endpoint, got, test.want)
		}
	}
	if err := checkList(protocol.DialectWebRisk, "pha-4b", protocol.DialectWebRisk.Endpoint); err == nil {
		t.Error("Web Risk is asked for pha-4b")
	}
	if err := checkList(protocol.DialectV5, protocol.GlobalCache, ""); err != nil {
		t.Error(err)
	}
}

func TestUpdateLeavesOutListsThatTheProtocolDoesNotHave(t *testing.T) {
	w := newWorld(t)
	w.Publish("pha-4b", nil)
	if status, out, errOut := w.update(t, "-lists", "se-4b,pha-4b"); status != 0 {
		t.Fatalf("status %d, %s%s", status, out, errOut)
	}
	w.ClientStarted()
	status, out, errOut := w.update(t, "-protocol", "webrisk")
	if status != 0 || errOut != "" || w.plain(out) != "se-4b: updated, 2 entries, next not before TIME\n" {
		t.Errorf("status %d, %s%s", status, out, errOut)
	}
}
