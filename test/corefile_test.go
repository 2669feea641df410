package test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coredns/caddy"

	"github.com/coredns-safebrowsing/safebrowsing/internal/block"
	"github.com/coredns-safebrowsing/safebrowsing/internal/config"
	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
)

// corefileFolder is a working directory with files that words of a Corefile could be taken for.
func corefileFolder(t *testing.T) {
	t.Helper()
	t.Chdir(t.TempDir())
	const listed = "listed.example\n"
	for name, text := range map[string]string{
		"names.txt": listed, "example.org": listed, "single": listed, "example.zone": listed, "a,b.txt": listed,
		"page.html": "<!DOCTYPE html>\n<html><head><title>404 Not Found</title></head><body>gone</body></html>\n",
		"mine.txt":  "blocked.example\n", // of each Corefile
	} {
		writeFile(t, ".", name, text)
	}
	testkit.Must(t, os.Symlink("names.txt", "linked"))
	testkit.Must(t, os.Mkdir("adir", 0o755))
	t.Setenv(config.KeyVariable, "")
	t.Setenv("STATE_DIRECTORY", filepath.Join(t.TempDir(), "state"))
}

// wrongCorefiles are Corefiles that cannot have been meant. A text without "{" is line 5 of a Corefile that is right
// but for it; each error must be about a line of Corefile and hold the texts.
var wrongCorefiles = []struct {
	text  string
	line  int
	wants []string
}{
	// Words and files in the place of zones.
	{". {\nsafebrowsing api_key X {\n}\n}", 2, []string{"api_key is a property: put it into braces on a line of its own"}},
	{". {\nsafebrowsing block names.txt\nwhoami\n}", 2, []string{"block is a property: put it into braces on a line of its own"}},
	{". {\nsafebrowsing whitelist x {\n}\n}", 2, []string{"allow is a property"}},
	{". {\nsafebrowsing names.txt {\n}\n}", 2, []string{`"names.txt" is not a zone: put block or allow before the name of a file`}},
	{". {\nsafebrowsing missing.txt {\n}\n}", 2, []string{`"missing.txt" is not a zone`}},
	{". {\nsafebrowsing single {\n}\n}", 2, []string{`"single" is not a zone: put block or allow before the name of a file`}},
	{". {\nsafebrowsing foo..bar {\n}\n}", 2, []string{`"foo..bar" is not a zone: write a domain such as example.org`}},
	{". {\nsafebrowsing *.example.org {\n}\n}", 2, []string{`"*.example.org" is not a zone: write example.org`}},
	{". {\nsafebrowsing a.example, b.example {\n}\n}", 2, []string{`"a.example," is not a zone: separate zones by spaces`}},
	{". {\nsafebrowsing 192.0.2.1 {\n}\n}", 2, []string{`"192.0.2.1" is not a zone`}},
	{". {\nsafebrowsing bücher.example {\n}\n}", 2, []string{"write xn--bcher-kva.example"}},
	{"example.net {\nsafebrowsing example.org {\n}\n}", 2, []string{"never asked for names in the zone example.org.", "it is for example.net."}},
	{". {\nsafebrowsing AIzaSyA-SECRET {\n}\n}", 2, []string{"an API key is not a zone: put api_key KEY into braces"}},
	// Braces.
	{". {\nsafebrowsing { block names.txt }\n}", 2, []string{"a } must be on a line of its own, and so must each property"}},
	{". {\nsafebrowsing {\nblock names.txt }\n}", 3, []string{"a } must be on a line of its own"}},
	{". {\nsafebrowsing {block names.txt}\n}", 2, []string{"a { must be the last word of its line, after a space"}},
	{". {\nsafebrowsing\n{\nblock names.txt\n}\n}", 3, []string{"the { must be at the end of the line that begins with safebrowsing"}},
	{". {\nsafebrowsing {\nblock names.txt\nforward . 192.0.2.53\n}", 4, []string{"forward is a plugin and not a property of safebrowsing: a } is missing before line 4"}},
	{". {\nsafebrowsing {\nblock names.txt\ncache\nforward . 192.0.2.53\n}", 4, []string{"usage: cache COUNT|SIZE", "if the plugin cache is meant, a } is missing before line 4"}},
	{". {\nsafebrowsing {\nblock names.txt\ncache {\nsuccess 100\n}\n}\n}", 4, []string{"cache takes no braces; if the plugin cache is meant, a } is missing before line 4"}},
	{". {\nsafebrowsing {\nexcept {\nx.example\n}\n}\n}", 3, []string{"except takes no braces"}},
	{". {\nsafebrowsing {\nblock names.txt\n}\nsafebrowsing {\nblock names.txt\n}\n}", 5, []string{"safebrowsing is given more than once in this server block"}},
	// Words of properties.
	{"blok names.txt", 5, []string{`unknown property "blok": did you mean block?`}},
	{"whitelist good.example.org", 5, []string{"did you mean allow?"}},
	{"nonsense", 5, []string{`unknown property "nonsense": docs/corefile.md and "man coredns-safebrowsing" list the properties`}},
	{"AIzaSyA-SECRET", 5, []string{"write api_key before it"}},
	{"ttl 5\nttl 6", 6, []string{"ttl is given more than once: it is at Corefile:5 already"}},
	{"monitor x", 5, []string{"monitor takes no argument"}},
	{"ttl 5 minutes", 5, []string{"wrong arguments, usage: ttl DURATION, such as 60s or 5m"}},
	{`allow ""`, 5, []string{"allow: an argument is empty: is it a variable that is not set?"}},
	{`allow {$NO_SUCH_VARIABLE}`, 5, []string{"allow: an argument is empty"}},
	{"keep_clients on", 5, []string{`keep_clients: "on": keep_clients takes off or nothing`}},
	// Own lists.
	{"block missing.txt", 5, []string{"block: there is no file missing.txt"}},
	{"block evil.example.org", 5, []string{"there is no file evil.example.org; block takes files: write the name into one"}},
	{"block adir", 5, []string{"block: adir is a directory: name the files in it"}},
	{"block /dev/null", 5, []string{"block: /dev/null is not a regular file"}},
	{"block names.txt, single", 5, []string{"block: separate the arguments by spaces, without commas"}},
	{"block https:///hosts", 5, []string{"the URL has no host"}},
	{"block https://example.org:99999/hosts", 5, []string{`block: the port "99999" is not a number from 1 to 65535`}},
	{"block https://github.com/example/lists/blob/main/hosts.txt", 5, []string{"block: GitHub shows that file in a web page: write the URL of its button Raw, which begins with https://raw.githubusercontent.com/"}},
	{"allow https://gitlab.example.org/lists/-/blob/main/hosts.txt", 5, []string{"allow: GitLab shows that file in a web page: write /-/raw/ for /-/blob/"}},
	{"block ftp://example.org/hosts", 5, []string{"by https or http, not by ftp"}},
	{"block https://example.org/%zz?s3cret", 5, []string{"the URL cannot be read"}},
	{"block https://example.org/hosts refresh", 5, []string{"refresh needs a value after it"}},
	{"block https://example.org/hosts refresh 10s", 5, []string{"refresh", `"10s" is less than 1m`}},
	{"block https://example.org/hosts refresh 31d", 5, []string{"refresh", `"31d" is not a duration`}},
	{"block https://example.org/hosts max_bytes 5GiB", 5, []string{"max_bytes", "from 1KiB to 4GiB"}},
	{"block https://example.org/hosts max_bytes lots", 5, []string{"max_bytes", `"lots" is not a size such as 64MiB`}},
	{"allow https://example.org/hosts until 2027-01-31", 5, []string{"until needs a host before it"}},
	{"block names.txt refresh 24h", 5, []string{"refresh is for lists by URL"}},
	{"allow allow.txt", 5, []string{"allow: there is no file allow.txt (to allow a host of that name write allow.txt.)"}},
	{"allow ./missing", 5, []string{"allow: there is no file ./missing"}},
	{"allow until 2027-01-31", 5, []string{"until needs a host before it, such as good.example.org until 2027-01-31"}},
	{"allow a.example until", 5, []string{"until needs a date after it"}},
	{"allow a.example UNTIL 2027-01-31", 5, []string{`"UNTIL": did you mean until?`}},
	{"allow a.example 2027-01-31", 5, []string{`"2027-01-31" is a date: write until before it`}},
	{"allow a.example until 31.01.2027", 5, []string{`"31.01.2027" is neither a date such as 2027-01-31 nor a time such as 2027-01-31T18:00`}},
	{"allow names.txt until 2027-01-31", 5, []string{`until is for hosts: in the file names.txt end a line in "# until 2027-01-31"`}},
	{"allow *", 5, []string{`"*" would allow every name: remove safebrowsing instead`}},
	{"allow .", 5, []string{`"." would allow every name`}},
	{"allow 192.0.2.1", 5, []string{`"192.0.2.1" is an address: write the name that is asked for`}},
	// Exceptions.
	{"except .", 5, []string{"except: this leaves no names to check in the zone ."}},
	{"example.org {\nsafebrowsing {\nblock names.txt\nexcept example.org\n}\n}", 4, []string{"except: this leaves no names to check in the zone example.org."}},
	{"example.org {\nsafebrowsing {\nblock names.txt\nexcept example.net\n}\n}", 4, []string{"except: no names in the zone example.net. are checked here anyway: the zones are example.org."}},
	{"except *.lan", 5, []string{`"*.lan" is not a zone: write lan`}},
	{"except 192.168.0.0/16", 5, []string{"except: 192.168.0.0/16 is a network: except takes names that are asked for; for clients use the plugin view, for their reverse names write 168.192.in-addr.arpa"}},
	{"except 10.0.0.0/7", 5, []string{"for their reverse names write 10.in-addr.arpa 11.in-addr.arpa"}},
	{"except lan fd00::/8", 5, []string{"fd00::/8 is a network", "write d.f.ip6.arpa"}},
	{"allow 192.168.1.0/24", 5, []string{"allow: 192.168.1.0/24 is a network: lists hold names that are asked for; for clients use the plugins view or acl"}},
	// One list for both.
	{"block names.txt\nallow names.txt", 6, []string{"allow: names.txt is a list of block at Corefile:5, too: allow wins, so it would block nothing; remove one of the two"}},
	{"block names.txt\nallow ./linked", 6, []string{"allow: ./linked is a list of block at Corefile:5, too"}},
	// Values.
	{"db ~/lists", 5, []string{`db: "~/lists": a Corefile knows no ~: write the whole path, or {$HOME}/lists`}},
	{"db $HOME/lists", 5, []string{`db: "$HOME/lists": a Corefile spells variables {$HOME}`}},
	{"respond sinkhole ::1", 5, []string{"respond: sinkhole takes an IPv4 address, and may take an IPv6 address after it: write respond sinkhole 0.0.0.0 ::1"}},
	{"respond sinkhole :: 0.0.0.0", 5, []string{"write respond sinkhole 0.0.0.0 ::"}},
	{"respond sinkhole 0.0.0.0 0.0.0.0", 5, []string{"sinkhole takes one IPv4 and one IPv6 address"}},
	{"respond 0.0.0.0", 5, []string{`"0.0.0.0" is not one of nxdomain, `, "did you mean respond sinkhole 0.0.0.0?"}},
	{"log on", 5, []string{`log: "on": log takes json or nothing, and writes to where CoreDNS logs`}},
	{"limit 10", 5, []string{`limit: "10" is not one of`, "did you mean limit leaky_bucket 10?"}},
	{"api_key K\nprotocol webrisk\nbudget 10$", 7, []string{`budget: "10$": a budget counts searches: 10 US-$ are 200`}},
	{`db ""`, 5, []string{"db: an argument is empty"}},
	{"db OFF", 5, []string{`db: "OFF": did you mean off? (write ./OFF for a directory of that name)`}},
	{"db names.txt", 5, []string{"db: names.txt is not a directory: name one, or move it away"}},
	{"respond NXDOMAIN", 5, []string{`"NXDOMAIN" is not one of nxdomain, nodata, `, ": did you mean nxdomain?"}},
	{"inspect CNAME", 5, []string{`"CNAME" is not cname: did you mean cname?`}},
	{"ttl 48h", 5, []string{`ttl: "48h" is more than 30m, the longest that is allowed`}},
	{"ttl soon", 5, []string{`ttl: "soon" is not a duration such as 30m`}},
	{"ttl 500ms", 5, []string{"not a number of whole seconds"}},
	{"confirm_timeout 500", 5, []string{`"500" is more than 10s, the longest that is allowed (a number without a unit is seconds)`}},
	{"confirm_timeout 0s", 5, []string{`"0s" is less than 1ms`}},
	{"max_entries 7", 5, []string{`"7" is not a number from 1024 to 16777216`}},
	// The server.
	{"resolver 9.9.9.9:999999", 5, []string{`resolver: the port "999999" is not a number from 1 to 65535`}},
	{"resolver tls://9.9.9.9", 5, []string{`resolver: "tls://9.9.9.9": resolvers are asked by plain DNS, not by tls: write 9.9.9.9`}},
	{"resolver https://dns.google/dns-query", 5, []string{`resolver: "https://dns.google/dns-query": resolvers are asked by plain DNS, not by https: write an IP address such as 8.8.8.8`}},
	{"resolver dns.quad9.net", 5, []string{`"dns.quad9.net" is not an IP address: write one such as 9.9.9.9 or 9.9.9.9:53`}},
	{"endpoint http://127.0.0.1:99999", 5, []string{`endpoint: the port "99999" is not a number from 1 to 65535`}},
	{"endpoint https://safebrowsing.googleapis.com/v5", 5, []string{"takes no path: write https://safebrowsing.googleapis.com"}},
	{"endpoint http://sb.example.org:8099\napi_key SECRET", 5, []string{"endpoint: http would send the API key in clear text: use https"}},
	{"endpoint http://sb.example.org\napi_key_file names.txt", 5, []string{"in clear text"}},
	{"api_key SECRET\nlists se-4b mw-4b uws-4b pha4-4b", 6, []string{`list "pha4-4b" is not one of Google's: did you mean pha-4b?`, "se-4b, mw-4b, uws-4b, uwsa-4b, pha-4b"}},
	{"lists gc-32b", 5, []string{"likely safe", "mode realtime uses it"}},
	{"lists se4b", 5, []string{`"se4b" is not the name of a list: did you mean se-4b?`}},
	{"endpoint http://127.0.0.1:1\nprotocol webrisk\nlists own-4b\nbudget 5", 7, []string{`no list "own-4b"`}},
	{"protocol V5", 5, []string{"did you mean v5?"}},
	{". {\nsafebrowsing {\nendpoint http://127.0.0.1:1\ndb off\n}\n}\na.example {\nsafebrowsing {\nendpoint http://127.0.0.1:1\ndb off\nprotocol webrisk\nbudget 5\n}\n}", 13, []string{"protocol, mode, lists"}},
}

