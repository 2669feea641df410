package main

import (
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/coredns/caddy/caddyfile"

	"github.com/coredns-safebrowsing/safebrowsing/internal/config"
	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol"
)

var (
	amounts = regexp.MustCompile(`\d+(\.\d [kMG]B| bytes)`)
	seconds = regexp.MustCompile(`\d+s\b`)
)

// examine runs the doctor and returns its diagnoses by check, and its output. The status is 1 if there
// is a problem besides that no CoreDNS runs; the program's exit must be right, too.
func examine(t *testing.T, corefile string, flags ...string) (status int, found map[string]diagnosis, out string) {
	t.Helper()
	status, out, errOut := invoke(t, append([]string{"doctor", "-json", "-corefile", corefile}, flags...)...)
	if errOut != "" {
		t.Errorf("complained: %s", errOut)
	}
	found = make(map[string]diagnosis)
	problem, other := 0, 0
	for _, d := range decode[diagnosis](t, out) {
		found[d.Check] = d
		if d.Status == isProblem {
			if problem = 1; d.Check != "running" {
				other = 1
			}
		}
		if d.Status == isOK != (d.Advice == "") && d.Status != isSkipped {
			t.Errorf("%+v: advice goes with what is not well", d)
		}
	}
	if status != problem {
		t.Errorf("status %d, and there is a problem: %d; all: %s", status, problem, out)
	}
	return other, found, out
}

func TestDoctorOfAGoodConfiguration(t *testing.T) {
	w := filled(t)
	w.SetKey("SECRET")
	corefile := w.corefile(t, ". {\n safebrowsing {\n  api_key SECRET\n  endpoint ENDPOINT\n  db DB\n }\n}\nexample {\n whoami\n}\n")
	status, out, errOut := invoke(t, "doctor", "-corefile", corefile)
	if status != 1 || errOut != "" { // nothing runs
		t.Errorf("status %d, %s", status, errOut)
	}
	if _, volatile := fileSystem(w.dir); !volatile {
		expect(t, "text", seconds.ReplaceAllString(amounts.ReplaceAllString(w.plain(out), "SIZE"), "N s"), `ok       corefile  1 of 2 server blocks has safebrowsing
problem  running   CoreDNS does not run: no server has a control socket in DB
                   → start CoreDNS; before its first start use safebrowsing validate
ok       key       present
ok       resolve   the endpoint is an IP address: there is no name to resolve
ok       tls       not used: the server is on this machine
ok       server    it accepts the key and offers 3 lists
ok       clock     N s from the server's
ok       folder    DB is writable, and lists there survive a restart
ok       space     SIZE free
ok       memory    the lists take SIZE, twice that during an update; SIZE are available
ok       lists     3 of 3 in force, 3 entries

1 problem, 0 warnings
`)
	}
	if n := len(w.Requests("")); n != 2 {
		t.Errorf("%d requests, want two: for the update, and one more", n)
	}
	_, out, _ = invoke(t, "doctor", "-json", "-corefile", corefile)
	first, _, _ := strings.Cut(out, "\n")
	expect(t, "keys", keys(first), "check status text advice")
}

func TestDoctorOffline(t *testing.T) {
	w := filled(t)
	corefile := w.corefile(t, ".:5399 {\n safebrowsing {\n  endpoint http://sb.example.com:1234\n  db DB\n  resolver 127.0.0.1:5399\n }\n}\n")
	status, found, _ := examine(t, corefile, "-offline")
	for check, want := range map[string]string{"corefile": isOK, "key": isOK, "resolve": isSkipped, "loop": isWarning, "tls": isWarning, "server": isSkipped, "clock": isSkipped, "space": isOK} {
		if found[check].Status != want {
			t.Errorf("%+v, want %s", found[check], want)
		}
	}
	if status != 0 || len(w.Requests("")) != 1 {
		t.Errorf("status %d, %d requests", status, len(w.Requests("")))
	}
}

