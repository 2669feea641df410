package config

import (
	"net/netip"
	"os"
	"os/exec"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
	_ "time/tzdata" // for a zone of its own

	"github.com/coredns-safebrowsing/safebrowsing/internal/engine"
	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol"
	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
	"github.com/coredns-safebrowsing/safebrowsing/updater"
)

func TestWithoutAKeySafeBrowsingIsSaidToBeOff(t *testing.T) {
	t.Setenv(KeyVariable, "")
	t.Setenv("STATE_DIRECTORY", t.TempDir())
	cert, key := testkit.Certificate(t, t.TempDir())
	ca := "tls " + cert + " " + key + " " + cert
	const all = "protocol v5\nmode local\nlists se-4b\nmax_entries 100000\nbudget unlimited\ndb off\nresolver 9.9.9.9\nconfirm_timeout 1s\nunsure pass\nlimit off\ncache 10\nlook_back 1h"
	own := listing(t)
	const note = "to switch it on set api_key"
	for _, tc := range []struct{ text, warning, note string }{
		{own + "\nttl 5", "", note},
		{own + "\nresolver 9.9.9.9\nlists se-4b", "Testfile:1: Safe Browsing is OFF: there is no API key, and these properties have no effect: lists, resolver. Set api_key", ""},
		{own + "\nprotocol webrisk\nbudget 5", "Testfile:1: Web Risk is OFF: there is no API key, and these properties have no effect: protocol, budget. Set api_key, api_key_file, token_file or $SAFEBROWSING_API_KEY, or remove them", ""},
		{own + "\n" + ca + "\n" + all, strings.Join(onlySafeBrowsing, ", "), ""},
		{"api_key " + testkit.Key + "\n" + all, "", ""},
		{"endpoint http://127.0.0.1:1\n" + all, "", ""},
	} {
		c, err := stanza(t, "safebrowsing {\n"+tc.text+"\n}")
		warnings, notes := strings.Join(c.Warnings, "\n"), strings.Join(c.Notes, "\n")
		if err != nil || (warnings == "") != (tc.warning == "") || !strings.Contains(warnings, tc.warning) || (notes == "") != (tc.note == "") || !strings.Contains(notes, tc.note) {
			t.Errorf("%q: Expected %q and %q, got %q and %q, %v", tc.text, tc.warning, tc.note, warnings, notes, err)
		}
	}
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
		if got := InClearText(endpoint); got != want {
			t.Errorf("%q: Expected %v, got %v", endpoint, want, got)
		}
	}
}

func TestHTTPIsAcceptedWithoutAKeyOrInOnesOwnNetwork(t *testing.T) {
	t.Setenv(KeyVariable, "")
	for _, text := range []string{"api_key K\nendpoint http://192.168.1.2:8099", "endpoint http://sb.example.org"} {
		c, err := stanza(t, "safebrowsing {\ndb off\n"+text+"\n}")
		if err != nil || len(c.Warnings) > 0 || !c.Online {
			t.Errorf("%q: Expected to be accepted without a warning, got %q, %v", text, c.Warnings, err)
		}
	}
}

func TestKeyFromTheEnvironmentIsNotSentInClearText(t *testing.T) {
	t.Setenv(KeyVariable, "SECRET")
	_, err := stanza(t, "safebrowsing {\nendpoint http://sb.example.org\n}")
	if err == nil || !strings.Contains(err.Error(), "Testfile:2 - ") || !strings.Contains(err.Error(), "in clear text") || strings.Contains(err.Error(), "SECRET") {
		t.Errorf("Expected to be refused, got %v", err)
	}
}

func TestGoogleWithoutAKeyIsAWarning(t *testing.T) {
	t.Setenv(KeyVariable, "")
	c, err := stanza(t, "safebrowsing {\nendpoint https://safebrowsing.googleapis.com\ndb off\n}")
	if err != nil || len(c.Warnings) != 1 || !strings.HasPrefix(c.Warnings[0], "Testfile:2: Google's server answers nobody without an API key") {
		t.Errorf("Got %q, %v", c.Warnings, err)
	}
}

