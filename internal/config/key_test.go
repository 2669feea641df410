package config

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/coredns/caddy/caddyfile"
	"github.com/coredns/coredns/core/dnsserver"

	"github.com/coredns-safebrowsing/safebrowsing/internal/say"
	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
)

// People write keys into wrong places, and what refuses them reaches journals and bug reports.
func TestAKeyInAnyPlaceOfAStanzaIsInNoText(t *testing.T) {
	t.Setenv("STATE_DIRECTORY", t.TempDir())
	t.Setenv(KeyVariable, "")
	for _, secret := range []string{testkit.Key, testkit.Token} {
		for _, text := range testkit.Stanzas(Usages(), secret) {
			c, err := stanza(t, text)
			if said := fmt.Sprint(err, c.Warnings, c.Notes, c.DB, c.Zones, c.Except, c.Endpoint, c.Status, c.Structured, c.Lists); testkit.Leaks(said, secret) {
				t.Errorf("%q: %s", text, said)
			}
			for _, own := range c.Own {
				testkit.Equal(t, own.Name(), testkit.Leaks(own.Name(), secret), false)
			}
			testkit.Equal(t, "keys that became hosts: "+text, len(c.Hosts), 0)
		}
	}
}

func TestWhatCannotBeAKeyIsRefusedWithWhatToWrite(t *testing.T) {
	t.Setenv("STATE_DIRECTORY", t.TempDir())
	for key, want := range map[string]string{
		"/etc/coredns/safebrowsing.key":           "is a path and not a key: did you mean api_key_file?",
		"/run/secrets/safebrowsing":               "did you mean api_key_file?",
		"./key":                                   "did you mean api_key_file?",
		"safebrowsing.key":                        "did you mean api_key_file?",
		"KEY":                                     "a placeholder",
		"YOUR-API-KEY":                            "a placeholder",
		"<YOUR_API_KEY>":                          "a placeholder",
		"12-ab.apps.googleusercontent.com":        "the ID of an OAuth client",
		"SAFEBROWSING_API_KEY=" + testkit.Key:     "an assignment and not a key: write only what follows the =",
		"'" + testkit.Key + "'":                   "in quotes",
		"https://console.cloud.google.com/x":      "a URL",
		"$SAFEBROWSING_API_KEY":                   "write {$NAME}",
		`{"type":"service_account","id":"12345"}`: "JSON, as of a service account",
	} {
		quoted := `"` + strings.ReplaceAll(key, `"`, `\"`) + `"`
		_, err := stanza(t, "safebrowsing {\napi_key "+quoted+"\n}")
		testkit.WantError(t, err, want)
		testkit.WantStart(t, fmt.Sprint(err), "Testfile:2 - ")
		file := writeFile(t, t.TempDir(), "f", key+"\n")
		_, fileErr := say.ReadKey(file)
		testkit.WantError(t, fileErr, file+" holds ")
		testkit.WantNone(t, fmt.Sprint(err, fileErr), key)
		t.Setenv(KeyVariable, key)
		_, _, err = KeyOfProcess()
		testkit.WantError(t, err, "$"+KeyVariable+" holds ")
		testkit.Equal(t, err, len(key) > 25 && strings.Contains(fmt.Sprint(err), key), false)
		t.Setenv(KeyVariable, "")
	}
}

// systemd.exec(5), LoadCredential=: each credential is a file in $CREDENTIALS_DIRECTORY.
func TestKeyComesFromACredentialToo(t *testing.T) {
	const own = "safebrowsing {\nblock ../../testdata/blocklist.txt\n}"
	for _, tc := range []struct {
		name, stanza, credential, variable string
		key, apiKey                        string // key: in force; apiKey: not in a file that is watched
		fromFile                           bool
		note                               string
	}{
		{"a credential alone", "safebrowsing", "FROMCRED\n", "", "FROMCRED", "", true, ""},
		{"a credential goes before the environment", "safebrowsing", "FROMCRED", "FROMENV", "FROMCRED", "", true, ""},
		{"the Corefile goes before a credential", "safebrowsing {\napi_key MINE\n}", "FROMCRED", "FROMENV", "MINE", "MINE", false, ""},
		{"no credential", "safebrowsing", "none", "FROMENV", "FROMENV", "FROMENV", false, ""},
		{"a line break after the key in the environment, as of a secret made by echo", "safebrowsing", "none", "FROMENV\r\n", "FROMENV", "FROMENV", false, ""},
		{"an empty credential is none", "safebrowsing", "\n", "FROMENV", "FROMENV", "FROMENV", false, ""},
		{"an empty credential starts with own lists", own, "\n", "", "", "", false, "put the key into the file of the credential safebrowsing.key and restart the service"},
	} {
		dir := t.TempDir()
		if tc.credential != "none" {
			writeFile(t, dir, Credential, tc.credential)
		}
		t.Setenv("CREDENTIALS_DIRECTORY", dir)
		t.Setenv(KeyVariable, tc.variable)
		c, err := stanza(t, tc.stanza)
		testkit.Must(t, err)
		testkit.Equal(t, tc.name, []string{c.Secret, c.APIKey}, []string{tc.key, tc.apiKey})
		testkit.Equal(t, tc.name+": online", c.Online, tc.key != "")
		testkit.Equal(t, tc.name+": from its file", c.KeyFile == filepath.Join(dir, Credential), tc.fromFile)
		testkit.WantParts(t, strings.Join(c.Notes, "\n"), tc.note)
	}
	dir := t.TempDir() // a key that is there but cannot be read must not be taken for no key
	testkit.Must(t, os.Mkdir(filepath.Join(dir, Credential), 0o700))
	t.Setenv("CREDENTIALS_DIRECTORY", dir)
	t.Setenv(KeyVariable, "FROMENV")
	refused(t, "safebrowsing", "Testfile:1", "$CREDENTIALS_DIRECTORY")
}

