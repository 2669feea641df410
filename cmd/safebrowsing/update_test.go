package main

import (
	"context"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gofrs/flock"

	"github.com/coredns-safebrowsing/safebrowsing/internal/config"
	"github.com/coredns-safebrowsing/safebrowsing/internal/control"
	"github.com/coredns-safebrowsing/safebrowsing/internal/protocoltest"
	"github.com/coredns-safebrowsing/safebrowsing/internal/say"
	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
	"github.com/coredns-safebrowsing/safebrowsing/updater"
)

func TestUpdateFetchesOnceAndThenNothingIsDue(t *testing.T) {
	w := newWorld(t)
	status, out, errOut := w.update(t)
	if status != 0 || errOut != "" {
		t.Errorf("status %d, %q", status, errOut)
	}
	expect(t, "text", w.plain(out), `se-4b: updated, 2 entries, next not before TIME
mw-4b: updated, 1 entry, next not before TIME
uws-4b: updated, 0 entries, next not before TIME
`)
	until := time.Now().Add(time.Hour)
	w.ClientStarted()
	status, out, errOut = w.update(t)
	lines := strings.Split(strings.TrimSpace(out), "\n")
	last := lines[len(lines)-1]
	if status != 0 || errOut != "" || len(lines) != 4 || !strings.HasPrefix(w.plain(last), "nothing is due before TIME, in ") {
		t.Errorf("the second time: status %d, %q, %s", status, errOut, out)
	}
	told, err := time.ParseInLocation(say.TimeForm, stamps.FindString(last), time.Local)
	if err != nil || told.Sub(until).Abs() > 10*time.Second {
		t.Errorf("nothing due until %s, %v, want %s", told, err, until)
	}
	status, out, errOut = w.update(t, "-json")
	if status != 0 || errOut != "" {
		t.Errorf("in JSON: status %d, %q", status, errOut)
	}
	first, _, _ := strings.Cut(out, "\n")
	expect(t, "keys", keys(first), "name outcome entries not_before error")
	for i, want := range []outcome{{"mw-4b", "waiting", 1, say.Stamp(told), ""}, {"se-4b", "waiting", 2, say.Stamp(told), ""}, {"uws-4b", "waiting", 0, say.Stamp(told), ""}} {
		if got := decode[outcome](t, out)[i]; got != want {
			t.Errorf("got %+v, want %+v", got, want)
		}
	}
	if n := len(w.Requests("")); n != 1 {
		t.Errorf("%d requests, want one", n)
	}
}

func TestUpdateFetchesOnlyWhatIsNamedAndDue(t *testing.T) {
	w := newWorld(t)
	if status, out, errOut := w.update(t, "-lists", "mw-4b"); status != 0 || strings.Count(out, "\n") != 1 {
		t.Errorf("status %d, %s%s", status, out, errOut)
	}
	w.ClientStarted()
	status, out, _ := w.update(t, "-lists", "mw-4b,se-4b")
	if status != 0 || w.plain(out) != "mw-4b: waiting, 1 entry, next not before TIME\nse-4b: updated, 2 entries, next not before TIME\n" {
		t.Errorf("status %d, %s", status, out)
	}
}

func TestUpdateLeavesABusyFolderAlone(t *testing.T) {
	w := filled(t)
	lock := flock.New(filepath.Join(w.dir, "lock"))
	if ok, err := lock.TryLock(); !ok || err != nil {
		t.Fatal(ok, err)
	}
	defer lock.Close()
	if status, out, errOut := w.update(t); status != 2 || out != "" || !strings.Contains(errOut, "the folder is in use: a running CoreDNS updates its lists by itself") {
		t.Errorf("status %d, %s%s", status, out, errOut)
	}
}

func TestUpdateThatFails(t *testing.T) {
	w := newWorld(t)
	w.Break("update", 1, protocoltest.Fault{Status: http.StatusForbidden})
	status, out, errOut := w.update(t, "-lists", "se-4b")
	if status != 2 || !strings.Contains(errOut, "403") || w.plain(out) != "se-4b: waiting, 0 entries, next not before TIME\n" {
		t.Errorf("status %d, %s%s", status, out, errOut)
	}
	w.ClientStarted()
	for _, flags := range [][]string{{"-lists", "se-4b"}, {"-lists", "se-4b", "-json"}} {
		status, out, errOut := w.update(t, flags...)
		if status != 1 || !strings.HasPrefix(w.plain(errOut), "safebrowsing: nothing is due before TIME, in ") || !strings.Contains(w.plain(errOut), ", also with -now: back-off after a failure at TIME: ") || !strings.Contains(errOut, "403") || strings.Count(out, "\n") != 1 {
			t.Errorf("during the back-off: status %d, %s%s", status, out, errOut)
		}
	}
	if n := len(w.Requests("")); n != 1 {
		t.Errorf("%d requests, want one", n)
	}
	if all := w.lists(t); len(all) == 0 || slices.ContainsFunc(all, func(l updater.ListStatus) bool { return l.Failures == 0 }) {
		t.Errorf("%+v", all)
	}
}

func TestUpdateOfWhichAListIsRejected(t *testing.T) {
	w := newWorld(t)
	w.Break("update", 1, protocoltest.ListFaults()["wrong checksum"])
	status, out, errOut := w.update(t, "-json", "-lists", "se-4b")
	got := decode[outcome](t, out)[0]
	if status != 1 || got.Outcome != "rejected" || got.Error == "" || errOut != "" {
		t.Errorf("status %d, %+v, %s", status, got, errOut)
	}
}

