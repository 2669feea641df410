package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/block"
	"github.com/coredns-safebrowsing/safebrowsing/internal/protocoltest"
	"github.com/coredns-safebrowsing/safebrowsing/internal/say"
	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
)

func TestDoctorOfAnEndpoint(t *testing.T) {
	w := newWorld(t)
	w.SetKey("SECRET")
	key := testkit.Write(t, t.TempDir(), "key", "SECRET\n")
	out := run(t, "doctor", "-endpoint", w.endpoint, "-api-key-file", key).want(0).quiet().out
	expect(t, "doctor", seconds.ReplaceAllString(w.plain(out), "Ns"), `ok       key       present
ok       resolve   the endpoint is an IP address: there is no name to resolve
ok       tls       not used: the server is on this machine
ok       server    it accepts the key and offers 3 lists
ok       clock     Ns from the server's
ok       lists     se-4b 2 entries, mw-4b 1 entry, uws-4b 0 entries; updates every 1h0mNs
ok       confirm   the first entry of se-4b: 0 threats, to be cached for 5mNs

0 problems, 0 warnings
`)
	w.wantRequests(t, "", 3) // for the names and the lists, and a search
}

// What is wrong with a relay is found from the machine of a client.
func TestDoctorOfAnEndpointInTrouble(t *testing.T) {
	fault := func(method string, f protocoltest.Fault) func(*world) {
		return func(w *world) { w.Break(method, 1, f) }
	}
	for name, test := range map[string]struct {
		set               func(w *world)
		flags             []string
		check, want, text string // its status, and a part of its text or advice
	}{
		"no key":               {func(w *world) { w.SetKey("SECRET") }, nil, "server", isProblem, "status 403"},
		"a list that it lacks": {nil, []string{"-lists", "se-4b,pha-4b"}, "server", isProblem, "it does not have pha-4b → correct lists, or add these on the server"},
		"one list":             {nil, []string{"-lists", "mw-4b"}, "lists", isOK, "mw-4b 1 entry; updates every 1h0m0s"},
		"nothing in the lists": {nil, []string{"-lists", "uws-4b"}, "lists", isProblem, "they protect from nothing"},
		"nothing to confirm":   {nil, []string{"-lists", "uws-4b"}, "confirm", isSkipped, "no entry to confirm"},
		"lists are refused":    {fault("update", protocoltest.Fault{Status: http.StatusServiceUnavailable}), nil, "lists", isProblem, "status 503"},
		"a budget is spent":    {fault("search", protocoltest.Fault{Status: http.StatusTooManyRequests, RetryAfter: time.Hour}), nil, "confirm", isProblem, "suspected names pass for 1h0m0s; raise the server's limit or budget"},
		"a back-off":           {fault("search", protocoltest.Fault{Status: http.StatusServiceUnavailable}), nil, "confirm", isProblem, "suspected names pass until it answers; the log of the server says why"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			if test.set != nil {
				test.set(w)
			}
			_, found, _ := examine(t, "", append([]string{"-endpoint", w.endpoint}, test.flags...)...)
			wantIs(t, found[test.check], test.want, test.text)
		})
	}
}

// Several endpoints are examined one after the other, and the resolvers once.
func TestDoctorOfSeveralEndpoints(t *testing.T) {
	w := newWorld(t)
	server := untrusted(t, w.Server)
	out := run(t, "doctor", "-endpoint", server.URL+",https://relay1.internal:1,https://relay2.internal:1", "-endpoint-ca", authority(t, server), "-resolver", "127.0.0.1:1").want(1).quiet().out
	for line, times := range map[string]int{
		"ok       lists     " + server.URL + ": se-4b 2 entries": 1,
		"ok       tls       " + server.URL + ": TLS 1.3 with ":   1,
		"problem  resolve   https://relay1.internal:1: ":         1,
		"problem  resolve   https://relay2.internal:1: ":         1,
		"loop      the server's name is resolved":                1,
		" folder ": 0,
	} {
		expect(t, "times "+line+" in\n"+out, strings.Count(out, line), times)
	}
}

