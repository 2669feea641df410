package main

import (
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
	key := filepath.Join(t.TempDir(), "key")
	write(t, key, "SECRET\n")
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
	if n := len(w.Requests("")); n != 3 {
		t.Errorf("%d requests, want one for the names, one for the lists and one search", n)
	}
}

// What is wrong with a relay is found from the machine of a client.
func TestDoctorOfAnEndpointInTrouble(t *testing.T) {
	fault := func(method string, f protocoltest.Fault) func(*world) {
		return func(w *world) { w.Break(method, 1, f) }
	}
	for name, test := range map[string]struct {
		set   func(w *world)
		flags []string
		check string
		want  string // status of the check
		text  string // in its text or advice
	}{
		"no key":               {func(w *world) { w.SetKey("SECRET") }, nil, "server", isProblem, "status 403"},
		"a list that it lacks": {nil, []string{"-lists", "se-4b,pha-4b"}, "server", isProblem, "it does not have pha-4b correct lists, or have the server keep these, too"},
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
			status, out, errOut := invoke(t, append([]string{"doctor", "-json", "-endpoint", w.endpoint}, test.flags...)...)
			var found diagnosis
			bad := false
			for _, d := range decode[diagnosis](t, out) {
				bad = bad || d.Status == isProblem
				if d.Check == test.check {
					found = d
				}
			}
			if found.Status != test.want || !strings.Contains(string(found.Text+" "+found.Advice), test.text) || (status == 1) != bad || errOut != "" {
				t.Errorf("status %d, %+v, want %s with %q; all: %s%s", status, found, test.want, test.text, out, errOut)
			}
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
		if n := strings.Count(out, line); n != times {
			t.Errorf("%d times %q, want %d, in\n%s", n, line, times, out)
		}
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
		status, out, _ := invoke(t, append([]string{"doctor"}, strings.Fields(args)...)...)
		if offline := strings.HasPrefix(args, "-offline"); status == 0 != strings.HasSuffix(args, w.endpoint) || !strings.Contains(out, want) || strings.Contains(out, "stanza") || offline && strings.Contains(out, " lists ") {
			t.Errorf("doctor %s: status %d, want %q in\n%s", args, status, want, out)
		}
	}
	if n := len(w.Requests("")); n != 0 {
		t.Errorf("%d requests with -offline", n)
	}
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
	for _, tt := range []struct{ args, want string }{
		{"", ""},
		{"all", "warning  pause     all server blocks block nothing until TIME, or until CoreDNS is restarted, by state/paused"},
		{".", "warning  pause     the server blocks for . block nothing until TIME, by state/paused"},
	} {
		if tt.args != "" {
			write(t, "state/paused", string(block.FormatPauses([]block.Pause{{Zone: tt.args, From: time.Now(), Until: time.Now().Add(time.Hour), Keep: tt.args == "."}})))
		}
		_, out, _ := invoke(t, "doctor", "-offline", "-corefile", "Corefile")
		if got := wordedTimes(out); tt.want == "" && strings.Contains(got, "pause") || !strings.Contains(got, tt.want+"\n") {
			t.Errorf("%s: want %q in\n%s", tt.args, tt.want, got)
		}
	}
	write(t, "state/paused", "nonsense\n")
	run(t, "doctor", "-offline", "-corefile", "Corefile").want(0, `state/paused pauses nothing: the line "nonsense" is not a pause`)
}

// protocolsOfOthers are lines of protocols in files of their own.
var protocolsOfOthers []string

// A server that takes the connection and never answers keeps nobody waiting for long.
func TestTheDoctorGivesUpOnAServerThatNeverAnswers(t *testing.T) {
	for _, of := range append(protocolsOfOthers, "", "protocol webrisk\nbudget 5\n") {
		corefile := t.TempDir() + "/Corefile"
		write(t, corefile, fmt.Sprintf(". {\nsafebrowsing {\nendpoint http://192.0.2.1\n%sdb off\n}\n}\n", of))
		blocks, err := readCorefile(corefile)
		testkit.Must(t, err)
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
			if took := time.Since(begun); took > 2*serverTimeout || !strings.Contains(out.String(), isProblem) {
				t.Errorf("%q: the doctor waited %s, and has found a problem: %t, want one within %s; %s", of, took, strings.Contains(out.String(), isProblem), serverTimeout, out.String())
			}
			silent.Wait()
		})
		closeBlocks(blocks)
	}
}