func TestUpdateLeavesListsOfAnotherServerAlone(t *testing.T) {
	w := filled(t)
	status, _, errOut := invoke(t, "update", "-now", "-db", w.dir, "-endpoint", "http://127.0.0.1:1")
	if status != 2 || !strings.Contains(w.plain(errOut), "DB holds lists of ENDPOINT: use -endpoint ENDPOINT -protocol v5, or another folder") {
		t.Errorf("status %d, %s", status, errOut)
	}
}

func TestUpdateSendsTheKeyOfTheEnvironment(t *testing.T) {
	w := newWorld(t)
	w.SetKey("OWN")
	t.Setenv(config.KeyVariable, "OWN")
	if status, _, errOut := w.update(t); status != 0 {
		t.Errorf("status %d, %s", status, errOut)
	}
}

func TestUpdateWaitsForTheFirstContactUnlessToldNotTo(t *testing.T) {
	w := newWorld(t)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	var out, errOut testkit.Output
	c := command()
	c.Writer, c.ErrWriter = &out, &errOut
	err := c.Run(ctx, []string{"safebrowsing", "update", "-db", w.dir, "-endpoint", w.endpoint})
	// One time in 6000 the delay is shorter than 10 ms, and then the lists come.
	if !errors.Is(err, context.DeadlineExceeded) && err != nil {
		t.Errorf("got %v, want that it still waited", err)
	}
	if status, _, errOut := w.update(t); err != nil && status != 0 {
		t.Errorf("after it was stopped: %d, %s", status, errOut)
	}
}

func TestOnlyAPersonIsToldOfTheDelay(t *testing.T) {
	file, err := os.Create(filepath.Join(t.TempDir(), "log"))
	testkit.Must(t, err)
	defer file.Close()
	if control.IsTerminal(new(testkit.Output)) || control.IsTerminal(file) {
		t.Error("a buffer or a file was taken for a terminal")
	}
	terminal, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Skip("this system opens no terminals: ", err)
	}
	defer terminal.Close()
	if !control.IsTerminal(terminal) {
		t.Error("a terminal was not recognized")
	}
}

func TestUpdateByACorefile(t *testing.T) {
	w := newWorld(t)
	w.SetKey("OWN")
	w.SetMinimumWait("pha-4b", time.Hour)
	w.Publish("pha-4b", nil)
	block := " {\n safebrowsing {\n  api_key OWN\n  endpoint ENDPOINT\n  db DB\n  lists se-4b pha-4b\n }\n}\n"
	corefile := w.corefile(t, "a.example"+block+"b.example"+block+"c.example {\n safebrowsing {\n  block OWN(x.example)\n }\n}\n")
	status, out, errOut := invoke(t, "update", "-now", "-corefile", corefile)
	if status != 0 || errOut != "" || w.plain(out) != "se-4b: updated, 2 entries, next not before TIME\npha-4b: updated, 0 entries, next not before TIME\n" {
		t.Errorf("status %d, %s%s", status, out, errOut)
	}
	w.wantVerified(t, 2)
}

// The request has the limit of the Corefile, and the limit holds if the server ignores it.
func TestUpdateKeepsToTheLimitOfTheCorefile(t *testing.T) {
	w := newWorld(t)
	var many [][]byte
	for i := range 3000 {
		many = append(many, []byte{byte(i >> 8), byte(i), 0, 1})
	}
	w.Publish("uws-4b", many)
	corefile := w.corefile(t, ". {\n safebrowsing {\n  endpoint ENDPOINT\n  db DB\n  lists uws-4b\n  max_entries 2000\n }\n}\n")
	_, out, errOut := invoke(t, "update", "-json", "-now", "-corefile", corefile)
	if got := decode[outcome](t, out); len(got) != 1 || got[0].Entries > 2000 {
		t.Errorf("%+v, %s", got, errOut)
	}
	if asked := w.Requests("update"); len(asked) != 1 || asked[0].MaxDatabase != 2000 {
		t.Errorf("asked for %+v", asked)
	}
}

func TestCorefilesWithoutOneFolder(t *testing.T) {
	w := newWorld(t)
	stanza := func(zone, properties string) string {
		return zone + " {\n safebrowsing {\n" + strings.ReplaceAll(properties, ", ", "\n") + "\n }\n}\n"
	}
	two := stanza("a.example", "endpoint ENDPOINT, db DB") + stanza("b.example", "endpoint ENDPOINT, db DB/b")
	for name, test := range map[string]struct {
		corefile, update string
	}{
		"own lists only": {stanza(".", "block OWN(a.example), db DB"), "DIR/Corefile has no API key and no endpoint: only your own lists are in force"},
		"db off":         {stanza(".", "endpoint ENDPOINT, db off"), "DIR/Corefile:2 has db off"},
		"nostorage":      {stanza(".", "endpoint ENDPOINT, mode nostorage"), "DIR/Corefile:2 has mode nostorage"},
		"two folders":    {two, "DIR/Corefile has several settings for Safe Browsing, DIR/Corefile:2 (db DB) and DIR/Corefile:8 (db DB/b): select one with -db"},
	} {
		corefile := w.corefile(t, test.corefile)
		status, out, errOut := invoke(t, "update", "-corefile", corefile)
		if status != 2 || out != "" || !strings.HasPrefix(w.plain(errOut, filepath.Dir(corefile)), "safebrowsing: "+test.update) {
			t.Errorf("%s: status %d, %s%s, want %s", name, status, out, errOut, test.update)
		}
	}
	if n := len(w.Requests("")); n != 0 {
		t.Errorf("%d requests", n)
	}
	if _, err := os.Stat(w.dir); err == nil {
		t.Error("a folder was made")
	}
}
