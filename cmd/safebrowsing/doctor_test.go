package main

import (
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/coredns/caddy/caddyfile"

	"github.com/coredns-safebrowsing/safebrowsing/internal/config"
	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol"
	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
)

var (
	amounts = regexp.MustCompile(`\d+(\.\d [kMG]B| bytes)`)
	seconds = regexp.MustCompile(`\d+s\b`)
)

// examine runs the doctor, with a Corefile unless it is "", and returns its diagnoses by check, and its output. The status is 1 if there
// is a problem besides that no CoreDNS runs; the program's exit must be right, too.
func examine(t *testing.T, corefile string, flags ...string) (status int, found map[string]diagnosis, out string) {
	t.Helper()
	if corefile != "" {
		flags = append([]string{"-corefile", corefile}, flags...)
	}
	s := run(t, append([]string{"doctor", "-json"}, flags...)...).quiet()
	found = make(map[string]diagnosis)
	problem := 0
	for _, d := range decode[diagnosis](t, s.out) {
		found[d.Check] = d
		if d.Status == isProblem {
			if problem = 1; d.Check != "running" {
				status = 1
			}
		}
		if d.Status != isSkipped {
			expect(t, fmt.Sprintf("advice goes with what is not well: %+v", d), d.Advice != "", d.Status != isOK)
		}
	}
	s.want(problem)
	return status, found, s.out
}

// wantIs wants the status of a diagnosis; "" if there is none. Its text and its advice have the parts.
func wantIs(t *testing.T, d diagnosis, status string, parts ...string) {
	t.Helper()
	expect(t, fmt.Sprintf("the status of %+v", d), d.Status, status)
	testkit.WantParts(t, string(d.Text+" → "+d.Advice), parts...)
}