func TestDoctorOfBadConfigurations(t *testing.T) {
	w := newWorld(t)
	late := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		rw.Header().Set("Date", time.Now().Add(-time.Hour).UTC().Format(http.TimeFormat))
		rw.WriteHeader(http.StatusForbidden)
		rw.Write([]byte(`{"error":{"message":"key SECRET is not valid"}}`))
	}))
	defer late.Close()
	untrusted := httptest.NewUnstartedServer(w.Server)
	untrusted.Config.ErrorLog = log.New(io.Discard, "", 0)
	untrusted.StartTLS()
	defer untrusted.Close()
	page := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) { rw.Write([]byte("<html>")) }))
	defer page.Close()
	file := filepath.Join(t.TempDir(), "file")
	write(t, file, "in the way")
	stanza := func(properties string) string { return ". {\n safebrowsing {\n" + properties + "\n }\n}\n" }
	for name, test := range map[string]struct {
		corefile string
		status   int
		check    string
		want     string // status of the check
		text     string // in its text or advice
	}{
		"no plugin":        {". {\n whoami\n}\n", 1, "corefile", isProblem, "no server block has safebrowsing"},
		"unknown property": {stanza("nonsense"), 1, "corefile", isProblem, `unknown property "nonsense"`},
		"key misplaced":    {stanza("AIzaSyD-0123456789abcdefghijklmnopqrstu"), 1, "corefile", isProblem, `unknown property "(the key)": write api_key before it`},
		"no key at all":    {stanza(""), 1, "corefile", isProblem, "nothing to block: add api_key"},
		"own lists only":   {stanza("block OWN(a.example)"), 0, "key", isWarning, "Safe Browsing is off"},
		"Google, no key":   {stanza("endpoint https://safebrowsing.googleapis.com\ndb DB"), 1, "key", isProblem, "$SAFEBROWSING_API_KEY"},
		"key refused":      {stanza("api_key SECRET\nendpoint " + late.URL + "\ndb DB"), 1, "server", isProblem, "key (the key) is not valid"},
		"clock":            {stanza("api_key SECRET\nendpoint " + late.URL + "\ndb DB"), 1, "clock", isProblem, "1h0m"},
		"no certificate":   {stanza("endpoint " + untrusted.URL + "\ndb DB"), 1, "tls", isProblem, "certificate"},
		"no TLS":           {stanza("endpoint " + strings.Replace(w.endpoint, "http:", "https:", 1) + "\ndb DB"), 1, "tls", isProblem, "HTTP response to HTTPS"},
		"nobody there":     {stanza("endpoint https://127.0.0.1:1\ndb DB"), 1, "server", isProblem, "refused"},
		"nobody, no TLS":   {stanza("endpoint http://127.0.0.1:1\ndb DB"), 1, "server", isProblem, "refused"},
		"another server":   {stanza("endpoint " + page.URL + "\ndb DB"), 1, "server", isProblem, "Safe Browsing v5 server"},
		"unknown list":     {stanza("endpoint ENDPOINT\ndb DB\nlists se-4b none-4b"), 1, "server", isProblem, "does not have none-4b"},
		"mistyped list":    {stanza("endpoint ENDPOINT\ndb DB\nlists se-4b pha4-4b"), 1, "server", isProblem, "does not have pha4-4b correct lists, or have the server keep these, too: did you mean pha-4b?"},
		"no such name":     {stanza("endpoint http://sb.example\ndb DB\nresolver 127.0.0.1:1"), 1, "resolve", isProblem, "by 127.0.0.1:1"},
		"through itself":   {".:5398 {\n safebrowsing {\n endpoint http://sb.example\n resolver 127.0.0.1:5398\n }\n}\n", 1, "loop", isWarning, "where this Corefile listens"},
		"memory only":      {stanza("endpoint ENDPOINT\ndb off"), 0, "folder", isWarning, "in memory only"},
		"no folder":        {stanza("endpoint ENDPOINT\ndb " + file + "/db"), 1, "folder", isProblem, "cannot write to"},
		"a file as folder": {stanza("endpoint ENDPOINT\ndb " + file + "/db"), 1, "folder", isProblem, "move " + file + " away"},
		"no lists kept":    {stanza("endpoint ENDPOINT\nmode nostorage"), 0, "folder", isOK, "no lists are kept"},
	} {
		t.Run(name, func(t *testing.T) {
			status, found, out := examine(t, w.corefile(t, test.corefile))
			d := found[test.check]
			if status != test.status || d.Status != test.want || !strings.Contains(string(d.Text+" "+d.Advice), test.text) {
				t.Errorf("status %d, %+v, want %d, %s with %q; all: %s", status, d, test.status, test.want, test.text, out)
			}
			if strings.Contains(out, "SECRET") || strings.Contains(out, "AIza") {
				t.Errorf("the key is printed: %s", out)
			}
		})
	}
}

