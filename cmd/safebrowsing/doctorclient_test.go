package main

import (
	"encoding/pem"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/block"
	"github.com/coredns-safebrowsing/safebrowsing/internal/protocoltest"
	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
)

func TestDoctorOfAnEndpoint(t *testing.T) {
	w := newWorld(t)
	w.SetKey("SECRET")
	key := filepath.Join(t.TempDir(), "key")
	write(t, key, "SECRET\n")
	status, out, errOut := invoke(t, "doctor", "-endpoint", w.endpoint, "-api-key-file", key)
	if status != 0 || errOut != "" {
		t.Errorf("status %d, %s", status, errOut)
	}
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
	server := httptest.NewTLSServer(w.Server)
	defer server.Close()
	ca := filepath.Join(t.TempDir(), "ca.pem")
	write(t, ca, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})))
	status, out, errOut := invoke(t, "doctor", "-endpoint", server.URL+",https://relay1.internal:1,https://relay2.internal:1", "-endpoint-ca", ca, "-resolver", "127.0.0.1:1")
	if status != 1 || errOut != "" {
		t.Errorf("status %d, %s", status, errOut)
	}
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
	untrusted := httptest.NewUnstartedServer(w.Server)
	untrusted.Config.ErrorLog = log.New(io.Discard, "", 0)
	untrusted.StartTLS()
	defer untrusted.Close()
	page := httptest.NewServer(http.NotFoundHandler())
	defer page.Close()
	for args, want := range map[string]string{
		"-endpoint " + untrusted.URL:                             "name the server's own authority with tls or -endpoint-ca",
		"-endpoint " + page.URL:                                  "correct endpoint, or protocol",
		"-endpoint http://relay.internal -resolver 127.0.0.1:1":  "set resolver to one that works, such as 9.9.9.9",
		"-offline -endpoint https://safebrowsing.googleapis.com": "give a key with api_key_file FILE, or with $SAFEBROWSING_API_KEY; enable",
	} {
		status, out, _ := invoke(t, append([]string{"doctor"}, strings.Fields(args)...)...)
		if status != 1 || !strings.Contains(out, want) || strings.Contains(out, "stanza") {
			t.Errorf("doctor %s: status %d, want %q in\n%s", args, status, want, out)
		}
	}
}

func TestDoctorDoesNotFetchFromGoogle(t *testing.T) {
	w := newWorld(t)
	_, out, _ := invoke(t, "doctor", "-offline", "-endpoint", "https://safebrowsing.googleapis.com")
	if strings.Contains(out, " lists ") || !strings.Contains(out, "problem  key ") {
		t.Errorf("got\n%s", out)
	}
	_, out, _ = invoke(t, "doctor", "-offline", "-endpoint", w.endpoint)
	if n := len(w.Requests("")); n != 0 || strings.Contains(out, " lists ") {
		t.Errorf("%d requests with -offline\n%s", n, out)
	}
}

func TestMisuseOfTheDoctor(t *testing.T) {
	w := newWorld(t)
	for args, want := range map[string]string{
		"":                                               "there is no Corefile here: use -corefile",
		"-corefile x -endpoint http://x":                 "-corefile and -endpoint are both given",
		"-redis redis://127.0.0.1":                       "run safebrowsing-relay doctor",
		"-corefile x -lists se-4b":                       "-lists goes with -endpoint",
		"-corefile x -api-key-file k":                    "-api-key-file goes with -endpoint",
		"-endpoint nonsense":                             "endpoint: the endpoint must be a URL such as",
		"-endpoint ENDPOINT,ENDPOINT":                    "is given more than once",
		"-endpoint ENDPOINT -lists x":                    `lists: "x" is not the name of a list`,
		"-endpoint http://192.0.2.1 -api-key-file /none": "api_key_file: open /none",
	} {
		status, out, errOut := invoke(t, append([]string{"doctor"}, strings.Fields(strings.ReplaceAll(args, "ENDPOINT", w.endpoint))...)...)
		if status != 2 || out != "" || !strings.Contains(errOut, want) || strings.Count(errOut, "\n") != 1 {
			t.Errorf("doctor %s: status %d, %q%q, want 2 and a line with %q", args, status, out, errOut, want)
		}
	}
}

// The doctor and a real relay agree.
func TestDoctorOfARelay(t *testing.T) {
	w := filled(t)
	keys := filepath.Join(t.TempDir(), "keys")
	write(t, keys, "OLD\nNEW\n")
	endpoint, _ := startRelay(t, relayProgram(t), "-db", w.dir, "-endpoint", w.endpoint, "-client-key-file", keys, "-listen", "127.0.0.1:0", "-admin", "127.0.0.1:0")
	client := filepath.Join(t.TempDir(), "client")
	write(t, client, "NEW\n")
	var out string
	testkit.Until(t, "the doctor to find no problem", func() bool {
		var status int
		status, out, _ = invoke(t, "doctor", "-endpoint", endpoint, "-api-key-file", client)
		return status == 0
	})
	for _, want := range []string{
		"ok       server    it accepts the key and offers 3 lists\n",
		"ok       lists     se-4b 2 entries, mw-4b 1 entry, uws-4b 0 entries; updates every ",
		"ok       confirm   the first entry of se-4b: 0 threats, to be cached for ",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	write(t, client, "OTHER\n")
	status, out, _ := invoke(t, "doctor", "-endpoint", endpoint, "-api-key-file", client)
	if status != 1 || !strings.Contains(out, "this relay needs a key") || strings.Contains(out, "OTHER") || !strings.Contains(out, "from the file of its -client-key-file") {
		t.Errorf("status %d\n%s", status, out)
	}
}

func TestDoctorTrustsTheAuthorityOfTheCorefile(t *testing.T) {
	w := newWorld(t)
	server := httptest.NewTLSServer(w.Server)
	defer server.Close()
	ca := filepath.Join(t.TempDir(), "ca.pem")
	write(t, ca, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})))
	stanza := ". {\n safebrowsing {\n  endpoint " + server.URL + "\n  db DB\n"
	_, found, _ := examine(t, w.corefile(t, stanza+"  tls "+ca+"\n }\n}\n"))
	if found["tls"].Status != isOK || found["server"].Status != isOK {
		t.Errorf("%+v", found)
	}
}

func TestTheFolderOfSeveralEndpointsIsThatOfTheirSet(t *testing.T) {
	w := newWorld(t)
	one := w.endpoint
	w.endpoint = "http://127.0.0.1:1 " + one + "/" // the first one is down
	if status, out, errOut := w.update(t); status != 0 {
		t.Fatalf("status %d, %s%s", status, out, errOut)
	}
	w.ClientStarted()
	both := "'http://127.0.0.1:1 " + one + "'"
	if a, b, _ := strings.Cut(strings.Trim(both, "'"), " "); a > b {
		both = "'" + b + " " + a + "'"
	}
	status, _, errOut := invoke(t, "update", "-now", "-db", w.dir, "-endpoint", one)
	if status != 2 || !strings.Contains(errOut, "use -endpoint "+both) {
		t.Errorf("status %d, %s", status, errOut)
	}
	if status, _, errOut := invoke(t, "update", "-now", "-db", w.dir, "-protocol", "webrisk", "-endpoint", w.endpoint); status != 2 || !strings.Contains(errOut, "protocol webrisk asks one server") {
		t.Errorf("status %d, %s", status, errOut)
	}
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
	if _, out, _ := invoke(t, "doctor", "-offline", "-corefile", "Corefile"); !strings.Contains(out, `state/paused pauses nothing: the line "nonsense" is not a pause`) {
		t.Errorf("a damaged file: %s", out)
	}
}