// around puts a text into line 5 of a Corefile, unless it is one.
func around(text string) string {
	if strings.Contains(text, "{\n") || strings.Contains(text, "\nwhoami\n") || strings.Contains(text, "\nsafebrowsing {") {
		return text
	}
	return ".:0 {\n\tbind 127.0.0.1\n\tsafebrowsing {\n\t\tblock mine.txt\n\t\t" + text + "\n\t}\n\twhoami\n}\n"
}

func TestCorefilesThatCannotBeMeantAreRefused(t *testing.T) {
	corefileFolder(t)
	for _, tc := range wrongCorefiles {
		t.Run(tc.text, func(t *testing.T) {
			err := caddy.ValidateAndExecuteDirectives(input(around(tc.text)), nil, true)
			testkit.WantError(t, err, tc.wants...)
			testkit.WantStart(t, fmt.Sprint(err), fmt.Sprintf("plugin/safebrowsing: Corefile:%d - Error during parsing: ", tc.line))
			testkit.WantNone(t, fmt.Sprint(err), "SECRET")
		})
	}
}

// doubtfulCorefiles may have been meant. CoreDNS starts and logs one line with the text, or none if it is "".
var doubtfulCorefiles = []struct{ text, want string }{
	{"allow foo.example.org until 2020-01-01", "[WARNING] plugin/safebrowsing: Corefile:5: allow foo.example.org until 2020-01-01 has ended: foo.example.org is not allowed any more; remove it, or write a later date"},
	{"allow foo.example.org until 2097-01-31T18:00:00Z", testkit.LocalTimes("[INFO] plugin/safebrowsing: Corefile:5: foo.example.org is allowed until 2097-01-31T18:00:00Z")},
	{"allow foo.example.org until 2097-01-31", "[INFO] plugin/safebrowsing: Corefile:5: foo.example.org is allowed until 2097-02-01 00:00:00 " + time.Date(2097, 2, 1, 0, 0, 0, 0, time.Local).Format("MST")},
	{"allow https://localhost:1/cart", "[INFO] plugin/safebrowsing: Corefile:5: https://localhost:1/cart is fetched as a list of names that are allowed; to allow that host write localhost"},
	{"allow example.org", "[WARNING] plugin/safebrowsing: Corefile:5: allow example.org is for the host of that name, and not for the file: write example.org. to say so, or ./example.org for the file"},
	{"allow example.zone", "and not for the file: write example.zone. to say so"}, // zone is a top-level domain
	{"allow nas", "[WARNING] plugin/safebrowsing: Corefile:5: allow nas is for the host of that name, since there is no file nas: write nas. to say so"},
	{"allow co.uk", "[WARNING] plugin/safebrowsing: Corefile:5: co.uk is a public suffix: this holds for every name below it"},
	{"allow np.", "[WARNING] plugin/safebrowsing: Corefile:5: np is a public suffix: this holds for every name below it"},
	{"endpoint http://127.0.0.1:1\n\t\tlists se-4b pha4-4b\n\t\tdb off", "[WARNING] plugin/safebrowsing: Corefile:6: pha4-4b is not one of Google's lists: did you mean pha-4b? A list that http://127.0.0.1:1 does not have blocks nothing"},
	{".:0 {\nbind 127.0.0.1\nsafebrowsing corp {\nblock names.txt\n}\nwhoami\n}", "[WARNING] plugin/safebrowsing: Corefile:3: Safe Browsing knows no names in the zone corp., which is not public"},
	{".:0 {\nbind 127.0.0.1\nsafebrowsing np {\nblock names.txt\n}\nwhoami\n}", ""},
	{"block page.html", "page.html blocks nothing"},
	{"allow single nas. example.org. ./a,b.txt *.example.net allow.txt. my_host.example.org bücher.example\n\t\texcept lan 10.in-addr.arpa 1.168.192.in-addr.arpa", ""},
	{".:0 {\nbind 127.0.0.1\nsafebrowsing {\nblock names.txt\n}\nwhoami\n}\n.:0 {\nbind 127.0.0.1\nview kids {\nexpr true\n}\nsafebrowsing {\nblock names.txt\n}\nwhoami\n}",
		"[WARNING] plugin/safebrowsing: Corefile:10: view kids never matches for the zone .: a server block without a view is before it and answers all clients; move that block to the end"},
	{".:0 {\nbind 127.0.0.1\nview kids {\nexpr true\n}\nsafebrowsing {\nblock names.txt\n}\nwhoami\n}\n.:0 {\nbind 127.0.0.1\nsafebrowsing {\nblock names.txt\n}\nwhoami\n}", ""},
	{"monitor", "[WARNING] plugin/safebrowsing: Corefile:5: the server block for . has monitor: nothing is blocked, names that would be are only logged"},
	{"endpoint http://127.0.0.1:1\n\t\tmax_entries 99999\n\t\tdb off", "[WARNING] plugin/safebrowsing: Corefile:6: max_entries 99999: the server leaves out the rest of a longer list, and names in it pass; write 100000 or more"},
	{"endpoint http://127.0.0.1:1\n\t\tlists se-4b own-4b\n\t\tmax_entries 100000\n\t\tdb off\n\t\tttl 0\n\t\tconfirm_timeout 10s", ""},
	{"lists se-4b\n\t\tdb off", "[WARNING] plugin/safebrowsing: Corefile:3: Safe Browsing is OFF: there is no API key, and these properties have no effect: lists. Set"},
	{".:0 {\nbind 127.0.0.1\nsafebrowsing test. Example.ORG 10.0.0.0/8 {\nblock names.txt\ninspect cname\nexcept example.net\n}\nwhoami\n}", "in the zone test., which is not public"},
}

