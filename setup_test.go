package safebrowsing

import (
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/coredns/caddy"

	"github.com/coredns-safebrowsing/safebrowsing/internal/answer"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

// stanza parses properties as they stand between the braces.
func stanza(t *testing.T, text string) (config, error) {
	t.Helper()
	c := caddy.NewTestController("dns", text)
	c.ServerBlockKeys = []string{"."}
	return parse(c, "")
}

func TestParseAcceptsAndKeepsWhatItReads(t *testing.T) {
	dir := t.TempDir()
	own := writeFile(t, dir, "own.txt", "\uFEFFevil.example\r\n# comment\n\nbad line here\nBücher.example # trailing\n")
	key := writeFile(t, dir, "key", "  KEYINFILE\n")
	t.Setenv("STATE_DIRECTORY", "/var/lib/one:/var/lib/two")
	tests := []struct {
		name, text string
		want       func(config) bool
	}{
		{"defaults", "safebrowsing {\napi_key K\n}", func(c config) bool {
			return c.key == "K" && c.lists == defaultLists && c.TTL == time.Minute && c.confirmTimeout == 500*time.Millisecond &&
				c.db == "/var/lib/one" && c.Mode == answer.NXDOMAIN && !c.unsureFails && c.frames == lookup.BlockFrames && c.online && c.zones[0] == "."
		}},
		{"key from a file", "safebrowsing {\napi_key_file " + key + "\n}", func(c config) bool {
			return c.secret == "KEYINFILE" && c.settings.keyFile == key && c.settings.key == ""
		}},
		{"endpoint without a key", "safebrowsing {\nendpoint http://127.0.0.1:1/\n}", func(c config) bool { return c.online && c.endpoint == "http://127.0.0.1:1" }},
		{"own lists alone", "safebrowsing {\nblock " + own + "\n}", func(c config) bool {
			return !c.online && c.settings == (settings{}) && len(c.own) == 1 && c.own[0] == ownFile{path: own}
		}},
		{"mode realtime", "safebrowsing {\napi_key K\nmode realtime\n}", func(c config) bool {
			return c.mode == lookup.RealTime && strings.Join(c.stored(), " ") == defaultLists+" "+globalCache
		}},
		{"mode nostorage", "safebrowsing {\napi_key K\nmode nostorage\n}", func(c config) bool { return c.mode == lookup.NoStorage && len(c.stored()) == 0 }},
		{"the default limit", "safebrowsing {\napi_key K\n}", func(c config) bool { return admitted(c) == defaultBurst }},
		{"limit leaky_bucket", "safebrowsing {\napi_key K\nlimit leaky_bucket\n}", func(c config) bool { return admitted(c) == defaultBurst }},
		{"limit leaky_bucket with numbers", "safebrowsing {\napi_key K\nlimit leaky_bucket 1 7\n}", func(c config) bool { return admitted(c) == 7 }},
		{"limit ema", "safebrowsing {\napi_key K\nlimit ema 2.5\n}", func(c config) bool { return c.limiter != nil && admitted(c) > defaultBurst }},
		{"limit off", "safebrowsing {\napi_key K\nlimit off\n}", func(c config) bool { return c.limiter == nil }},
		{"zones", "safebrowsing example.org Example.NET {\napi_key K\n}", func(c config) bool { return len(c.zones) == 2 && c.zones[1] == "example.net." }},
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
			frames pass
			cache 12
		}`, func(c config) bool {
			return c.lists == "se-4b own-32b" && c.maxEntries == 4096 && c.db == "" && c.resolvers == "9.9.9.9:53 [2620:fe::fe]:5353" &&
				len(c.own) == 1 && c.own[0].allow && len(c.hosts) == 3 && c.hosts[1].Until.Format(time.DateOnly) == "2027-02-01" && c.hosts[2].Until.IsZero() && len(c.except) == 2 && c.Mode == answer.Sinkhole && c.IPv6.String() == "2001:db8::1" &&
				c.TTL == 5*time.Second && c.confirmTimeout == 250*time.Millisecond && c.unsureFails && c.frames == lookup.PassFrames && c.settings.cache == 12
		}},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			got, err := stanza(t, tc.text)
			if err != nil {
				t.Fatal(err)
			}
			if !tc.want(got) {
				t.Errorf("Got %+v", got)
			}
		})
	}
}

// admitted is how many searches at one moment the limiter admits, at most 100.
func admitted(c config) (n int) {
	client, now := netip.MustParseAddr("192.0.2.1"), time.Now()
	for range 100 {
		if c.limiter.Admit(client, now) {
			n++
		}
	}
	return n
}

func writeFile(t *testing.T, dir, name, text string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestParseRefusesWithFileLineAndAdvice(t *testing.T) {
	empty := writeFile(t, t.TempDir(), "empty", "\n")
	tests := []struct{ text, want string }{
		{"", "nothing to block: add api_key"},
		{"api_key", "api_key KEY"},
		{"api_key A B", "api_key KEY"},
		{"api_key \"SECRET WORD\"", "a space"},
		{"api_key A\napi_key B", "more than once: it is at Testfile:2 already"},
		{"api_key A\napi_key_file B", "keep one of the two"},
		{"api_key_file " + empty, "empty is empty"},
		{"api_key_file /no/such/file", "no such file"},
		{"nonsense", `unknown property "nonsense"`},
		{"endpoint ftp://example.org", "must be a URL such as"},
		{"endpoint http://u:p@example.org", "must be a URL such as"},
		{"api_key K\nlists own", "must end in -4b, -8b, -16b or -32b"},
		{"api_key K\nlists ../se-4b", "must end in"},
		{"api_key K\nlists se-4b se-4b", "named more than once"},
		{"api_key K\nlists gc-32b", "likely safe"},
		{"api_key K\nmax_entries 7", "from 1024"},
		{"api_key K\nresolver dns.example", "not an IP address"},
		{"block /no/such/file", "there is no file /no/such/file"},
		{"api_key K\nallow /no/such/file", "there is no file /no/such/file"},
		{"api_key K\nallow a:b", "is not a host"},
		{"api_key K\nallow good.example until", "until needs a date"},
		{"api_key K\nallow good.example until tomorrow", "neither a date such as"},
		{"api_key K\nrespond teapot", "not one of nxdomain"},
		{"api_key K\nrespond nxdomain 192.0.2.1", "takes no address"},
		{"api_key K\nrespond sinkhole", "takes an IPv4 address"},
		{"api_key K\nrespond sinkhole x", "not an IP address"},
		{"api_key K\nrespond sinkhole 192.0.2.1 192.0.2.2", "one IPv4 and one IPv6"},
		{"api_key K\nttl 1h", "more than 30m"},
		{"api_key K\nttl soon", "not a duration"},
		{"api_key K\nconfirm_timeout 1h", "more than 10s"},
		{"api_key K\nmode quick", "not one of local, realtime, nostorage"},
		{"api_key K\nlimit none", "not one of leaky_bucket, ema, off"},
		{"api_key K\nlimit off 3", "takes no"},
		{"api_key K\nlimit leaky_bucket 0", "more than 0"},
		{"api_key K\nlimit leaky_bucket 1 0.5", "a burst at least 1"},
		{"api_key K\nlimit ema NaN", "more than 0"},
		{"api_key K\ninspect mx", "is not cname"},
		{"api_key K\nstructured 0", "not a number from 1"},
		{"api_key K\nstructured 65010 https://example.org", "must begin with mailto: or tel:"},
		{"api_key K\ntest a:b", "is not a host"},
		{"api_key K\nunsure maybe", "not one of pass, servfail"},
		{"api_key K\nframes maybe", "not one of block, pass"},
		{"api_key K\ncache none", "not a number"},
	}
	for _, tc := range tests {
		_, err := stanza(t, "safebrowsing {\n"+tc.text+"\n}")
		if err == nil || !strings.Contains(err.Error(), tc.want) || !strings.HasPrefix(err.Error(), "Testfile:") {
			t.Errorf("%q: Expected an error with place and %q, got %v", tc.text, tc.want, err)
		}
		if err != nil && strings.Contains(err.Error(), "SECRET") {
			t.Errorf("%q: The error tells the key: %v", tc.text, err)
		}
	}
	if _, err := stanza(t, "safebrowsing {\napi_key K\n}\nsafebrowsing {\napi_key K\n}"); err == nil || !strings.Contains(err.Error(), "more than once in this server block") {
		t.Errorf("Expected an error for a second stanza, got %v", err)
	}
}

func TestKeyComesFromTheEnvironmentToo(t *testing.T) {
	t.Setenv(keyVariable, "FROMENV")
	c, err := stanza(t, "safebrowsing")
	if err != nil || c.key != "FROMENV" || !c.online {
		t.Errorf("Got %v, online %v", err, c.online)
	}
}

func TestWrongPlaceInTheOrderIsRefused(t *testing.T) {
	tests := []struct {
		directives string
		ok         bool
	}{
		{"errors acl safebrowsing cache forward", true},
		{"errors", true}, // not compiled in by name: nothing to say
		{"errors acl cache safebrowsing forward", false},
		{"errors cache forward on sign view safebrowsing", false},
		{"errors hosts safebrowsing", false},
	}
	for _, tc := range tests {
		err := checkPosition(strings.Fields(tc.directives))
		if (err == nil) != tc.ok {
			t.Errorf("%s: Expected ok %v, got %v", tc.directives, tc.ok, err)
		}
		if err != nil && !strings.Contains(err.Error(), "plugin.cfg") {
			t.Errorf("%s: Expected advice, got %v", tc.directives, err)
		}
	}
}

func TestTwoEnginesForOneKeyOrInOneFolderAreRefused(t *testing.T) {
	with := func(key, db string, cache int) config {
		return config{online: true, secret: key, settings: settings{key: key, db: db, cache: cache}}
	}
	for _, tc := range []struct {
		name         string
		first, again config
		want         string
	}{
		{"equal settings", with("A", "/db", 0), with("A", "/db", 0), ""},
		{"another key in another folder", with("A", "/db", 0), with("B", "/other", 0), ""},
		{"another key without folders", with("A", "", 0), with("B", "", 0), ""},
		{"another key in the same folder", with("A", "/db", 0), with("B", "/db", 0), "own db"},
		{"the same key in another folder", with("A", "/db", 0), with("A", "/other", 0), "with the same key"},
		{"the same key with another cache", with("A", "", 0), with("A", "", 7), "with the same key"},
		{"own lists only", config{}, config{}, ""},
	} {
		c := caddy.NewTestController("dns", "")
		if err := claim(c, tc.first); err != nil {
			t.Fatal(err)
		}
		err := claim(c, tc.again)
		if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: Expected %q, got %v", tc.name, tc.want, err)
		}
	}
}