// The advice is about flags, not about a Corefile that is not there.
func TestDoctorOfAnEndpointSpeaksOfFlags(t *testing.T) {
	w := newWorld(t)
	encrypted := untrusted(t, w.Server)
	page := httptest.NewServer(http.NotFoundHandler())
	defer page.Close()
	for args, want := range map[string]string{
		"-endpoint " + encrypted.URL:                             "name the server's own authority with tls or -endpoint-ca",
		"-endpoint " + page.URL:                                  "correct endpoint, or protocol",
		"-endpoint http://relay.internal -resolver 127.0.0.1:1":  "set resolver to one that works, such as 9.9.9.9",
		"-offline -endpoint " + w.endpoint:                       "ok       key       none, for a server of your own",
		"-offline -endpoint https://safebrowsing.googleapis.com": "give a key with api_key_file FILE, or with $SAFEBROWSING_API_KEY; enable",
	} {
		status := map[bool]int{false: 1}[strings.HasSuffix(args, w.endpoint)]
		s := run(t, append([]string{"doctor"}, strings.Fields(args)...)...).want(status, want).not("stanza")
		if strings.HasPrefix(args, "-offline") {
			s.not(" lists ")
		}
	}
	w.wantRequests(t, "", 0)
}

func TestTheFolderOfSeveralEndpointsIsThatOfTheirSet(t *testing.T) {
	w := newWorld(t)
	one := w.endpoint
	w.endpoint = "http://127.0.0.1:1 " + one + "/" // the first one is down
	w.update(t).want(0)
	w.ClientStarted()
	both := "'http://127.0.0.1:1 " + one + "'"
	if a, b, _ := strings.Cut(strings.Trim(both, "'"), " "); a > b {
		both = "'" + b + " " + a + "'"
	}
	run(t, "update", "-now", "-db", w.dir, "-endpoint", one).want(2, "use -endpoint "+both)
	run(t, "update", "-now", "-db", w.dir, "-protocol", "webrisk", "-endpoint", w.endpoint).want(2, "protocol webrisk asks one server")
}

func TestTheDoctorWarnsOfAPause(t *testing.T) {
	ownWorld(t, "block block.txt")
	t.Setenv("STATE_DIRECTORY", "state")
	testkit.Must(t, os.Mkdir("state", 0o700))
	run(t, "doctor", "-offline", "-corefile", "Corefile").not("pause")
	for _, tt := range []struct{ zone, want string }{
		{"all", "warning  pause     all server blocks block nothing until TIME, or until CoreDNS is restarted, by state/paused\n                   → safebrowsing resume ends it when CoreDNS runs"},
		{".", "warning  pause     the server blocks for . block nothing until TIME, by state/paused"},
	} {
		write(t, "state/paused", string(block.FormatPauses([]block.Pause{{Zone: tt.zone, From: time.Now(), Until: time.Now().Add(time.Hour), Keep: tt.zone == "."}})))
		testkit.WantParts(t, wordedTimes(run(t, "doctor", "-offline", "-corefile", "Corefile").out), tt.want+"\n")
	}
	write(t, "state/paused", "nonsense\n")
	run(t, "doctor", "-offline", "-corefile", "Corefile").want(0, `state/paused pauses nothing: the line "nonsense" is not a pause`, "→ start CoreDNS, and run safebrowsing resume, which writes it again\n")
}

// protocolsOfOthers are lines of protocols in files of their own.
var protocolsOfOthers []string

// A server that takes the connection and never answers keeps nobody waiting for long.
func TestTheDoctorGivesUpOnAServerThatNeverAnswers(t *testing.T) {
	for _, of := range append(protocolsOfOthers, "", "protocol webrisk\nbudget 5\n") {
		corefile := t.TempDir() + "/Corefile"
		write(t, corefile, fmt.Sprintf(". {\nsafebrowsing {\nendpoint http://192.0.2.1\n%sdb off\n}\n}\n", of))
		blocks := blocksOf(t, corefile)
		synctest.Test(t, func(t *testing.T) {
			var out strings.Builder
			var silent sync.WaitGroup
			e := &examination{Doctor: say.Doctor{W: &out}, dial: func(context.Context, string, string) (net.Conn, error) {
				ours, theirs := net.Pipe()
				silent.Go(func() { io.Copy(io.Discard, theirs) })
				return ours, nil
			}}
			ctx, cancel := context.WithTimeout(t.Context(), 100*serverTimeout)
			defer cancel()
			begun := time.Now()
			e.server(ctx, blocks[0].Block, "http://192.0.2.1")
			testkit.Between(t, of+"the doctor waited", time.Since(begun), 0, 2*serverTimeout)
			testkit.WantParts(t, out.String(), isProblem)
			silent.Wait()
		})
	}
}