// For http the diagnosis of TLS needs only the endpoint, not the network.
func TestDoctorOfHTTPWithoutTheNetwork(t *testing.T) {
	w := newWorld(t)
	for _, test := range []struct{ properties, status, text string }{
		{"endpoint http://sb.example.com:8080", isWarning, "not used with sb.example.com:8080: others can read the hash prefixes and change the responses"},
		{"endpoint http://192.0.2.1", isWarning, "not used with 192.0.2.1: others can read the hash prefixes and change the responses"},
		{"endpoint http://192.168.1.2:8099\n api_key SECRET", isOK, "not used with 192.168.1.2:8099 in your own network, which can read the key and the hash prefixes"},
		{"endpoint http://relay.internal", isOK, "not used with relay.internal in your own network, which can read the hash prefixes"},
		{"endpoint http://127.0.0.1:8099\n api_key SECRET", isOK, "not used: the server is on this machine"},
		{"endpoint https://sb.example.com", isSkipped, "-offline"},
	} {
		status, found, out := examine(t, w.corefile(t, ". {\n safebrowsing {\n "+test.properties+"\n db DB\n }\n}\n"), "-offline")
		if d := found["tls"]; status != 0 || d.Status != test.status || string(d.Text) != test.text {
			t.Errorf("%s: status %d, %+v, want %s with %s; all: %s", test.properties, status, d, test.status, test.text, out)
		}
	}
	if status, found, out := examine(t, w.corefile(t, ". {\n safebrowsing {\n endpoint http://sb.example.com\n api_key SECRET\n db DB\n }\n}\n"), "-offline"); status != 1 || !strings.Contains(string(found["corefile"].Text), "http would send the API key in clear text") {
		t.Errorf("a key over a public network: status %d, %s", status, out)
	}
}

func TestDoctorMakesNoFolder(t *testing.T) {
	w := newWorld(t)
	_, found, _ := examine(t, w.corefile(t, ". {\n safebrowsing {\n  endpoint ENDPOINT\n  db DB/a/b\n }\n}\n"))
	if d := found["folder"]; !strings.Contains(string(d.Text), "does not exist yet") && d.Status != isWarning {
		t.Errorf("%+v", d)
	}
	if _, err := os.Stat(w.dir); err == nil {
		t.Error("the doctor has made the folder")
	}
	left, err := filepath.Glob(filepath.Join(filepath.Dir(w.dir), "*"))
	if err != nil || len(left) > 0 {
		t.Errorf("the doctor has left %q, %v", left, err)
	}
	if !strings.Contains(string(found["memory"].Text), "no list has been fetched yet") {
		t.Errorf("%+v", found["memory"])
	}
}

func TestDoctorOfSeveralServerBlocks(t *testing.T) {
	w := filled(t)
	same := " {\n safebrowsing {\n  endpoint ENDPOINT\n  db DB\n }\n}\n"
	_, _, out := examine(t, w.corefile(t, "a"+same+"b"+same), "-offline")
	if n := strings.Count(out, `"check":"folder"`); n != 1 {
		t.Errorf("one folder was examined %d times", n)
	}
}

