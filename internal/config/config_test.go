package config

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/coredns/caddy"

	"github.com/coredns-safebrowsing/safebrowsing/internal/engine"
	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol"
	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

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
	tests := []struct {
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
		{"mode realtime", "safebrowsing {\napi_key K\nmode realtime\n}", func(c Config) bool {
			return c.Mode == lookup.RealTime && strings.Join(settings(c).Stored(), " ") == DefaultLists+" "+protocol.GlobalCache
		}},
		{"mode nostorage", "safebrowsing {\napi_key K\nmode nostorage\n}", func(c Config) bool { return c.Mode == lookup.NoStorage && len(settings(c).Stored()) == 0 }},
		{"Web Risk", "safebrowsing {\nprotocol webrisk\nbudget 200\napi_key K\nlists se-ext-4b\n}", func(c Config) bool {
			return c.Budget == 200 && c.Share == 10 && settings(c).Address() == "https://webrisk.googleapis.com" && c.Service == "Web Risk"
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
	tests := []struct{ text, want string }{
		{"", "nothing to block: add api_key KEY, api_key_file FILE or $SAFEBROWSING_API_KEY for Safe Browsing, endpoint URL"},
		{"protocol webrisk\nbudget 5", "nothing to block: add api_key KEY, api_key_file FILE, token_file FILE or $SAFEBROWSING_API_KEY for Web Risk, endpoint URL"},
		{"api_key", "api_key KEY"},
		{"api_key A B", "api_key KEY"},
		{"api_key \"SECRET WORD\"", "a space"},
		{"api_key A\napi_key_file B", "keep one of the two"},
		{"api_key_file " + empty, "empty is empty"},
		{"api_key_file /no/such/file", "no such file"},
		{"endpoint ftp://example.org", "must be a URL such as"},
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
	t.Setenv(KeyVariable, "FROMENV")
	c, err := stanza(t, "safebrowsing")
	if err != nil || c.APIKey != "FROMENV" || !c.Online {
		t.Errorf("Got %v, online %v", err, c.Online)
	}
}