func TestPropertiesOfEarlierVersionsAreRefusedWithWhatToWrite(t *testing.T) {
	for word := range removed {
		refused(t, "safebrowsing {\napi_key K\n"+word+" x\n}", word+" is no longer a property: ", ":3")
	}
}

func TestEqualPathsAreOneFileEvenWhileItIsReplaced(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	for _, name := range []string{"one", "two"} {
		writeFile(t, ".", name, "")
	}
	testkit.Must(t, os.Symlink("one", "link"))
	for _, tc := range []struct {
		a, b string
		want bool
	}{
		{"one", "one", true},
		{"one", filepath.Join(dir, "one"), true},
		{"one", "link", true},
		{"one", "two", false},
		{"gone", "gone", true}, // between the two names of a replacement
		{"gone", filepath.Join(dir, "gone"), true},
		{"gone", "one", false},
	} {
		testkit.Equal(t, fmt.Sprint(tc.a, " ", tc.b), SameFile(tc.a, tc.b), tc.want)
	}
}

func TestStatusPageOfOthersNeedsTheWordPublic(t *testing.T) {
	for line, want := range map[string]string{
		"127.0.0.1:8053":             "",
		"127.7.7.7:8053 names":       "",
		"[::1]:8053":                 "",
		"[::ffff:127.0.0.1]:8053":    "",
		"localhost:8053":             "",
		"192.0.2.1:8053 public":      "",
		":8053 names public":         "",
		"192.0.2.1:8053":             "other machines can reach 192.0.2.1:8053",
		"0.0.0.0:8053 names":         "add public if that is wanted, or use 127.0.0.1:8053",
		":8053":                      "add public",
		"[::]:8053":                  "add public",
		"127.0.0.1":                  "is not an address with a port, such as 127.0.0.1:8053",
		"status.example:8053 public": `"status.example" is not an IP address`,
		"127.0.0.1:http":             "the port is not a number from 0 to 65535",
		"127.0.0.1:70000":            "the port is not a number from 0 to 65535",
		"127.0.0.1:8053 name":        `"name" is neither names nor public`,
	} {
		c, err := stanza(t, "safebrowsing {\n endpoint http://127.0.0.1:1\n status "+line+"\n}")
		if want != "" {
			testkit.WantError(t, err, want)
		} else if err != nil || c.Status == "" || c.StatusNames != strings.Contains(line, "names") {
			t.Errorf("status %s: %v, %q %v", line, err, c.Status, c.StatusNames)
		}
	}
}

func corefileOf(t *testing.T, text string) []caddyfile.ServerBlock {
	t.Helper()
	blocks, err := caddyfile.Parse("Corefile", strings.NewReader(text), nil)
	testkit.Must(t, err)
	return blocks
}

// CoreDNS cannot resolve the names of servers through itself before it answers.
func TestAResolverThatIsThisCorefileIsSaid(t *testing.T) {
	machine := []netip.Addr{netip.MustParseAddr("192.0.2.1")}
	for _, tc := range []struct {
		name, stanza, listens, system string
		warns                         bool
	}{
		{"resolver is this server", "api_key K\nresolver 127.0.0.1", ".", "192.0.2.53:53", true},
		{"by an address of the machine", "api_key K\nresolver 192.0.2.1:1053", ".:1053", "192.0.2.53:53", true},
		{"another port", "api_key K\nresolver 127.0.0.1:5353", ".", "192.0.2.53:53", false},
		{"another machine", "api_key K\nresolver 192.0.2.53", ".", "127.0.0.1:53", false},
		{"the system's", "api_key K", ".", "127.0.0.1:53", true},
		{"the system's, of this machine, that is another program", "api_key K", ".:1053", "127.0.0.1:53", false},
		{"a list by URL", "block https://lists.example.org/hosts", ".", "127.0.0.1:53", true},
		{"an endpoint without a name", "endpoint http://192.0.2.7:8099", ".", "127.0.0.1:53", false},
		{"own lists only", listing(t), ".", "127.0.0.1:53", false},
	} {
		cfg, err := stanza(t, "safebrowsing {\ndb off\n"+tc.stanza+"\n}")
		testkit.Must(t, err)
		got := cfg.LoopWarning(corefileOf(t, tc.listens+" {\nwhoami\n}\n"), []string{tc.system}, machine)
		if warns := strings.Contains(got, "where this Corefile listens"); warns != tc.warns || !warns && got != "" {
			t.Errorf("%s: Expected a warning: %v, got %q", tc.name, tc.warns, got)
		}
	}
}