func TestLoops(t *testing.T) {
	machine := []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")}
	block := func(bind []string, keys ...string) []serverBlock {
		b := serverBlock{Listening: config.ListeningOf(caddyfile.ServerBlock{Keys: keys})}
		b.Bind = bind
		return []serverBlock{b}
	}
	for name, test := range map[string]struct {
		configured, system []string
		blocks             []serverBlock
		want               string
	}{
		"elsewhere":                  {[]string{"9.9.9.9:53"}, nil, block(nil, "."), isOK},
		"configured, the system not": {[]string{"9.9.9.9:53"}, []string{"127.0.0.1:53"}, block(nil, "."), isOK},
		"itself":                     {[]string{"127.0.0.1:53"}, nil, block(nil, "."), isWarning},
		"itself, second":             {[]string{"9.9.9.9:53", "192.0.2.1:53"}, nil, block(nil, "."), isWarning},
		"itself, IPv6":               {[]string{"[2001:db8::1]:53"}, nil, block(nil, "example."), isWarning},
		"another port":               {[]string{"127.0.0.1:54"}, nil, block(nil, "."), isOK},
		"its port":                   {[]string{"127.0.0.1:54"}, nil, block(nil, "a", "b:54"), isWarning},
		"another address":            {[]string{"127.0.0.2:53"}, nil, block([]string{"127.0.0.1"}, "."), isOK},
		"its address":                {[]string{"127.0.0.2:53"}, nil, block([]string{"127.0.0.1", "127.0.0.2"}, "."), isWarning},
		"its interface":              {[]string{"192.0.2.1:53"}, nil, block([]string{"eth0"}, "."), isWarning},
		"TLS only":                   {[]string{"127.0.0.1:53"}, nil, block(nil, "tls://.:53"), isOK},
		"system's":                   {nil, []string{"192.0.2.53:53"}, block(nil, "."), isOK},
		"system's on this machine":   {nil, []string{"127.0.0.53:53"}, block([]string{"192.0.2.1"}, "."), isWarning},
		"system's is itself":         {nil, []string{"192.0.2.1:53"}, block(nil, "."), isWarning},
		"nothing known":              {nil, nil, block(nil, "."), isOK},
	} {
		if got := loopDiagnosis(test.configured, test.system, machine, test.blocks); got.Status != test.want {
			t.Errorf("%s: %+v, want %s", name, got, test.want)
		}
	}
}

func TestSystemResolvers(t *testing.T) {
	file := filepath.Join(t.TempDir(), "resolv.conf")
	write(t, file, "nameserver 192.0.2.53\nnameserver ::1\n")
	if got := strings.Join(config.SystemResolvers(file), " "); got != "192.0.2.53:53 [::1]:53" {
		t.Errorf("got %s", got)
	}
	if got := config.SystemResolvers(file + "none"); got != nil {
		t.Errorf("got %q without a file", got)
	}
	if len(config.MachineAddresses()) == 0 {
		t.Error("this machine has no address")
	}
}

func TestClock(t *testing.T) {
	now := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	for ahead, want := range map[time.Duration]string{
		0: isOK, 5 * time.Minute: isOK, -5 * time.Minute: isOK, 301 * time.Second: isProblem, -time.Hour: isProblem,
	} {
		if got := clockDiagnosis(now.Format(http.TimeFormat), now.Add(ahead)); got.Status != want {
			t.Errorf("%s ahead: %+v, want %s", ahead, got, want)
		}
	}
	if got := clockDiagnosis("", now); got.Status != isSkipped {
		t.Errorf("without a date: %+v", got)
	}
}

func TestMemory(t *testing.T) {
	for name, test := range map[string]struct {
		free uint64
		ok   bool
		want string
	}{"enough": {1 << 30, true, isOK}, "too little": {1 << 20, true, isProblem}, "unknown": {0, false, isSkipped}} {
		if got := memoryDiagnosis(t.TempDir(), func() (uint64, bool) { return test.free, test.ok }); got.Status != test.want {
			t.Errorf("%s: %+v, want %s", name, got, test.want)
		}
	}
}

