package config

import (
	"fmt"
	"net/netip"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
	_ "time/tzdata" // for a zone of its own

	"github.com/coredns/caddy"

	"github.com/coredns-safebrowsing/safebrowsing/internal/engine"
	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol"
	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
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
	for want, endpoints := range map[bool][]string{
		false: {
			"", "https://safebrowsing.googleapis.com", "http://127.0.0.1:8099", "http://[::1]:8099", "http://10.1.2.3", "http://192.168.1.1",
			"http://0.0.0.0", "http://[fd00::1]", "http://169.254.1.1", "http://[fe80::1]", "http://[fe80::1%25eth0]:8099", "http://[::ffff:10.1.2.3]", "http://localhost:8099", "http://relay",
			"http://relay.local", "http://relay.internal.", "http://nas.home.arpa", "http://relay.sb.svc.cluster.local",
		},
		true: {
			"http://safebrowsing.googleapis.com", "HTTP://Safebrowsing.googleapis.com", "http://relay.example.org:8099", "http://192.0.2.1",
			"http://[2001:db8::1]", "http://[2001:db8::1%25eth0]", "http://[::ffff:192.0.2.1]", "http://local.example.org", "http://127.0.0.1.example.org:8099/sb",
		},
	} {
		for _, endpoint := range endpoints {
			testkit.Equal(t, endpoint, lookup.InClearText(endpoint), want)
		}
	}
}

func TestWhatIsProbablyAMistakeIsAWarning(t *testing.T) {
	t.Setenv(KeyVariable, "")
	t.Setenv("STATE_DIRECTORY", t.TempDir())
	const relay, google = "endpoint https://relay.example.org\napi_key ", "db off\napi_key "
	for text, want := range map[string]string{ // "": none
		"api_key K\nendpoint http://192.168.1.2:8099": "", "endpoint http://sb.example.org": "",
		"endpoint https://safebrowsing.googleapis.com": "Testfile:2: Google's server answers nobody without an API key",
		google + testkit.Key:                           "", google + testkit.Key[1:]: "Testfile:3: the API key does not look like one of Google",
		google + testkit.Key + "x": "Testfile:3: the API key does not look like one of Google", google + "hunter2": "Testfile:3: the API key does not look",
		relay + "K": "", relay + "SECRET": "", relay + "hunter2": "", relay + "a.b-c_d": "", relay + "/3aB+x9/Zk3mQ2r8yT1uWw==": "",
		relay + "a=": "", relay + "Zm9vYmFy==": "", relay + "token:abc": "",
		"db off\nblock https://lists.example.org/a":         "Testfile:2: db is off: lists by URL are fetched at each start",
		"block http://me:s3cret@lists.example.org/a?s3cret": "Testfile:2: http://lists.example.org/a#4ba0 is fetched by http",
		"block http://192.168.1.1/a":                        "",
	} {
		c, err := stanza(t, "safebrowsing {\n"+text+"\n}")
		if got := strings.Join(c.Warnings, "\n"); err != nil || !strings.HasPrefix(got, want) || want == "" && got != "" || strings.Contains(got, "s3cret") {
			t.Errorf("%s: Expected %q, got %q, %v", text, want, got, err)
		}
	}
}

func TestNoFolderForTheListsIsAWarning(t *testing.T) {
	for _, variable := range []string{"STATE_DIRECTORY", "XDG_CACHE_HOME", "HOME", "LocalAppData"} {
		t.Setenv(variable, "")
	}
	c, err := stanza(t, "safebrowsing {\napi_key "+testkit.Key+"\n}")
	testkit.Must(t, err)
	testkit.Equal(t, "folder, warnings", fmt.Sprint(c.DB, len(c.Warnings)), "1")
	testkit.WantParts(t, c.Warnings[0], "kept in memory only")
}

