package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gofrs/flock"

	"github.com/coredns-safebrowsing/safebrowsing/internal/block"
	"github.com/coredns-safebrowsing/safebrowsing/internal/config"
	"github.com/coredns-safebrowsing/safebrowsing/internal/control"
	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol"
	"github.com/coredns-safebrowsing/safebrowsing/internal/protocoltest"
	"github.com/coredns-safebrowsing/safebrowsing/internal/say"
	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
	"github.com/coredns-safebrowsing/safebrowsing/updater"
)

func TestUpdateFetchesOnceAndThenNothingIsDue(t *testing.T) {
	w := newWorld(t)
	begun := time.Now().Truncate(time.Second)
	expect(t, "text", w.plain(w.update(t).want(0).quiet().out), allUpdated)
	ended := time.Now()
	w.ClientStarted()
	out := w.update(t).want(0).quiet().out
	lines := strings.Split(strings.TrimSpace(out), "\n")
	last := lines[len(lines)-1]
	expect(t, "lines", len(lines), 4)
	testkit.WantStart(t, w.plain(last), "nothing is due before TIME, in ")
	told, err := time.ParseInLocation(say.TimeForm, stamps.FindString(last), time.Local)
	testkit.Must(t, err)
	testkit.Between(t, "nothing is due for", told.Sub(begun), time.Hour, time.Hour+ended.Sub(begun))
	out = w.update(t, "-json").want(0).quiet().out
	testkit.WantParts(t, out, `"name":"mw-4b"`, `"outcome":"waiting"`, `"entries":1`, `"not_before":"`, `"error":"`)
	expect(t, "JSON", decode[outcome](t, out), []outcome{{"mw-4b", "waiting", 1, say.Stamp(told), ""}, {"se-4b", "waiting", 2, say.Stamp(told), ""}, {"uws-4b", "waiting", 0, say.Stamp(told), ""}})
	w.wantRequests(t, "", 1)
}

// allUpdated is what update says of the lists of the server.
const allUpdated = `se-4b: updated, 2 entries, next not before TIME
mw-4b: updated, 1 entry, next not before TIME
uws-4b: updated, 0 entries, next not before TIME
`

func TestUpdateFetchesOnlyWhatIsNamedAndDue(t *testing.T) {
	w := newWorld(t)
	expect(t, "one list", w.plain(w.update(t, "-lists", "mw-4b").want(0).out), "mw-4b: updated, 1 entry, next not before TIME\n")
	w.ClientStarted()
	expect(t, "two lists", w.plain(w.update(t, "-lists", "mw-4b,se-4b").want(0).out), "mw-4b: waiting, 1 entry, next not before TIME\nse-4b: updated, 2 entries, next not before TIME\n")
}

func TestUpdateLeavesABusyFolderAlone(t *testing.T) {
	w := filled(t)
	lock := flock.New(filepath.Join(w.dir, "lock"))
	ok, err := lock.TryLock()
	testkit.Must(t, err)
	expect(t, "it is locked", ok, true)
	defer lock.Close()
	w.update(t).want(2, "the folder is in use: a running CoreDNS updates its lists by itself").mute()
}

func TestUpdateThatFails(t *testing.T) {
	w := newWorld(t)
	w.Break("update", 1, protocoltest.Fault{Status: http.StatusForbidden})
	expect(t, "text", w.plain(w.update(t, "-lists", "se-4b").want(2, "403").out), "se-4b: waiting, 0 entries, next not before TIME\n")
	w.ClientStarted()
	for _, flags := range [][]string{{"-lists", "se-4b"}, {"-lists", "se-4b", "-json"}} {
		s := w.update(t, flags...).want(1, "403")
		testkit.WantParts(t, w.plain(s.errOut), "safebrowsing: nothing is due before TIME, in ", ", also with -now: back-off after a failure at TIME: ")
		expect(t, "lines during the back-off", strings.Count(s.out, "\n"), 1)
	}
	w.wantRequests(t, "", 1)
	expect(t, "failures", w.lists(t)[0].Failures, 1)
}

func TestUpdateOfWhichAListIsRejected(t *testing.T) {
	w := newWorld(t)
	w.Break("update", 1, protocoltest.ListFaults()["wrong checksum"])
	got := decode[outcome](t, w.update(t, "-json", "-lists", "se-4b").want(1).quiet().out)[0]
	expect(t, "outcome with the error "+string(got.Error), got.Outcome, "rejected")
	expect(t, "there is an error", got.Error != "", true)
}