// A resolver that answers everybody is used in attacks on others.
func TestDoctorWarnsOfAnOpenResolver(t *testing.T) {
	for name, tc := range map[string]struct {
		lines string
		open  bool
	}{
		"no acl":            {"forward . 192.0.2.53", true},
		"acl":               {"forward . 192.0.2.53\n acl {\n  allow net 192.168.0.0/16\n  block\n }", false},
		"nothing forwarded": {"whoami", false},
		"loopback":          {"forward . 192.0.2.53\n bind 127.0.0.1 ::1", false},
		"a private address": {"forward . 192.0.2.53\n bind 192.168.1.2", false},
		"a public address":  {"forward . 192.0.2.53\n bind 127.0.0.1 198.51.100.2", true},
		"all addresses":     {"forward . 192.0.2.53\n bind 0.0.0.0", true},
		"an interface":      {"forward . 192.0.2.53\n bind eth0", false},
	} {
		t.Run(name, func(t *testing.T) {
			corefile := newWorld(t).corefile(t, ". {\n "+tc.lines+"\n safebrowsing {\n  block OWN(a.example)\n }\n}\n")
			status, found, _ := examine(t, corefile, "-offline")
			if d := found["clients"]; (d.Status == isWarning) != tc.open || tc.open && !strings.Contains(string(d.Text), "Corefile:") || status != 0 {
				t.Errorf("status %d, %+v", status, d)
			}
			_, out, _ := invoke(t, "doctor", "-offline", "-corefile", corefile)
			want := map[bool]string{false: "\n0 problems, 1 warning\n", true: "\n0 problems, 2 warnings. Start with: clients\n"}[tc.open] // there is no key
			if !strings.HasSuffix(out, want) {
				t.Errorf("got %q, want %q at the end", out, want)
			}
		})
	}
}

func TestAdviceForEachStatus(t *testing.T) {
	const (
		console = "https://console.cloud.google.com/apis/library/"
		key     = "make sure that the key is right and its restrictions allow the API and this machine"
		token   = "make sure that the token is right and its account may use the API"
	)
	dir := t.TempDir()
	write(t, filepath.Join(dir, "token"), "TOKEN")
	access := map[string]string{
		"Safe Browsing": ", and that the Safe Browsing API is enabled in its project (" + console + "safebrowsing.googleapis.com)",
		"Web Risk":      ", that the Web Risk API is enabled in its project (" + console + "webrisk.googleapis.com), and that the project has a billing account",
	}
	webRisk := []*protocol.Dialect{protocol.DialectWebRisk}
	for _, test := range []struct {
		credential string
		dialects   []*protocol.Dialect
		code       int
		want       func(d *protocol.Dialect) string
	}{
		{"api_key K", protocol.Dialects(), 400, func(d *protocol.Dialect) string { return key + access[d.Service] }},
		{"api_key K", protocol.Dialects(), 401, func(d *protocol.Dialect) string { return key + access[d.Service] }},
		{"api_key K", protocol.Dialects(), 403, func(d *protocol.Dialect) string { return key + access[d.Service] }},
		{"token_file token", webRisk, 403, func(d *protocol.Dialect) string { return token + access[d.Service] }},
		{"token_file token", webRisk, 401, func(*protocol.Dialect) string {
			return "put a new token into " + dir + "/token, and have something do so every hour; CoreDNS uses it within 5 seconds"
		}},
		{"token_file token", webRisk, 429, func(*protocol.Dialect) string {
			return "the quota of the token's project is used up: wait, or raise it in the cloud console"
		}},
		{"api_key K", protocol.Dialects(), 429, func(*protocol.Dialect) string {
			return "the quota of the API key's project is used up: wait, or raise it in the cloud console"
		}},
		{"api_key K", protocol.Dialects(), 404, func(d *protocol.Dialect) string {
			return "there is no " + d.Title + " server: correct endpoint, or protocol"
		}},
		{"api_key K", protocol.Dialects(), 503, func(*protocol.Dialect) string {
			return "nothing: the server has a fault, and the plugin retries by itself"
		}},
		{"api_key K", protocol.Dialects(), 302, func(*protocol.Dialect) string { return "correct endpoint" }},
	} {
		for _, d := range test.dialects {
			corefile := filepath.Join(dir, "Corefile")
			write(t, corefile, ". {\n root "+dir+"\n safebrowsing {\n "+test.credential+"\n protocol "+d.Name+"\n budget 5\n db off\n }\n}\n")
			blocks, err := readCorefile(corefile)
			if err != nil {
				t.Fatal(err)
			}
			expect(t, fmt.Sprintf("%d by %s with %s", test.code, d, test.credential), string(adviceFor(test.code, blocks[0].Block)), test.want(d))
			closeBlocks(blocks)
		}
	}
}