func TestDoubtfulCorefilesStartWithAWarning(t *testing.T) {
	corefileFolder(t)
	lines := testkit.Capture(t)
	for _, tc := range doubtfulCorefiles {
		t.Run(tc.text, func(t *testing.T) {
			about := func() []string {
				return append(lines.About("plugin/safebrowsing: Corefile:"), lines.About("[WARNING] plugin/safebrowsing: List ")...)
			}
			before := about()
			w := &world{t: t}
			w.start(around(tc.text))
			w.stop()
			got := slices.DeleteFunc(about(), func(line string) bool { return slices.Contains(before, line) })
			testkit.WantParts(t, strings.Join(got, "\n"), tc.want)
			testkit.Equal(t, "a line", len(got) > 0, tc.want != "")
		})
	}
}

// Server blocks that import the same lines log them once at a start, and parse never does.
func TestWarningsOfTheCorefileAreLoggedOnceAtTheStart(t *testing.T) {
	corefileFolder(t)
	lines := testkit.Capture(t)
	corefile := "(ours) {\nsafebrowsing {\n" + blockList(t, "blocked.example") + "\nallow old.example.org until 2020-01-01\nallow new.example.org until 2097-01-01\n}\nwhoami\n}\n" +
		".:0 {\nbind 127.0.0.1\nimport ours\n}\nexample.org:0 {\nbind 127.0.0.1\nimport ours\n}\n"
	testkit.Must(t, caddy.ValidateAndExecuteDirectives(input(corefile), nil, true))
	testkit.Equal(t, "lines of a Corefile that is only read", lines.About("Corefile:"), nil)
	w := &world{t: t}
	w.start(corefile)
	lines.Only(t, "Safe Browsing is off") // of two server blocks without a key
	testkit.WantParts(t, lines.Only(t, "Corefile:4: "), "[WARNING] plugin/safebrowsing: Corefile:4: allow old.example.org")
	testkit.WantParts(t, lines.Only(t, "Corefile:5: "), "[INFO]")
	testkit.Must(t, w.reload(corefile))
	testkit.Equal(t, "warnings after a reload", len(lines.About("[WARNING] plugin/safebrowsing: Corefile:4: allow old.example.org")), 2)
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
		t.Setenv(config.KeyVariable, "SECRET")
		controller := caddy.NewTestController("dns", "safebrowsing {\ndb off\n"+text+"\n}")
		controller.ServerBlockKeys = []string{"."}
		c, err := config.Parse(controller, "")
		if err == nil {
			err = block.New(c).Validate()
		}
		switch {
		case err == nil && (len(c.Zones) == 0 || c.Secret == ""):
			t.Errorf("%q: Got %+v", text, c)
		case err != nil && (!strings.HasPrefix(err.Error(), "Testfile:") || strings.Contains(err.Error(), "SECRET")):
			t.Errorf("%q: Got %v", text, err)
		}
	})
}