func TestUpdateWaitsForTheFirstContactUnlessToldNotTo(t *testing.T) {
	for range 4 { // one time in 300 the delay is shorter
		w := newWorld(t)
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		s := runIn(ctx, t, nil, "update", "-db", w.dir, "-endpoint", w.endpoint)
		if strings.Contains(s.errOut, context.DeadlineExceeded.Error()) && len(w.Requests("")) == 0 {
			w.update(t).want(0)
			return
		}
	}
	t.Error("it never waited")
}

func TestOnlyAPersonIsToldOfTheDelay(t *testing.T) {
	file, err := os.Create(filepath.Join(t.TempDir(), "log"))
	testkit.Must(t, err)
	defer file.Close()
	expect(t, "a buffer, a file", [2]bool{control.IsTerminal(new(testkit.Output)), control.IsTerminal(file)}, [2]bool{})
	terminal, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Skip("this system opens no terminals: ", err)
	}
	defer terminal.Close()
	expect(t, "it is a terminal", control.IsTerminal(terminal), true)
}

func TestUpdateByACorefile(t *testing.T) {
	w := newWorld(t)
	w.SetKey("OWN")
	w.SetMinimumWait("pha-4b", time.Hour)
	w.Publish("pha-4b", nil)
	block := " {\n safebrowsing {\n  api_key OWN\n  endpoint ENDPOINT\n  db DB\n  lists se-4b pha-4b\n }\n}\n"
	corefile := w.corefile(t, "a.example"+block+"b.example"+block+"c.example {\n safebrowsing {\n  block OWN(x.example)\n }\n}\n")
	out := run(t, "update", "-now", "-corefile", corefile).want(0).out
	expect(t, "text", w.plain(out), "se-4b: updated, 2 entries, next not before TIME\npha-4b: updated, 0 entries, next not before TIME\n")
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
	got := decode[outcome](t, run(t, "update", "-json", "-now", "-corefile", corefile).out)
	expect(t, "lists", len(got), 1)
	testkit.Between(t, "entries", got[0].Entries, 0, 2000)
	w.wantRequests(t, "update", 1)
	expect(t, "limit", w.Requests("update")[0].MaxDatabase, 2000)
}

func TestCorefilesWithoutOneFolder(t *testing.T) {
	w := newWorld(t)
	stanza := func(zone, properties string) string {
		return zone + " {\n safebrowsing {\n" + strings.ReplaceAll(properties, ", ", "\n") + "\n }\n}\n"
	}
	two := stanza("a.example", "endpoint ENDPOINT, db DB") + stanza("b.example", "endpoint ENDPOINT, db DB/b")
	for name, test := range map[string]struct{ corefile, update string }{
		"own lists only": {stanza(".", "block OWN(a.example), db DB"), "DIR/Corefile has no API key and no endpoint: only your own lists are in force"},
		"db off":         {stanza(".", "endpoint ENDPOINT, db off"), "DIR/Corefile:2 has db off"},
		"nostorage":      {stanza(".", "endpoint ENDPOINT, mode nostorage"), "DIR/Corefile:2 has mode nostorage"},
		"two folders":    {two, "DIR/Corefile has several settings for Safe Browsing, DIR/Corefile:2 (db DB) and DIR/Corefile:8 (db DB/b): select one with -db"},
	} {
		corefile := w.corefile(t, test.corefile)
		s := run(t, "update", "-corefile", corefile).want(2)
		s.mute()
		testkit.WantStart(t, name+": "+w.plain(s.errOut, filepath.Dir(corefile)), name+": safebrowsing: "+test.update)
	}
	w.wantRequests(t, "", 0)
	expect(t, "a folder was made", exists(w.dir), false)
}

// riskCorefile is a Corefile for Web Risk with these properties. KEY is the key.
func (w *world) riskCorefile(t *testing.T, properties string) string {
	t.Helper()
	return w.corefile(t, ". {\n safebrowsing {\n  protocol webrisk\n  endpoint ENDPOINT\n  db DB\n  "+strings.ReplaceAll(properties, "; ", "\n  ")+"\n }\n}\n")
}

