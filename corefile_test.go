package safebrowsing

import (
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
	_ "time/tzdata" // for a zone of its own

	"github.com/coredns/caddy"

	"github.com/miekg/dns"
)

// Server blocks that import the same lines log them once at a start, parse never
// does, and the command line sees them too.
func TestWarningsOfTheCorefileAreLoggedOnceAtTheStart(t *testing.T) {
	corefileFolder(t)
	lines := captureLog(t)
	corefile := "(ours) {\nsafebrowsing {\ntest blocked.example\nallow old.example.org until 2020-01-01\nallow new.example.org until 2097-01-01\n}\nwhoami\n}\n" +
		".:0 {\nbind 127.0.0.1\nimport ours\n}\nexample.org:0 {\nbind 127.0.0.1\nimport ours\n}\n"
	if err := caddy.ValidateAndExecuteDirectives(input(corefile), nil, true); err != nil {
		t.Fatal(err)
	}
	if got := lines.about("Corefile:"); len(got) > 0 {
		t.Errorf("Expected that to read a Corefile logs nothing, got %q", got)
	}
	w := &world{t: t}
	w.start(corefile)
	if got := lines.about("Corefile:"); len(got) != 2 || !strings.Contains(got[0], "[WARNING]") || !strings.Contains(got[1], "[INFO]") {
		t.Errorf("Expected one warning and one note, got %q", got)
	}
	caddyMu.Lock()
	err := w.reload(corefile)
	caddyMu.Unlock()
	if got := lines.about("[WARNING] plugin/safebrowsing: Corefile:4: allow old.example.org"); err != nil || len(got) != 2 {
		t.Errorf("Expected the warning again after a reload, got %q, %v", got, err)
	}
	offline, err := ReadCorefile(writeFile(t, ".", "Corefile", corefile))
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range offline {
		defer b.Offline.Close()
		if got := b.Offline.Warnings(); len(got) != 1 || !strings.Contains(got[0], "Corefile:4: allow old.example.org") {
			t.Errorf("Expected the warning of each block for the command line, got %q", got)
		}
	}
	if got := lines.about("[WARNING] plugin/safebrowsing: Corefile:4: allow old.example.org"); len(got) != 2 {
		t.Errorf("Expected that the command line logs no warning, got %q", got)
	}
}

func TestWithoutAKeySafeBrowsingIsSaidToBeOff(t *testing.T) {
	t.Setenv(keyVariable, "")
	t.Setenv("STATE_DIRECTORY", t.TempDir())
	const all = "protocol v5\nmode local\nlists se-4b\nmax_entries 5000\ndb off\nresolver 9.9.9.9\nconfirm_timeout 1s\nunsure pass\nframes pass\nlimit off\ncache 10"
	const note = "to switch it on set api_key"
	for _, tc := range []struct{ text, warning, note string }{
		{"test x.example\nttl 5\nmonitor", "", note},
		{"test x.example\nresolver 9.9.9.9\nlists se-4b", "Testfile:1: Safe Browsing is OFF: there is no API key, so that lists, resolver has no effect. Set api_key", ""},
		{"test x.example\n" + all, strings.Join(onlySafeBrowsing, ", "), ""},
		{"api_key K\n" + all, "", ""},
		{"endpoint http://127.0.0.1:1\n" + all, "", ""},
	} {
		c, err := stanza(t, "safebrowsing {\n"+tc.text+"\n}")
		warnings, notes := strings.Join(c.warnings, "\n"), strings.Join(c.notes, "\n")
		if err != nil || (warnings == "") != (tc.warning == "") || !strings.Contains(warnings, tc.warning) || (notes == "") != (tc.note == "") || !strings.Contains(notes, tc.note) {
			t.Errorf("%q: Expected %q and %q, got %q and %q, %v", tc.text, tc.warning, tc.note, warnings, notes, err)
		}
	}
}

// Server blocks that all are without a key say so once.
func TestSafeBrowsingIsSaidToBeOffOnce(t *testing.T) {
	t.Setenv(keyVariable, "")
	lines := captureLog(t)
	w := &world{t: t}
	w.start(".:0 {\nbind 127.0.0.1\nsafebrowsing {\ntest x.example\n}\nwhoami\n}\n" +
		"example.org:0 {\nbind 127.0.0.1\nsafebrowsing {\ntest x.example\n}\nwhoami\n}\n")
	w.stop()
	lines.only(t, "Safe Browsing is off")
}

func TestOnlyHTTPToAPublicHostIsInClearText(t *testing.T) {
	for endpoint, want := range map[string]bool{
		"":                                     false,
		"https://safebrowsing.googleapis.com":  false,
		"http://127.0.0.1:8099":                false,
		"http://[::1]:8099":                    false,
		"http://10.1.2.3":                      false,
		"http://192.168.1.1":                   false,
		"http://[fd00::1]":                     false,
		"http://169.254.1.1":                   false,
		"http://[fe80::1]":                     false,
		"http://[::ffff:10.1.2.3]":             false,
		"http://localhost:8099":                false,
		"http://relay":                         false,
		"http://relay.local":                   false,
		"http://relay.internal.":               false,
		"http://nas.home.arpa":                 false,
		"http://relay.sb.svc.cluster.local":    false,
		"http://safebrowsing.googleapis.com":   true,
		"HTTP://Safebrowsing.googleapis.com":   true,
		"http://relay.example.org:8099":        true,
		"http://192.0.2.1":                     true,
		"http://[2001:db8::1]":                 true,
		"http://[::ffff:192.0.2.1]":            true,
		"http://0.0.0.0":                       true,
		"http://local.example.org":             true,
		"http://127.0.0.1.example.org:8099/sb": true,
	} {
		if got := inClearText(endpoint); got != want {
			t.Errorf("%q: Expected %v, got %v", endpoint, want, got)
		}
	}
}