// coredns -dns.port says where server blocks without a port listen.
func TestAServerBlockWithoutAPortListensWhereTheFlagSays(t *testing.T) {
	t.Cleanup(func() { dnsserver.Port = dnsserver.DefaultPort })
	dnsserver.Port = "1053"
	cfg, err := stanza(t, "safebrowsing {\ndb off\napi_key K\n}")
	testkit.Must(t, err)
	for system, warns := range map[string]bool{"127.0.0.53:53": false, "127.0.0.1:1053": true} {
		for _, key := range []string{".", "dns://."} {
			got := cfg.LoopWarning(corefileOf(t, key+" {\nwhoami\n}\n"), []string{system}, nil)
			testkit.Equal(t, key+" "+system+" "+got, got != "", warns)
		}
	}
	testkit.Equal(t, "the flag is for plain DNS only", ListeningOf(corefileOf(t, "tls://. {\nwhoami\n}\n")[0]).Listeners[0].Port, "853")
}

// A server block that is bound to an interface leaves the other addresses of the machine to others, such as systemd-resolved.
func TestAServerBlockOfAnInterfaceListensAtItsAddresses(t *testing.T) {
	all, err := net.Interfaces()
	testkit.Must(t, err)
	i := slices.IndexFunc(all, func(i net.Interface) bool { return i.Flags&net.FlagLoopback != 0 })
	if i < 0 {
		t.Skip("this test needs a loopback interface")
	}
	for _, tc := range []struct {
		name, at string
		want     bool
	}{
		{all[i].Name, "127.0.0.1", true}, {all[i].Name, "127.0.0.53", false}, {all[i].Name, "192.0.2.1", false}, {"none0", "127.0.0.53", true},
		{all[i].Name + " {\nexcept 127.0.0.2 127.0.0.1\n}", "127.0.0.1", false}, {all[i].Name + " {\nexcept 127.0.0.2\n}", "127.0.0.1", true},
		{all[i].Name + " {\nexcept 127.0.0.1\n}\nbind 127.0.0.1", "127.0.0.1", true},
	} {
		l := ListeningOf(corefileOf(t, ".:53 {\nbind "+tc.name+"\n}\n")[0])
		testkit.Equal(t, fmt.Sprint(tc.name, " ", tc.at), l.At(netip.MustParseAddr(tc.at), 53), tc.want)
	}
}

// Of the server blocks for one zone CoreDNS asks the first one without a view.
func TestAViewThatNoClientGetsToIsSaid(t *testing.T) {
	const (
		all  = "example.org . {\nsafebrowsing {\nblock a.txt\n}\n}\n"
		kids = ". {\nview kids {\nexpr true\n}\nsafebrowsing {\nblock b.txt\n}\n}\n"
	)
	const want = "Corefile:7: view kids never matches for the zone .: a server block without a view is before it and answers all clients; move that block to the end"
	for _, tc := range []struct{ name, text, want string }{
		{"after the block for all", all + kids, want},
		{"before it", kids + all, ""},
		{"another zone", "example.net {\nwhoami\n}\n" + kids, ""},
		{"another port", ".:1053 {\nwhoami\n}\n" + kids, ""},
		{"another address", ". {\nbind 127.0.0.1\nwhoami\n}\n" + kids, ""},
		{"after another view", strings.ReplaceAll(kids, "kids", "staff") + kids, ""},
		{"without the plugin", all + ". {\nview kids {\nexpr true\n}\nwhoami\n}\n", ""},
	} {
		testkit.Equal(t, tc.name, strings.Join(HiddenViews("Corefile", corefileOf(t, tc.text)), "\n"), tc.want)
	}
}

func TestForwardTargetsAreThoseGivenByName(t *testing.T) {
	testkit.Equal(t, "targets", ForwardTargets(corefileOf(t, `. {
    forward . tls://dns.example.org:853 9.9.9.9%dns.quad9.net https://doh.example.org [2001:db8::1]:53 {
        tls_servername name.example.org
        except lan.example.org
        resolver 192.0.2.1
    }
    forward zone.example.org second.example.org:53 /etc/resolv.conf
}
example.net {
    grpc . grpc.example.org:443
    hosts not.example.org
}
`)), []string{"dns.example.org", "doh.example.org", "second.example.org", "grpc.example.org"})
}