func TestUpdateByWebRiskAndOnByVersion5(t *testing.T) {
	w := newWorld(t)
	w.SetKey("OWN")
	t.Setenv(config.KeyVariable, "OWN")
	w.wantUpdateOn(t, "webrisk", "computeDiff", 3, "updated", 0) // the services do not know each other's versions
}

// wantUpdateOn wants an update by a protocol, in this number of requests, and one by version 5 that says so and has this number of versions.
func (w *world) wantUpdateOn(t *testing.T, protocol, method string, requests int, says string, versions int) {
	t.Helper()
	expect(t, "text", w.plain(w.update(t, "-protocol", protocol).want(0).quiet().out), allUpdated)
	w.wantRequests(t, method, requests)
	w.wantRequests(t, "", requests)
	w.wantVerified(t, 3)
	w.ClientStarted()
	w.update(t, "-protocol", protocol).want(0, "nothing is due before ")
	w.update(t).want(0, "se-4b: "+says+", 2 entries")
	w.wantRequests(t, "batchGet", 1)
	expect(t, "versions in it", len(w.Requests("batchGet")[0].Versions), versions)
}

func TestUpdateThatWebRiskRefusesSaysUntilWhenForEachList(t *testing.T) {
	w := newWorld(t)
	w.Break("computeDiff", 1, protocoltest.Fault{Status: http.StatusForbidden})
	out := run(t, "update", "-now", "-corefile", w.riskCorefile(t, "api_key K; budget 5")).want(2, "status 403").out
	const waits = ": waiting, 0 entries, next not before TIME\n"
	expect(t, "text", w.plain(out), "se-4b"+waits+"mw-4b"+waits+"uws-4b"+waits)
	w.wantRequests(t, "", 1)
}

func TestUpdateTakesATokenFromACorefile(t *testing.T) {
	w := newWorld(t)
	w.SetToken("TOKEN")
	corefile := w.riskCorefile(t, "token_file "+testkit.Write(t, t.TempDir(), "token", "TOKEN\n")+"; budget 5; lists se-4b se-ext-4b")
	w.Publish("se-ext-4b", [][]byte{{1, 2, 3, 4}})
	run(t, "update", "-now", "-corefile", corefile).want(0, "se-ext-4b: updated, 1 entry").quiet()
	w.wantVerified(t, 2)
}

// fetchInto fetches lists into a folder, once.
func fetchInto(t *testing.T, dir string, source updater.Source, origin updater.Origin, lists ...string) {
	t.Helper()
	store, err := updater.OpenStore(dir, origin)
	testkit.Must(t, err)
	schedule, err := updater.NewSchedule(store)
	testkit.Must(t, err)
	u, err := updater.New(updater.Config{
		Source: source, Database: new(lookup.Database), Schedule: schedule, Store: store, Lists: lists,
		FirstContact: func() time.Duration { return 0 },
	})
	testkit.Must(t, err)
	testkit.Must(t, u.Once(t.Context()))
}

// A folder with lists of Safe Browsing can be used with Web Risk, which has a server of its own.
func TestAFolderMovesToTheOtherServiceOfGoogle(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "db")
	w := newWorld(t)
	w.Publish("pha-4b", nil)
	o := block.New(configOf("", protocol.DialectV5, "K", []string{"se-4b", "pha-4b"}))
	client, err := o.Settings.Client(o.Config.Secret, new(lookup.Database), w.Server) // as if it came from Google
	testkit.Must(t, err)
	fetchInto(t, dir, client, o.Settings.Origin(o.Config.Secret), "se-4b", "pha-4b")
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
		if err != nil {
			names = []string{err.Error()}
		}
		expect(t, fmt.Sprint(test.dialect, " at ", test.endpoint), strings.Join(names, " "), test.want)
	}
	testkit.WantError(t, checkList(protocol.DialectWebRisk, "pha-4b", protocol.DialectWebRisk.Endpoint))
	testkit.Must(t, checkList(protocol.DialectV5, protocol.GlobalCache, ""))
}

func TestUpdateLeavesOutListsThatTheProtocolDoesNotHave(t *testing.T) {
	w := newWorld(t)
	w.Publish("pha-4b", nil)
	w.update(t, "-lists", "se-4b,pha-4b").want(0)
	w.ClientStarted()
	expect(t, "text", w.plain(w.update(t, "-protocol", "webrisk").want(0).quiet().out), "se-4b: updated, 2 entries, next not before TIME\n")
}