func TestNoFolderForTheListsIsAWarning(t *testing.T) {
	for _, variable := range []string{"STATE_DIRECTORY", "XDG_CACHE_HOME", "HOME", "LocalAppData"} {
		t.Setenv(variable, "")
	}
	c, err := stanza(t, "safebrowsing {\napi_key "+testkit.Key+"\n}")
	if err != nil || c.DB != "" || len(c.Warnings) != 1 || !strings.Contains(c.Warnings[0], "kept in memory only") {
		t.Errorf("Got db %q, %q, %v", c.DB, c.Warnings, err)
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
	c, err := stanza(t, "safebrowsing {\n"+listing(t)+"\nallow a.example until 2097-01-31 *.b.example until 2097-01-31T18:00 c.example until 2097-01-31T18:00:00+05:00\n}")
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{"2097-02-01T05:00:00Z", "2097-01-31T23:00:00Z", "2097-01-31T13:00:00Z"} {
		if got := c.Hosts[i]; got.Until.UTC().Format(time.RFC3339) != want || got.Below != (i == 1) {
			t.Errorf("%d: Expected %v, got %+v", i, want, got)
		}
	}
	if want := "Testfile:3: a.example is allowed until 2097-02-01 00:00:00 EST"; len(c.Notes) != 4 || c.Notes[0] != want {
		t.Errorf("Expected %q, got %q", want, c.Notes)
	}
}

func TestOnlyTheServerOfGoogleIsGoogle(t *testing.T) {
	for text, google := range map[string]bool{
		"api_key K": true,
		"api_key K\nendpoint https://safebrowsing.googleapis.com/": true,
		"api_key K\nendpoint http://127.0.0.1:1":                   false,
	} {
		if c, err := stanza(t, "safebrowsing {\ndb off\n"+text+"\n}"); err != nil || settings(c).Google() != google {
			t.Errorf("%q: Expected google %v, got %v, %v", text, google, settings(c).Google(), err)
		}
	}
}

// placeholders are the words in capitals of usages, with an argument for each.
func placeholders(t *testing.T) *strings.Replacer {
	file := writeFile(t, t.TempDir(), "list.txt", "blocked.example\n"+certificate(t))
	return strings.NewReplacer("FILE", file, "URL", "https://lists.example.org/hosts.txt", "HOST", "x.example", "NAME", "mw-4b", "COUNT", "5000", "DIRECTORY", t.TempDir(), "ADDRESS", "9.9.9.9",
		"ZONES", "lan", "IPV4", "192.0.2.1", "DURATION", "1s", "SIZE", "1MiB", "OPTIONCODE", "65010")
}

// alternatives returns the shortest arguments of each form that a usage has.
func alternatives(usage string) (forms []string) {
	optional := regexp.MustCompile(`\[[^\[\]]*\]`)
	for optional.MatchString(usage) {
		usage = optional.ReplaceAllString(usage, "")
	}
	for form := range strings.SplitSeq(strings.ReplaceAll(usage, "...", ""), "|") {
		forms = append(forms, strings.TrimSpace(form))
	}
	return forms
}

type someLimiter struct{}

func (someLimiter) Admit(netip.Addr, time.Time) bool { return true }

// Each form of a property is accepted, and the last one, which is not the default,
// changes the configuration: the settings of the engine exactly if its word is among
// those that say so, else what the server block decides and answers.
func TestEachPropertyIsReadIntoSettingsOrBlock(t *testing.T) {
	elsewhere := []string{"api_key", "api_key_file", "token_file", "endpoint"}
	needs := map[string]string{"protocol": "budget unlimited", "tls": "endpoint https://relay.internal"}
	cert, key := testkit.Certificate(t, t.TempDir())
	arguments := placeholders(t)
	read := func(line string) Config {
		c, err := stanza(t, "safebrowsing {\napi_key K\n"+line+"\n}")
		if err != nil {
			t.Errorf("%s: %v", line, err)
		}
		c.Service, c.Advisory = "", "" // follow from the protocol
		if c.Limiter != nil {
			c.Limiter = someLimiter{} // limiters cannot be compared
		}
		return c
	}
	for word, usage := range Usages() {
		if slices.Contains(elsewhere, word) {
			continue
		}
		bare := read(needs[word])
		var c Config
		for _, form := range alternatives(usage) {
			args := arguments.Replace(form)
			if word == "tls" {
				args = cert + " " + key
			}
			if word == "look_back" {
				args = "1h"
			}
			if word == "status" {
				args = strings.Replace(args, "9.9.9.9", "127.0.0.1:8053", 1)
			}
			c = read(needs[word] + "\n" + word + " " + args)
		}
		changed, block := c.Engine != bare.Engine, !reflect.DeepEqual(c.Block, bare.Block)
		if shared := slices.Contains(engine.Words(), word); changed != shared || block == shared {
			t.Errorf("%s %s: Expected to change either the settings or the block, and the settings if among %q, got %v and %v", word, usage, engine.Words(), changed, block)
		}
	}
}

// The words of the stanza are those that the engine knows.
func TestWhatAStanzaSaysIsWhatTheEngineTakes(t *testing.T) {
	if got := protocol.DialectNames(); !slices.Equal(got, Protocols) {
		t.Errorf("Expected the protocols %q, got %q", got, Protocols)
	}
	for _, d := range protocol.Dialects() {
		if got := serviceOf(d.Name); got != d.Service || d.Tokens != (d.Name == webRisk) {
			t.Errorf("%s: Expected %s, tokens %v, got %s", d, d.Service, d.Tokens, got)
		}
	}
	if maxMaxEntries != updater.DefaultMaxEntries {
		t.Errorf("Expected at most %d entries, got %d", updater.DefaultMaxEntries, maxMaxEntries)
	}
}