func TestDoctorOfAGoodConfiguration(t *testing.T) {
	w := filled(t)
	w.SetKey("SECRET")
	corefile := w.corefile(t, ". {\n safebrowsing {\n  api_key SECRET\n  endpoint ENDPOINT\n  db DB\n }\n}\nexample {\n whoami\n}\n")
	out := run(t, "doctor", "-corefile", corefile).want(1).quiet().out
	if _, volatile := fileSystem(w.dir); !volatile {
		expect(t, "text", seconds.ReplaceAllString(amounts.ReplaceAllString(w.plain(out), "SIZE"), "N s"), `ok       corefile  1 of 2 server blocks has safebrowsing
problem  running   CoreDNS does not run: no server has a control socket in DB. If one runs, its log says where its socket is, or why it has none
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
	w.wantRequests(t, "", 2) // for the update, and one more
	run(t, "doctor", "-json", "-corefile", corefile).want(1, `{"check":"corefile","status":"ok","text":"1 of 2 `, `,"advice":"`)
}

func TestDoctorOffline(t *testing.T) {
	w := filled(t)
	corefile := w.corefile(t, ".:5399 {\n safebrowsing {\n  endpoint http://sb.example.com:1234\n  db DB\n  resolver 127.0.0.1:5399\n }\n}\n")
	status, found, _ := examine(t, corefile, "-offline")
	for check, want := range map[string]string{"corefile": isOK, "key": isOK, "resolve": isSkipped, "loop": isWarning, "tls": isWarning, "server": isSkipped, "clock": isSkipped, "space": isOK} {
		wantIs(t, found[check], want)
	}
	expect(t, "status", status, 0)
	w.wantRequests(t, "", 1)
}

func TestDoctorOfConfigurations(t *testing.T) {
	w := newWorld(t)
	late := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		rw.Header().Set("Date", time.Now().Add(-time.Hour).UTC().Format(http.TimeFormat))
		rw.WriteHeader(http.StatusForbidden)
		rw.Write([]byte(`{"error":{"message":"key SECRET is not valid"}}`))
	}))
	defer late.Close()
	encrypted := untrusted(t, w.Server)
	page := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) { rw.Write([]byte("<html>")) }))
	defer page.Close()
	asGoogle, _ := google(t)
	file := testkit.Write(t, t.TempDir(), "file", "in the way")
	stanza := func(properties string) string { return ". {\n safebrowsing {\n" + properties + "\n }\n}\n" }
	listening := func(lines string) string {
		return ". {\n " + lines + "\n safebrowsing {\n  block OWN(a.example)\n }\n}\n"
	}
	for name, test := range map[string]struct {
		corefile          string
		status            int
		check, want, text string // the status of a check; "": there is none; and a part of its text or advice
	}{
		"no plugin":        {". {\n whoami\n}\n", 1, "corefile", isProblem, "no server block has safebrowsing"},
		"unknown property": {stanza("nonsense"), 1, "corefile", isProblem, `unknown property "nonsense"`},
		"key misplaced":    {stanza("AIzaSyD-0123456789abcdefghijklmnopqrstu"), 1, "corefile", isProblem, `unknown property "(the key)": write api_key before it`},
		"no key at all":    {stanza(""), 1, "corefile", isProblem, "nothing to block: add api_key"},
		"own lists only":   {stanza("block OWN(a.example)"), 0, "key", isWarning, "Safe Browsing is off"},
		"no such list":     {stanza("block HERE/none.txt"), 1, "corefile", isProblem, "none.txt"},
		"a folder as list": {stanza("block HERE"), 1, "corefile", isProblem, ""},
		"Google, no key":   {stanza("endpoint https://safebrowsing.googleapis.com\ndb DB"), 1, "key", isProblem, "$SAFEBROWSING_API_KEY"},
		"key refused":      {stanza("api_key SECRET\nendpoint " + late.URL + "\ndb DB"), 1, "server", isProblem, "key (the key) is not valid"},
		"not enabled":      {stanza("api_key not-enabled\ndb off\nendpoint " + asGoogle), 1, "server", isProblem, "Enable it at https://console.cloud.google.com/apis/library/safebrowsing.googleapis.com?project=123456789"},
		"clock":            {stanza("api_key SECRET\nendpoint " + late.URL + "\ndb DB"), 1, "clock", isProblem, "1h0m"},
		"no certificate":   {stanza("endpoint " + encrypted.URL + "\ndb DB"), 1, "tls", isProblem, "certificate"},
		"its authority":    {stanza("endpoint " + encrypted.URL + "\ndb DB\ntls " + authority(t, encrypted)), 0, "tls", isOK, "TLS 1.3"},
		"its server":       {stanza("endpoint " + encrypted.URL + "\ndb DB\ntls " + authority(t, encrypted)), 0, "server", isOK, "3 lists"},
		"no TLS":           {stanza("endpoint " + strings.Replace(w.endpoint, "http:", "https:", 1) + "\ndb DB"), 1, "tls", isProblem, "HTTP response to HTTPS"},
		"nobody there":     {stanza("endpoint https://127.0.0.1:1\ndb DB"), 1, "server", isProblem, "refused"},
		"nobody, no TLS":   {stanza("endpoint http://127.0.0.1:1\ndb DB"), 1, "server", isProblem, "refused"},
		"another server":   {stanza("endpoint " + page.URL + "\ndb DB"), 1, "server", isProblem, "Safe Browsing v5 server"},
		"unknown list":     {stanza("endpoint ENDPOINT\ndb DB\nlists se-4b none-4b"), 1, "server", isProblem, "does not have none-4b"},
		"mistyped list":    {stanza("endpoint ENDPOINT\ndb DB\nlists se-4b pha4-4b"), 1, "server", isProblem, "does not have pha4-4b → correct lists, or add these on the server: did you mean pha-4b?"},
		"no such name":     {stanza("endpoint http://sb.example\ndb DB\nresolver 127.0.0.1:1"), 1, "resolve", isProblem, "sb.example, by 127.0.0.1:1: read udp"},
		"a name":           {stanza("endpoint " + strings.Replace(w.endpoint, "127.0.0.1", "localhost", 1) + "\ndb DB"), 0, "server", isOK, "3 lists"},
		"through itself":   {".:5398 {\n safebrowsing {\n endpoint http://sb.example\n resolver 127.0.0.1:5398\n }\n}\n", 1, "loop", isWarning, "where this Corefile listens"},
		"memory only":      {stanza("endpoint ENDPOINT\ndb off"), 0, "folder", isWarning, "in memory only"},
		"http for TLS":     {stanza("endpoint " + strings.Replace(encrypted.URL, "https:", "http:", 1)), 1, "server", isProblem, "write https:// in endpoint"},
		"no folder":        {stanza("endpoint ENDPOINT\ndb " + file + "/db"), 1, "folder", isProblem, "cannot write to"},
		"a file as folder": {stanza("endpoint ENDPOINT\ndb " + file + "/db"), 1, "folder", isProblem, "move " + file + " away"},
		"no lists kept":    {stanza("endpoint ENDPOINT\nmode nostorage"), 0, "folder", isOK, "no lists are kept"},
		"a new folder":     {stanza("endpoint ENDPOINT\ndb DB/a/b"), 0, "folder", isOK, "does not exist yet, but can be created"},
		"its memory":       {stanza("endpoint ENDPOINT\ndb DB/a/b"), 0, "memory", isOK, "no list has been fetched yet"},

		// For http the diagnosis of TLS needs only the endpoint, not the network.
		"offline: http":                 {stanza("endpoint http://sb.example.com:8080"), 0, "tls", isWarning, "not used with sb.example.com:8080: others can read the hash prefixes and change the responses"},
		"offline: http to an address":   {stanza("endpoint http://192.0.2.1"), 0, "tls", isWarning, "not used with 192.0.2.1: others can read the hash prefixes and change the responses"},
		"offline: a key over http":      {stanza("endpoint http://sb.example.com\napi_key SECRET"), 1, "corefile", isProblem, "http would send the API key in clear text"},
		"offline: one's own network":    {stanza("endpoint http://192.168.1.2:8099\napi_key SECRET"), 0, "tls", isOK, "not used with 192.168.1.2:8099 in your own network, which can read the key and the hash prefixes"},
		"offline: an internal name":     {stanza("endpoint http://relay.internal"), 0, "tls", isOK, "not used with relay.internal in your own network, which can read the hash prefixes"},
		"offline: this machine":         {stanza("endpoint http://127.0.0.1:8099\napi_key SECRET"), 0, "tls", isOK, "not used: the server is on this machine"},
		"offline: https":                {stanza("endpoint https://sb.example.com"), 0, "tls", isSkipped, "-offline"},
		"offline: unreadable lists":     {stanza("endpoint ENDPOINT\ndb " + file + "/db"), 1, "lists", isSkipped, "not a directory"},
		"offline: a list by URL":        {stanza("block " + listURL + "\ndb off"), 0, "own list", isSkipped, ""},
		"offline: allowed hosts":        {stanza("endpoint ENDPOINT\nallow a.example until 2099-01-31"), 0, "own list", "", ""},
		"offline: a host has ended":     {stanza("endpoint ENDPOINT\nallow a.example b.example until 2020-01-01"), 0, "own list", isWarning, "the Corefile itself allows 1 name; 1 entry has ended"},
		"offline: Web Risk":             {stanza("endpoint ENDPOINT\nprotocol webrisk\nbudget 5"), 0, "se-ext-4b", "", ""},
		"offline: extended coverage":    {stanza("endpoint ENDPOINT\nprotocol webrisk\nbudget 5\nlists se-4b se-ext-4b"), 0, "se-ext-4b", isWarning, "Corefile:2 blocks"},
		"offline: monitored only":       {stanza("endpoint ENDPOINT\nprotocol webrisk\nbudget 5\nlists se-ext-4b\nmonitor"), 0, "se-ext-4b", "", ""},
		"offline: open, no acl":         {listening("forward . 192.0.2.53"), 0, "clients", isWarning, "Corefile:"},
		"offline: open, some public":    {listening("forward . 192.0.2.53\n bind 127.0.0.1 198.51.100.2"), 0, "clients", isWarning, ""},
		"offline: open, all addresses":  {listening("forward . 192.0.2.53\n bind 0.0.0.0"), 0, "clients", isWarning, ""},
		"offline: closed by acl":        {listening("forward . 192.0.2.53\n acl {\n  allow net 192.168.0.0/16\n  block\n }"), 0, "clients", "", ""},
		"offline: nothing is forwarded": {listening("whoami"), 0, "clients", "", ""},
		"offline: on loopback":          {listening("forward . 192.0.2.53\n bind 127.0.0.1 ::1"), 0, "clients", "", ""},
		"offline: a private address":    {listening("forward . 192.0.2.53\n bind 192.168.1.2"), 0, "clients", "", ""},
		"offline: an interface":         {listening("forward . 192.0.2.53\n bind eth0"), 0, "clients", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			var flags []string
			if strings.HasPrefix(name, "offline: ") {
				flags = []string{"-offline"}
			}
			status, found, out := examine(t, w.corefile(t, test.corefile), flags...)
			expect(t, "status", status, test.status)
			wantIs(t, found[test.check], test.want, test.text)
			testkit.WantNone(t, out, "SECRET", "AIza")
		})
	}
	left, _ := filepath.Glob(filepath.Join(filepath.Dir(w.dir), "*"))
	expect(t, "the doctor has left", left, nil)
}

// Ctrl-C is no fault of the server that was being asked.
func TestDoctorThatIsInterruptedBlamesNobody(t *testing.T) {
	w := newWorld(t)
	for _, flag := range []string{"-corefile", "-endpoint"} {
		ctx, cancel := context.WithCancel(t.Context())
		slow := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			cancel()
			<-r.Context().Done()
		}))
		defer slow.Close()
		w.endpoint = slow.URL
		args := []string{flag, map[string]string{"-corefile": w.corefile(t, usual), "-endpoint": slow.URL}[flag]}
		runIn(ctx, t, nil, append([]string{"doctor"}, args...)...).want(2, "context canceled").not("problem  server", "problems")
	}
}

// untrusted is a server with TLS and an authority that nobody knows.
func untrusted(t *testing.T, h http.Handler) *httptest.Server {
	s := httptest.NewUnstartedServer(h)
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.StartTLS()
	t.Cleanup(s.Close)
	return s
}

// authority writes the authority of a server and returns the file.
func authority(t *testing.T, s *httptest.Server) string {
	return testkit.Write(t, t.TempDir(), "ca.pem", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})))
}

func TestDoctorTellsOnceOfWhatServerBlocksShare(t *testing.T) {
	w := filled(t)
	corefile := w.corefile(t, "(mine) {\n safebrowsing {\n  endpoint ENDPOINT\n  db DB\n  lists se-4b pha4-4b\n }\n}\na.example {\n import mine\n}\nb.example {\n import mine\n}\n")
	out := run(t, "doctor", "-offline", "-corefile", corefile).want(0, "did you mean pha-4b?").out
	expect(t, "it ends with what to do first", strings.HasSuffix(out, "Start with: corefile\n"), true)
	for _, once := range []string{" folder ", "warning  corefile  " + corefile + ":5"} {
		expect(t, "times "+once, strings.Count(out, once), 1)
	}
}

func TestLoops(t *testing.T) {
	machine := []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")}
	for name, test := range map[string]struct {
		configured, system, bind []string
		key, want                string
	}{
		"elsewhere":                {[]string{"9.9.9.9:53"}, nil, nil, ".", isOK},
		"itself, second":           {[]string{"9.9.9.9:53", "192.0.2.1:53"}, nil, nil, ".", isWarning},
		"itself, IPv6":             {[]string{"[2001:db8::1]:53"}, nil, nil, "example.", isWarning},
		"its address":              {[]string{"127.0.0.2:53"}, nil, []string{"127.0.0.1", "127.0.0.2"}, ".", isWarning},
		"TLS only":                 {[]string{"127.0.0.1:53"}, nil, nil, "tls://.:53", isOK},
		"system's":                 {nil, []string{"192.0.2.53:53"}, nil, ".", isOK},
		"system's on this machine": {nil, []string{"127.0.0.53:53"}, []string{"192.0.2.1"}, ".", isWarning},
		"system's is itself":       {nil, []string{"192.0.2.1:53"}, nil, ".", isWarning},
	} {
		b := serverBlock{Listening: config.ListeningOf(caddyfile.ServerBlock{Keys: []string{test.key}})}
		b.Bind = test.bind
		expect(t, name, loopDiagnosis(test.configured, test.system, machine, []serverBlock{b}).Status, test.want)
	}
}

func TestSystemResolvers(t *testing.T) {
	file := testkit.Write(t, t.TempDir(), "resolv.conf", "nameserver 192.0.2.53\nnameserver ::1\n")
	expect(t, "resolvers", config.SystemResolvers(file), []string{"192.0.2.53:53", "[::1]:53"})
	expect(t, "without a file", config.SystemResolvers(file+"none"), nil)
	expect(t, "this machine has an address", len(config.MachineAddresses()) > 0, true)
}

func TestClock(t *testing.T) {
	now := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	for ahead, want := range map[time.Duration]string{
		0: isOK, 5 * time.Minute: isOK, -5 * time.Minute: isOK, 301 * time.Second: isProblem, -time.Hour: isProblem,
	} {
		expect(t, ahead.String(), clockDiagnosis(now.Format(http.TimeFormat), now.Add(ahead)).Status, want)
	}
	expect(t, "without a date", clockDiagnosis("", now).Status, isSkipped)
}

func TestMemory(t *testing.T) {
	for free, want := range map[uint64]string{1 << 30: isOK, 1 << 20: isProblem, 0: isSkipped} { // 0: not known
		wantIs(t, memoryDiagnosis(t.TempDir(), false, func() (uint64, bool) { return free, free > 0 }), want)
	}
	w := filled(t) // a server that runs has its lists in memory already
	for running, want := range map[bool]string{false: isProblem, true: isOK} {
		wantIs(t, memoryDiagnosis(w.dir, running, func() (uint64, bool) { return heldBytes(w.dir), true }), want)
	}
}

func TestAdviceForEachStatus(t *testing.T) {
	const (
		key   = "make sure that the key is right and its restrictions allow the API and this machineACCESS"
		token = "make sure that the token is right and its account may use the APIACCESS"
		quota = "the quota of the API key's project is used up: wait, or raise it in the cloud console"
		api   = "API is enabled in its project (https://console.cloud.google.com/apis/library/"
	)
	dir := t.TempDir()
	write(t, filepath.Join(dir, "token"), "TOKEN")
	access := map[string]string{
		"Safe Browsing": ", and that the Safe Browsing " + api + "safebrowsing.googleapis.com)",
		"Web Risk":      ", that the Web Risk " + api + "webrisk.googleapis.com), and that the project has a billing account",
	}
	for _, d := range protocol.Dialects() {
		for _, test := range []struct {
			token bool
			code  int
			want  string
		}{
			{false, 400, key}, {false, 401, key}, {false, 403, key}, {false, 429, quota},
			{false, 404, "there is no " + d.Title + " server: correct endpoint, or protocol"},
			{false, 503, "wait: the server cannot answer now, and the plugin retries by itself"},
			{false, 302, "correct endpoint"},
			{true, 401, "put a new token into " + dir + "/token, and let a job do so every hour; CoreDNS uses it within 5 seconds"},
			{true, 403, token}, {true, 429, strings.Replace(quota, "API key", "token", 1)},
		} {
			if test.token && !d.Tokens {
				continue
			}
			credential := map[bool]string{false: "api_key K", true: "token_file token"}[test.token]
			corefile := testkit.Write(t, dir, "Corefile", ". {\n root "+dir+"\n safebrowsing {\n "+credential+"\n protocol "+d.Name+"\n budget 5\n db off\n }\n}\n")
			got := string(adviceFor(test.code, blocksOf(t, corefile)[0].Block))
			expect(t, fmt.Sprintf("%d by %s with %s", test.code, d, credential), got, strings.Replace(test.want, "ACCESS", access[d.Service], 1))
		}
	}
}

func TestDoctorWarnsOfAKeyThatOthersMayRead(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("its modes say nothing about others")
	}
	dir := t.TempDir()
	testkit.Must(t, os.Chmod(filepath.Dir(dir), 0o711)) // others may not enter the folder of a test
	for above := dir; above != filepath.Dir(above); above = filepath.Dir(above) {
		if info, err := os.Stat(above); err != nil || info.Mode()&0o001 == 0 {
			testkit.Need(t, errors.New("others may not enter "+above))
		}
	}
	w := newWorld(t)
	key, corefile := filepath.Join(dir, "key"), filepath.Join(dir, "Corefile")
	write(t, key, "SECRET\n")
	for _, tc := range []struct {
		property           string
		dir, key, corefile os.FileMode
		want, text, advice string // want is the status
	}{
		{"api_key_file " + key, 0o755, 0o600, 0o644, "", "", ""},
		{"api_key_file " + key, 0o755, 0o640, 0o644, "", "", ""},
		{"api_key_file " + key, 0o755, 0o644, 0o600, isWarning, "may read the API key in " + key, "chmod o= " + key},
		{"api_key SECRET", 0o755, 0o600, 0o600, "", "", ""},
		{"api_key SECRET", 0o755, 0o600, 0o604, isWarning, "may read " + corefile + ", which holds the API key", "api_key_file"},
		{"api_key SECRET", 0o700, 0o600, 0o644, "", "", ""}, // nobody else may enter the folder
	} {
		write(t, corefile, ". {\n safebrowsing {\n  "+tc.property+"\n  endpoint "+w.endpoint+"\n  db off\n }\n}\n")
		testkit.Must(t, errors.Join(os.Chmod(key, tc.key), os.Chmod(corefile, tc.corefile), os.Chmod(dir, tc.dir)))
		_, found, _ := examine(t, corefile, "-offline")
		wantIs(t, found["key file"], tc.want, tc.text, tc.advice)
	}
}

func TestAFullDiskIsNoMatterOfRights(t *testing.T) {
	for err, want := range map[error]string{
		syscall.ENOSPC: "free some space, or set db to another disk",
		syscall.EACCES: "make the user of CoreDNS the owner of the folder",
	} {
		testkit.WantStart(t, string(writeAdvice(&fs.PathError{Op: "write", Path: "lists", Err: err})), want)
	}
}