// Until is read in the machine's zone, to the end of the day.
func TestUntilOfTheCorefileIsInTheZoneOfTheMachine(t *testing.T) {
	defer func(l *time.Location) { time.Local = l }(time.Local)
	time.Local = time.FixedZone("EST", -5*3600)
	c, err := stanza(t, "safebrowsing {\n"+listing(t)+"\nallow a.example until 2097-01-31 *.b.example until 2097-01-31T18:00 c.example until 2097-01-31T18:00:00+05:00\n}")
	testkit.Must(t, err)
	for i, want := range []string{"2097-02-01T05:00:00Z", "2097-01-31T23:00:00Z", "2097-01-31T13:00:00Z"} {
		testkit.Equal(t, i, c.Hosts[i].Until.UTC().Format(time.RFC3339), want)
		testkit.Equal(t, i, c.Hosts[i].Below, i == 1)
	}
	testkit.Equal(t, "notes", len(c.Notes), 4)
	testkit.Equal(t, "the first note", c.Notes[0], "Testfile:3: a.example is allowed until 2097-02-01 00:00:00 EST")
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

// Each form of a property is accepted, and the last one, which is not the default, changes the configuration: the settings of the
// engine exactly if its word is among those that say so, else what the server block decides and answers.
func TestEachPropertyIsReadIntoSettingsOrBlock(t *testing.T) {
	elsewhere := []string{"api_key", "api_key_file", "token_file", "endpoint"}
	needs := map[string]string{"protocol": "budget unlimited", "tls": "endpoint https://relay.internal"}
	cert, key := testkit.Certificate(t, t.TempDir())
	arguments := placeholders(t)
	read := func(line string) Config {
		c, err := stanza(t, "safebrowsing {\napi_key K\n"+line+"\n}")
		testkit.Is(t, line, err, nil)
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
			switch word {
			case "tls":
				args = cert + " " + key
			case "look_back":
				args = "1h"
			case "status":
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
	testkit.Equal(t, "protocols", protocol.DialectNames(), Protocols)
	for _, d := range protocol.Dialects() {
		testkit.Equal(t, d, serviceOf(d.Name), d.Service)
		testkit.Equal(t, d, d.Name == webRisk, d.Tokens)
	}
	testkit.Equal(t, "most entries", maxMaxEntries, updater.DefaultMaxEntries)
}

// stanza parses properties as they stand between the braces.
func stanza(t *testing.T, text string) (Config, error) {
	t.Helper()
	c := caddy.NewTestController("dns", text)
	c.ServerBlockKeys = []string{"."}
	cfg, err := Parse(c, "")
	if err == nil {
		err = settings(cfg).Check(cfg.Secret, cfg.Online, &cfg)
	}
	return cfg, err
}

// refused wants an error about a stanza that says where and what, and no secret.
func refused(t *testing.T, text string, parts ...string) {
	t.Helper()
	_, err := stanza(t, text)
	testkit.WantError(t, err, parts...)
	testkit.WantStart(t, fmt.Sprint(err), "Testfile:")
	testkit.WantNone(t, fmt.Sprint(err), "s3cret", "SECRET")
}

// Its zones are its name in status, in metrics and in what is remembered.
func TestAServerBlockOfSeveralTransportsHasEachZoneOnce(t *testing.T) {
	c := caddy.NewTestController("dns", "safebrowsing {\n"+listing(t)+"\n}")
	c.ServerBlockKeys = []string{"dns://.:53", "dns://example.org.:53", "tls://.:853"}
	cfg, err := Parse(c, "")
	testkit.Must(t, err)
	testkit.Equal(t, "zones", cfg.Zones, []string{".", "example.org."})
}

func settings(c Config) engine.Settings { return engine.Settings(c.Engine) }

// listing returns the property of an own list, which alone is something to block.
func listing(t *testing.T) string {
	t.Helper()
	return "block " + writeFile(t, t.TempDir(), "own.txt", "x.example\n")
}

var writeFile = testkit.Write

func TestParseAcceptsAndKeepsWhatItReads(t *testing.T) {
	dir := t.TempDir()
	own := writeFile(t, dir, "own.txt", "\uFEFFevil.example\r\n# comment\n\nbad line here\nBücher.example # trailing\n")
	key := writeFile(t, dir, "key", "  KEYINFILE\n")
	t.Setenv("STATE_DIRECTORY", "/var/lib/one:/var/lib/two")
	for _, tc := range []struct {
		name, text string
		want       func(Config) bool
	}{
		{"defaults", "safebrowsing {\napi_key K\n}", func(c Config) bool {
			return c.APIKey == "K" && c.Lists == DefaultLists && c.TTL == time.Minute && c.ConfirmTimeout == 500*time.Millisecond &&
				c.DB == "/var/lib/one" && c.Respond == lookup.NXDOMAIN && !c.UnsureFails && c.Online && c.Zones[0] == "."
		}},
		{"key from a file", "safebrowsing {\napi_key_file " + key + "\n}", func(c Config) bool {
			return c.Secret == "KEYINFILE" && c.Engine.KeyFile == key && c.Engine.APIKey == ""
		}},
		{"endpoint without a key", "safebrowsing {\nendpoint http://127.0.0.1:1/\n}", func(c Config) bool { return c.Online && c.Endpoint == "http://127.0.0.1:1" }},
		{"no keep_clients", "safebrowsing {\nblock " + own + "\n}", func(c Config) bool { return c.Keep == KeepResolver }},
		{"keep_clients", "safebrowsing {\nblock " + own + "\nkeep_clients\n}", func(c Config) bool { return c.Keep == KeepCanaries }},
		{"keep_clients off", "safebrowsing {\nblock " + own + "\nkeep_clients off\n}", func(c Config) bool { return c.Keep == KeepNothing }},
		{"own lists alone", "safebrowsing {\nblock " + own + "\n}", func(c Config) bool {
			return !c.Online && len(c.Own) == 1 && c.Own[0] == OwnFile{Path: own}
		}},
		{"a db where a pause is written", "safebrowsing {\nblock " + own + "\ndb " + dir + "\n}", func(c Config) bool { return c.PauseFolder() == dir && len(c.Warnings) == 0 }},
		{"mode realtime", "safebrowsing {\napi_key K\nmode realtime\n}", func(c Config) bool {
			return c.Mode == lookup.RealTime && strings.Join(settings(c).Stored(), " ") == DefaultLists+" "+protocol.GlobalCache
		}},
		{"mode nostorage", "safebrowsing {\napi_key K\nmode nostorage\n}", func(c Config) bool { return c.Mode == lookup.NoStorage && len(settings(c).Stored()) == 0 }},
		{"Web Risk", "safebrowsing {\nprotocol webrisk\nbudget 200\napi_key K\nlists se-4b se-ext-4b\n}", func(c Config) bool {
			return c.Budget == 200 && c.Share == 10 && settings(c).Address() == "https://webrisk.googleapis.com" && c.Service == "Web Risk" &&
				!strings.Contains(strings.Join(c.Warnings, "\n"), "se-ext-4b")
		}},
		{"Web Risk with a token", "safebrowsing {\nprotocol webrisk\nbudget unlimited\ntoken_file " + key + "\n}", func(c Config) bool {
			return c.Token && c.Secret == "KEYINFILE" && c.Budget == 0
		}},
		{"a budget for others", "safebrowsing {\napi_key K\nbudget 9000 50%\n}", func(c Config) bool { return c.Budget == 9000 && c.Share == 50 && c.Service == "Safe Browsing" }},
		{"the default limit", "safebrowsing {\napi_key K\n}", func(c Config) bool { return admitted(c) == DefaultBurst }},
		{"limit leaky_bucket", "safebrowsing {\napi_key K\nlimit leaky_bucket\n}", func(c Config) bool { return admitted(c) == DefaultBurst }},
		{"limit leaky_bucket with numbers", "safebrowsing {\napi_key K\nlimit leaky_bucket 1 7\n}", func(c Config) bool { return admitted(c) == 7 }},
		{"limit ema", "safebrowsing {\napi_key K\nlimit ema 2.5\n}", func(c Config) bool { return c.Limiter != nil && admitted(c) > DefaultBurst }},
		{"a cache by its memory", "safebrowsing {\napi_key K\ncache 3MiB\n}", func(c Config) bool { return c.Engine.Cache == 3<<20/300 }},
		{"limit off", "safebrowsing {\napi_key K\nlimit off\n}", func(c Config) bool { return c.Limiter == nil }},
		{"resolvers on a link", "safebrowsing {\napi_key K\nresolver fe80::1%eth0 [fe80::1%eth0] [fe80::1%eth0]:5353\n}", func(c Config) bool {
			return c.Resolvers == "[fe80::1%eth0]:53 [fe80::1%eth0]:53 [fe80::1%eth0]:5353"
		}},
		{"zones", "safebrowsing example.org Example.NET {\napi_key K\n}", func(c Config) bool { return len(c.Zones) == 2 && c.Zones[1] == "example.net." }},
		{"everything", `safebrowsing {
			api_key K
			endpoint https://safebrowsing.example
			lists se-4b own-32b
			max_entries 4096
			db off
			resolver 9.9.9.9 [2620:fe::fe]:5353
			allow good.example ` + own + `
			allow better.example until 2027-01-31 best.example
			except lan corp.example
			respond sinkhole 192.0.2.1 2001:db8::1
			ttl 5
			confirm_timeout 250ms
			unsure servfail
			cache 12
		}`, func(c Config) bool {
			return c.Lists == "se-4b own-32b" && c.MaxEntries == 4096 && c.DB == "" && c.Resolvers == "9.9.9.9:53 [2620:fe::fe]:5353" &&
				len(c.Own) == 1 && c.Own[0].Allow && len(c.Hosts) == 3 && c.Hosts[1].Until.Format(time.DateOnly) == "2027-02-01" && c.Hosts[2].Until.IsZero() && len(c.Except) == 2 && c.Respond == lookup.Sinkhole && c.IPv6.String() == "2001:db8::1" &&
				c.TTL == 5*time.Second && c.ConfirmTimeout == 250*time.Millisecond && c.UnsureFails && c.Engine.Cache == 12
		}},
	} {
		if got, err := stanza(t, tc.text); err != nil || !tc.want(got) {
			t.Errorf("%s: %+v, %v", tc.name, got, err)
		}
	}
}

// admitted is how many searches at one moment the limiter admits, at most 100.
func admitted(c Config) (n int) {
	client, now := netip.MustParseAddr("192.0.2.1"), time.Now()
	for range 100 {
		if c.Limiter.Admit(client, now) {
			n++
		}
	}
	return n
}

func TestParseRefusesWithFileLineAndAdvice(t *testing.T) {
	empty := writeFile(t, t.TempDir(), "empty", "\n")
	key := writeFile(t, t.TempDir(), "key", "SECRET\n")
	spaced := writeFile(t, t.TempDir(), "token", `{"access_token": "SECRET"}`)
	for _, tc := range []struct{ text, want string }{
		{"", "nothing to block: add api_key KEY, api_key_file FILE or $SAFEBROWSING_API_KEY for Safe Browsing, endpoint URL"},
		{"protocol webrisk\nbudget 5", "nothing to block: add api_key KEY, api_key_file FILE, token_file FILE or $SAFEBROWSING_API_KEY for Web Risk, endpoint URL"},
		{"api_key", "api_key KEY"},
		{"api_key A B", "api_key KEY"},
		{"api_key \"SECRET WORD\"", "a space"},
		{"api_key A\napi_key_file B", "keep one of the two"},
		{"api_key_file " + empty, "empty is empty"},
		{"api_key_file /no/such/file", "no such file"},
		{"endpoint ftp://example.org", "must be a URL such as"},
		{"api_key K\nendpoint /", "must be a URL such as"}, // as {$RELAY}/ is, if there is no such variable: Google is not meant
		{"endpoint https://a.example /", "must be a URL such as"},
		{"endpoint http://u:p@example.org", "must be a URL such as"},
		{"api_key K\nlists own", "must end in -4b, -8b, -16b or -32b"},
		{"api_key K\nlists ../se-4b", "must end in"},
		{"api_key K\nlists se-4b se-4b", "se-4b is given more than once"},
		{"api_key K\nrespond nxdomain 192.0.2.1", "takes no address"},
		{"api_key K\nrespond sinkhole", "takes an IPv4 address"},
		{"api_key K\nrespond sinkhole x", "not an IP address"},
		{"api_key K\nlimit off 3", "takes no"},
		{"api_key K\nlimit leaky_bucket 0", "more than 0"},
		{"api_key K\nlimit leaky_bucket 1 0.5", "a burst at least 1"},
		{"api_key K\nlimit ema NaN", "more than 0"},
		{"api_key K\nstructured 0", "not a number from 1"},
		{"api_key K\nstructured 65010 https://example.org", "must begin with mailto: or tel:"},
		{"api_key K\ncache none", "not a number"},
		{"api_key K\ncache 5GiB", "not a size from 1KiB to 4GiB"},
		{"api_key K\ncache 12parrots", "not a size such as 64MiB"},
		{"api_key K\nprotocol webrisk", "each search costs money: add budget COUNT for the most searches a day, or budget unlimited"},
		{"api_key K\nprotocol webrisk\nbudget 5\nlists pha-4b", `protocol webrisk has no list "pha-4b", only mw-4b, se-4b, se-ext-4b, uws-4b`},
		{"api_key K\nprotocol webrisk\nbudget 5\nlists mv-4b", "did you mean mw-4b?"},
		{"api_key K\nbudget 0", "not a number from 1"},
		{"api_key K\nbudget -1", "not a number from 1"},
		{"api_key K\nbudget none", "not a number from 1"},
		{"api_key K\nbudget 10 10", `"10" is not a share of the budget such as 10%`},
		{"api_key K\nbudget 10 0%", "not a share"},
		{"api_key K\nbudget 10 101%", "not a share"},
		{"api_key K\nbudget unlimited 10%", "unlimited takes no share"},
		{"protocol webrisk\nbudget unlimited\ntoken_file " + spaced, "holds JSON, as of a service account or an OAuth client"},
		{"api_key_file " + spaced, "holds JSON, as of a service account"},
		{"token_file " + key, "protocol v5 takes no token: use api_key or api_key_file"},
		{"api_key K\ntoken_file " + key, "the stanza has api_key, too: keep one of the two"},
		{"api_key K\nendpoint https://webrisk.googleapis.com", "https://webrisk.googleapis.com does not speak protocol v5"},
		{"api_key K\nbudget 5\nprotocol webrisk\nendpoint https://safebrowsing.googleapis.com", "does not speak protocol webrisk"},
	} {
		refused(t, "safebrowsing {\n"+tc.text+"\n}", tc.want)
	}
	refused(t, "safebrowsing {\napi_key K\n}\nsafebrowsing {\napi_key K\n}", "more than once in this server block")
}