func TestDoctorSaysWhatIsLeftOfTheBudget(t *testing.T) {
	testkit.Long(t)
	today := time.Now().Format(time.DateOnly)
	spent := func(n int) string { return fmt.Sprintf(`{"day":%q,"spent":{%q:%d}}`, today, today, n) }
	for name, test := range map[string]struct {
		properties string
		file       string // "": none
		diagnosis         // without the check
	}{
		"nothing is spent":  {"budget 5", "", diagnosis{"", isOK, "0 of 5 searches of today are spent or reserved; the next day begins at TIME", ""}},
		"some are spent":    {"budget 5", spent(3), diagnosis{"", isOK, "3 of 5 searches of today are spent or reserved; the next day begins at TIME", ""}},
		"most are spent":    {"budget 5", spent(4), diagnosis{"", isWarning, "4 of 5 searches of today are spent or reserved; the next day begins at TIME", "raise budget in the Corefile if this happens often"}},
		"all are spent":     {"budget 5", spent(5), diagnosis{"", isProblem, "all of the 5 searches of today are spent: suspected names pass until TIME", "raise budget in the Corefile, or wait"}},
		"an hour's part":    {"budget 400", fmt.Sprintf(`{"day":%q,"spent":{%q:100},"recent":{%q:100}}`, today, today, time.Now().UTC().Truncate(5*time.Minute).Format("2006-01-02T15:04Z")), diagnosis{"", isWarning, "in part: the 100 searches that one hour may take of the day's 400 are spent, and 300 are left for later today: suspected names pass until TIME", "raise budget in the Corefile if this happens often"}},
		"of another day":    {"budget 5", `{"day":"2026-01-02","spent":{"2026-01-02":5}}`, diagnosis{"", isOK, "0 of 5 searches of today are spent or reserved; the next day begins at TIME", ""}},
		"unknown":           {"budget 5", "{", diagnosis{"", isProblem, "", "wait; or stop CoreDNS, delete the file and start CoreDNS: then the day begins with the whole budget"}},
		"unlimited":         {"budget unlimited", spent(5), diagnosis{"", isWarning, "unlimited: each search costs money, and one client that asks for random names causes as many as limit allows", "replace budget unlimited by budget COUNT, the most searches a day"}},
		"kept in memory":    {"budget 1; db off", "", diagnosis{"", isSkipped, "1 search a day; only CoreDNS knows how many are spent: see the metric coredns_safebrowsing_budget_remaining", ""}},
		"of Safe Browsing":  {"budget 5; protocol v5", spent(3), diagnosis{"", isOK, "0 of 5 searches of today are spent or reserved; the next day begins at TIME", ""}},
		"none, of the same": {"protocol v5", spent(3), diagnosis{}},
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
				run(t, "update", "-now", "-corefile", corefile).want(0)
			}
			if test.file != "" {
				write(t, filepath.Join(w.dir, "budget-webrisk.json"), test.file)
			}
			_, found, out := examine(t, corefile, "-offline")
			got, want := found["budget"], test.diagnosis
			got.Text = text(w.plain(string(got.Text)))
			got.Check, want.Text = "", cmp.Or(want.Text, got.Text)
			expect(t, out, got, want)
			switch name {
			case "unknown":
				testkit.WantStart(t, string(got.Text), "the number of searches spent today is unknown: the file stays as it is: DB/budget-webrisk.json: damaged file")
			case "kept in memory":
				testkit.WantParts(t, string(found["corefile"].Text), "db is off: the budget is kept in memory")
			}
			wantIs(t, found["confirm"], "") // it would be said twice
		})
	}
}