func TestHTTPIsAcceptedWithoutAKeyOrInOnesOwnNetwork(t *testing.T) {
	t.Setenv(keyVariable, "")
	for _, text := range []string{"api_key K\nendpoint http://192.168.1.2:8099", "endpoint http://sb.example.org"} {
		c, err := stanza(t, "safebrowsing {\ndb off\n"+text+"\n}")
		if err != nil || len(c.warnings) > 0 || !c.online {
			t.Errorf("%q: Expected to be accepted without a warning, got %q, %v", text, c.warnings, err)
		}
	}
}

func TestKeyFromTheEnvironmentIsNotSentInClearText(t *testing.T) {
	t.Setenv(keyVariable, "SECRET")
	_, err := stanza(t, "safebrowsing {\nendpoint http://sb.example.org\n}")
	if err == nil || !strings.Contains(err.Error(), "Testfile:2 - ") || !strings.Contains(err.Error(), "in clear text") || strings.Contains(err.Error(), "SECRET") {
		t.Errorf("Expected to be refused, got %v", err)
	}
}

func TestGoogleWithoutAKeyIsAWarning(t *testing.T) {
	t.Setenv(keyVariable, "")
	c, err := stanza(t, "safebrowsing {\nendpoint https://safebrowsing.googleapis.com\ndb off\n}")
	if err != nil || len(c.warnings) != 1 || !strings.HasPrefix(c.warnings[0], "Testfile:2: Google's server answers nobody without an API key") {
		t.Errorf("Got %q, %v", c.warnings, err)
	}
}

func TestNoFolderForTheListsIsAWarning(t *testing.T) {
	for _, variable := range []string{"STATE_DIRECTORY", "XDG_CACHE_HOME", "HOME", "LocalAppData"} {
		t.Setenv(variable, "")
	}
	lines := captureLog(t)
	c, err := stanza(t, "safebrowsing {\napi_key K\n}")
	if err != nil || c.db != "" || len(c.warnings) != 1 || !strings.Contains(c.warnings[0], "kept in memory only") {
		t.Errorf("Got db %q, %q, %v", c.db, c.warnings, err)
	}
	if got := lines.about("memory"); len(got) > 0 {
		t.Errorf("Expected that parse logs nothing, got %q", got)
	}
}

// Until is read in the machine's zone, to the end of the day. Another process has
// another zone than that of who runs the tests.
func TestUntilOfTheCorefileIsInTheZoneOfTheMachine(t *testing.T) {
	if os.Getenv("TZ") != "America/New_York" {
		again := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
		again.Env = append(os.Environ(), "TZ=America/New_York")
		if out, err := again.CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	c, err := stanza(t, "safebrowsing {\ntest x.example\nallow a.example until 2097-01-31 *.b.example until 2097-01-31T18:00 c.example until 2097-01-31T18:00:00+05:00\n}")
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{"2097-02-01T05:00:00Z", "2097-01-31T23:00:00Z", "2097-01-31T13:00:00Z"} {
		if got := c.hosts[i]; got.Until.UTC().Format(time.RFC3339) != want || got.Below != (i == 1) {
			t.Errorf("%d: Expected %v, got %+v", i, want, got)
		}
	}
	if want := "Testfile:3: a.example is allowed until 2097-02-01 00:00:00 EST"; len(c.notes) != 4 || c.notes[0] != want {
		t.Errorf("Expected %q, got %q", want, c.notes)
	}
}

// In the Corefile *. and . mean what they mean in a file of allow.
func TestAllowOfTheCorefileUnderstandsWildcards(t *testing.T) {
	corefileFolder(t)
	w := &world{t: t}
	writeFile(t, ".", "block.txt", ".below.example\n.all.example\n.host.example\n")
	w.start(".:0 {\nbind 127.0.0.1\nsafebrowsing {\nblock block.txt\nallow *.below.example .all.example host.example\n}\nwhoami\n}")
	for name, blocked := range map[string]bool{
		"below.example.": true, "a.below.example.": false, "b.a.below.example.": false,
		"all.example.": false, "a.all.example.": false,
		"host.example.": false, "a.host.example.": false,
	} {
		if m := w.ask(name, dns.TypeA); isBlocked(m) != blocked {
			t.Errorf("%s: Expected blocked %v, got\n%v", name, blocked, m)
		}
	}
}

// Whatever a stanza says it is read or refused, with its place, without the key.
func FuzzStanza(f *testing.F) {
	for _, tc := range wrongCorefiles {
		f.Add(tc.text)
	}
	for _, tc := range doubtfulCorefiles {
		f.Add(tc.text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if strings.Contains(text, "api_key_file") || strings.Contains(text, "SECRET") {
			return // files of the machine
		}
		t.Setenv(keyVariable, "SECRET")
		c, err := stanza(t, "safebrowsing {\ndb off\n"+text+"\n}")
		switch {
		case err == nil && (len(c.zones) == 0 || c.secret == ""):
			t.Errorf("%q: Got %+v", text, c)
		case err != nil && (!strings.HasPrefix(err.Error(), "Testfile:") || strings.Contains(err.Error(), "SECRET")):
			t.Errorf("%q: Got %v", text, err)
		}
	})
}