// Web Risk has no request that is free and needs no wait. So the doctor sends none with the key, and says what CoreDNS has noted.
func TestDoctorOfWebRisk(t *testing.T) {
	const (
		billing = "and that the project has a billing account"
		unknown = "it answers; whether it accepts the API key is not known yet: Web Risk has no request to try it with"
	)
	for name, test := range map[string]struct {
		before            func(w *world, corefile string)
		flags             []string
		status            int
		check, want, text string // its status, and a part of its text or advice
	}{
		"before the first update": {func(*world, string) {}, nil, 0, "server", isWarning, unknown + " → start CoreDNS, or run safebrowsing update"},
		"the clock is looked at":  {func(*world, string) {}, nil, 0, "clock", isOK, "from the server's"},
		"after an update": {func(w *world, corefile string) { run(t, "update", "-now", "-corefile", corefile).want(0) }, nil, 0, "server", isOK,
			"it answers, and it accepted the API key at the last update of the lists"},
		"after an update that was refused": {func(w *world, corefile string) {
			w.Break("computeDiff", 1, protocoltest.Fault{Status: http.StatusForbidden})
			run(t, "update", "-now", "-corefile", corefile).want(2)
		}, nil, 1, "server", isProblem, billing},
		"after an update that was refused, and the same key was written again": {func(w *world, corefile string) {
			key := testkit.Write(t, filepath.Dir(corefile), "key", "SECRET\n")
			write(t, corefile, strings.Replace(read(t, corefile), "api_key SECRET", "api_key_file "+key, 1))
			w.Break("computeDiff", 1, protocoltest.Fault{Status: http.StatusForbidden})
			run(t, "update", "-now", "-corefile", corefile).want(2)
			later := time.Now().Add(time.Minute)
			testkit.Must(t, os.Chtimes(key, later, later))
		}, nil, 1, "server", isProblem, billing},
		"lists in force, but the last update was refused": {func(w *world, corefile string) {
			v5 := filepath.Join(filepath.Dir(corefile), "v5")
			write(t, v5, strings.NewReplacer("protocol webrisk", "protocol v5", "budget 5", "").Replace(read(t, corefile)))
			run(t, "update", "-now", "-corefile", v5).want(0)
			w.Break("computeDiff", 1, protocoltest.Fault{Status: http.StatusForbidden})
			run(t, "update", "-now", "-corefile", corefile).want(2)
		}, []string{"-offline"}, 0, "lists", isWarning, "3 of 3 in force, 3 entries, but not updated at present; not asked before "},
		"offline": {func(*world, string) {}, []string{"-offline"}, 0, "server", isSkipped, "-offline"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.SetKey("SECRET")
			corefile := w.riskCorefile(t, "api_key SECRET; budget 5")
			test.before(w, corefile)
			before := len(w.Requests(""))
			status, found, _ := examine(t, corefile, test.flags...)
			expect(t, "status", status, test.status)
			wantIs(t, found[test.check], test.want, test.text)
			for _, r := range w.Requests("")[before:] {
				expect(t, "the method of a request", r.Method, "")
			}
		})
	}
}

func TestDoctorSendsWebRiskNoKey(t *testing.T) {
	var asked []*http.Request
	server := testkit.MortalServer(t, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		asked = append(asked, r)
		rw.WriteHeader(http.StatusNotFound)
	}))
	server.Start()
	w := newWorld(t)
	w.endpoint = server.URL
	_, found, _ := examine(t, w.riskCorefile(t, "api_key SECRET; budget 5"))
	server.Close() // waits for the handler
	expect(t, "requests", len(asked), 1)
	expect(t, "path and key", [2]string{asked[0].URL.Path, asked[0].Header.Get("X-Goog-Api-Key")}, [2]string{"/", ""})
	testkit.WantStart(t, asked[0].UserAgent(), "coredns-safebrowsing/")
	wantIs(t, found["server"], isWarning)
	_, found, _ = examine(t, w.riskCorefile(t, "api_key SECRET; budget 5")) // nobody listens
	wantIs(t, found["server"], isProblem, "no answer from "+server.URL, "→ start the server there")
}

func TestDoctorOfAToken(t *testing.T) {
	w := newWorld(t)
	w.SetToken("FRESH")
	file := filepath.Join(t.TempDir(), "token")
	corefile := w.riskCorefile(t, "token_file "+file+"; budget 5")
	_, found, _ := examine(t, corefile)
	wantIs(t, found["corefile"], isProblem, "token_file: open "+file, "or the file that the line names")
	renew := "put a new token into " + file + ", and let a job do so every hour; CoreDNS uses it within 5 seconds"
	write(t, file, "STALE\n")
	long := time.Now().Add(-61 * time.Minute)
	testkit.Must(t, os.Chtimes(file, long, long))
	_, found, _ = examine(t, corefile, "-offline")
	expect(t, "key", found["key"], diagnosis{"key", isWarning, text("the token in " + file + " was written 1h1m ago, and tokens last an hour"), text(renew)})
	run(t, "update", "-now", "-corefile", corefile).want(2).not("STALE")
	_, found, _ = examine(t, corefile)
	wantIs(t, found["server"], isProblem, "status 401", "→ "+renew)
	write(t, file, "FRESH\n")
	_, found, _ = examine(t, corefile)
	expect(t, "a new token", found["key"], (diagnosis{"key", isOK, text("a token, in " + file), ""}))
	wantIs(t, found["server"], isWarning, "whether it accepts the token is not known yet")
}
