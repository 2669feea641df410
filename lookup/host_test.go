package lookup

import (
	"crypto/sha256"
	_ "embed"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
)

func TestNamesThatEscapesMakeLongerThanTheDNSAllowsAreChecked(t *testing.T) {
	label := strings.Repeat(`\001`, 63)
	qname := strings.Repeat(label+".", 3) + "example.com."
	want := strings.Repeat(strings.Repeat("%01", 63)+".", 3) + "example.com"
	testkit.Equal(t, "host", FromQname(qname).String(), want)
	c := checkerOf(t, Config{}, want+"/")
	testkit.Equal(t, "candidates", expressionsOf(suspect(t, c, qname)), []string{want + "/"})
}

var escapes, inNoHost = regexp.MustCompile("%[0-9A-Fa-f]{2}"), regexp.MustCompile("[^!-~]|[#%A-Z]")

// checkCanonical fails the test unless a name has all properties of a canonical host.
func checkCanonical(t *testing.T, input string, h Host) {
	t.Helper()
	name := h.String()
	if name == "" {
		return
	}
	if strings.HasPrefix(name, ".") || strings.HasSuffix(name, ".") || strings.Contains(name, "..") {
		t.Errorf("%q became %q, with an empty label", input, name)
	}
	testkit.Equal(t, fmt.Sprintf("%q became %q, with", input, name), inNoHost.FindString(escapes.ReplaceAllString(name, "")), "")
	testkit.Between(t, "expressions of "+input, len(h.Expressions()), 0, maxExpressions)
	for word, rule := range rules {
		quick := h.suffixStarts(nil, rule)
		for _, start := range h.starts(rule) {
			if !slices.Contains(quick, start) {
				t.Errorf("%q: quick starts %v of %q by %s lack %d", input, quick, name, word, start)
			}
		}
	}
}

func FuzzFromQname(f *testing.F) {
	for _, seed := range []string{
		"", ".", "..", "com.", "WWW.Example.COM.", `a\.b.example.com.`, `\119ww.example.com`, `\999.com`, `a\`, `a\1`,
		"%2577ww.example.com.", "a%2eb.example.com.", "127.1.", "0x7f.1", "a..b", ".a", "a b.c", "host#.com.",
		"a.b.c.d.e.f.g.h.co.uk.", "\x00\x80.example.",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, qname string) {
		h := FromQname(qname)
		checkCanonical(t, qname, h)
		if h.truncated() || h.name == "" {
			return
		}
		testkit.Equal(t, "FromQname of what it returns", FromQname(h.name), h)
		if strings.Contains(h.name, "%") {
			return // ParseHost takes undone escapes for an international name
		}
		parsed, ok := ParseHost(h.name)
		testkit.Equal(t, qname+": ParseHost of what FromQname returns", []any{parsed, ok}, []any{h, true})
	})
}

func FuzzParseHost(f *testing.F) {
	for _, seed := range []string{
		"", ".", "WWW.Example.COM.", "..a..b..", "bücher.example", "b%C3%BCcher.example。", "[2001:DB8::1]",
		"[::ffff:1.2.3.4]", "[64:ff9b::1.2.3.4]", "[fe80::1%25eth0]", "0x7f.0.01", "3279880203", "%31%2e%32",
		"a%20b", "\u00ad", "xn--a.ü", "\x01\x80.com", "１２７.1", "host%252523.com",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		h, ok := ParseHost(text)
		if !ok {
			testkit.Equal(t, "no host", h, Host{})
			return
		}
		testkit.Equal(t, "an empty host", h.name == "", false)
		checkCanonical(t, text, h)
		again, ok := ParseHost(h.name)
		testkit.Equal(t, text+": ParseHost of what it returns", []any{again.String(), ok}, []any{h.String(), true})
	})
}

// FromQname has quick ways for most names. They lead to the host of the slow way.
func TestEachWayLeadsToTheSameHost(t *testing.T) {
	for _, format := range []string{"?", "?a", "a?", "a?a", "a.?", "?.a", "a?.", "a.?.", "a.??.a", "a.a?A.a", "some-name?A.example."} {
		for b := range 256 {
			name := strings.ReplaceAll(format, "?", string([]byte{byte(b)}))
			want := fromLabels(name)
			if name == "." {
				want = Host{} // the root
			}
			testkit.Equal(t, name, FromQname(name), want)
		}
	}
}

// Names with these are not converted to ASCII (URL Standard, section 3.1, "forbidden domain code point"): they are other names.
func TestForbiddenCodePointsEndTheConversion(t *testing.T) {
	for b := range 0x80 {
		c := string([]byte{byte(b)})
		if strings.Contains(strings.TrimSuffix(notInHost, " "), c) {
			continue // see TestHostsAreParsedAsTheVectorsSay
		}
		want := b <= 0x20 || strings.Contains("#%<>^|\x7f", c)
		h, ok := canonicalHost("ü"+c+"a.example", "")
		got := []bool{ok, strings.HasPrefix(h.String(), "%C3%BC"), strings.HasPrefix(h.String(), "xn--")}
		testkit.Equal(t, fmt.Sprintf("%q: a host, kept, converted, %q", c, h), got, []bool{true, want, !want})
	}
}

// No DNS name has more than 1,012 bytes before its conversion.
func TestLongInternationalNamesAreNotConverted(t *testing.T) {
	for length, converted := range map[int]bool{2: true, 1010: true, 1012: true, 1014: false, 2000: false} {
		h, ok := ParseHost(strings.Repeat("ü", length/2))
		got := []bool{ok, strings.HasPrefix(h.String(), "xn--")}
		testkit.Equal(t, fmt.Sprintf("a host of %d bytes, converted", length), got, []bool{true, converted})
	}
}

// What never leaves a site must not be sent, whatever it collides with.
func TestPrivateNamesAreNotPublic(t *testing.T) {
	for public, hosts := range map[bool]string{
		true: "example.com a.mylocal local.example test.example a.example xhome.arpa a.uri.arpa 8.8.8.8 [2001:4860:4860::8888] xfritz.box shop.box a.net " +
			"xlan.de plan.net lan.example.com my.box whome.me home.de corp.com",
		false: "com localhost a.localhost nas.local a.b.local a.internal a.onion a.invalid a.test a.alt 1.0.0.127.in-addr.arpa in-addr.arpa 1.ip6.arpa ip6.arpa " +
			"nas.home.arpa home.arpa 127.1 [::1] 10.0.0.1 192.168.1.1 [fd00::1] 169.254.169.254 fritz.box nas.fritz.box " +
			"pc.lan nas.home x.corp a.intranet a.private 192.168.178.1 127.0.0.1 172.16.1.1 169.254.1.1",
	} {
		for text := range strings.FieldsSeq(hosts) {
			if h, ok := ParseHost(text); !ok || h.Public() != public || text[0] != '[' && FromQname(text+".").Public() != public {
				t.Errorf("%s: want public: %v", text, public)
			}
		}
	}
}

// someSuffixes are public suffixes of one to five labels, and wildcards.
var someSuffixes = []string{
	"com", "org", "de", "nosuchsuffix", "co.uk", "com.au", "github.io", "blogspot.com", "appspot.com",
	"s3.amazonaws.com", "us-west-1.compute.amazonaws.com", "eu-central-1.compute.amazonaws.com", "compute-1.amazonaws.com",
	"s3.dualstack.eu-west-1.amazonaws.com", "cn-north-1.eb.amazonaws.com.cn", "x.ck", "kawasaki.jp", "city.kawasaki.jp",
	"k12.ma.us", "pvt.k12.ma.us", "local", "home.arpa",
}

// randomName returns a name with one of the suffixes. Sometimes a label cannot be part of a URL, and hides those to its left.
func randomName(r *rand.Rand) string {
	name := someSuffixes[r.IntN(len(someSuffixes))] + "."
	for range r.IntN(9) {
		label := string("abc"[r.IntN(3)])
		switch r.IntN(16) {
		case 0:
			label = `a\.b`
		case 1:
			label = `a%23`
		case 2:
			label = "A"
		}
		name = label + "." + name
	}
	return name
}

// The rule in its plainest form. The lists hold every kind of suffix, including those that are not expressions.
func TestCandidatesAreTheListedExpressions(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 6))
	listed := map[Prefix]bool{}
	var lists [2][]string
	for range 400 {
		name := FromQname(randomName(random)).String()
		for range random.IntN(8) {
			if _, parent, ok := strings.Cut(name, "."); ok {
				name = parent
			}
		}
		lists[random.IntN(2)] = append(lists[random.IntN(2)], name+"/")
	}
	for i := range lists {
		for _, expression := range lists[i] {
			listed[HashExpression(expression).Prefix(4)] = true
		}
	}
	database := databaseOf(listOf("a", lists[0]...), listOf("b", lists[1]...))
	for word, rule := range rules {
		c := checkerOf(t, Config{Database: database, Rule: rule})
		suspected := 0
		for range 20_000 {
			qname := randomName(random)
			h := FromQname(qname)
			var want []string
			for _, expression := range h.ExpressionsBy(rule) {
				if h.Public() && listed[HashExpression(expression).Prefix(4)] {
					want = append(want, expression)
				}
			}
			wantDecision := Decision{By: ByList}
			switch {
			case !h.Public():
				wantDecision.By = ByNobody
			case want != nil:
				wantDecision.Verdict = Unsure
				suspected++
			}
			decision, candidates := c.Check(h)
			if got := expressionsOf(candidates); !slices.Equal(got, want) || decision != wantDecision {
				t.Fatalf("%s by %s: candidates are %q, want %q; %+v, want %+v", qname, word, got, want, decision, wantDecision)
			}
		}
		testkit.Between(t, "names that are suspected, else the comparison says little", suspected, 2_000, 18_000)
	}
}

func TestCleanNamesDoNotAllocate(t *testing.T) {
	var lists []List
	for _, name := range []string{"a", "b", "c", "d"} {
		lists = append(lists, listOf(name, name+".example/", "www."+name+".example/"))
	}
	c := checkerOf(t, Config{Database: databaseOf(lists...)})
	for _, qname := range []string{
		"com.", "example.com.", "www.example.com.", "a.b.example.co.uk.", "a.b.c.example.com.", "a.b.c.d.example.com.",
		"x.us-west-1.compute.amazonaws.com.", "nas.local.", `a\.b.example.com.`, "1.2.3.4.",
		strings.Repeat(strings.Repeat("a", 49)+".", 5) + "com.",
	} {
		h := FromQname(qname)
		testkit.Equal(t, "allocations for "+qname, testing.AllocsPerRun(200, func() { c.Check(h) }), 0)
	}
}

// vectors calls run with the fields of every line of a file of test vectors.
func vectors(t *testing.T, file string, fields int, run func(t *testing.T, f []string)) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "testdata", "lookup", file))
	testkit.Must(t, err)
	n := 0
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		f := strings.Split(line, " | ")
		if len(f) != fields {
			t.Fatalf("%s: %d fields in %q, want %d", file, len(f), line, fields)
		}
		for i := range f {
			if strings.HasPrefix(f[i], `"`) {
				f[i], err = strconv.Unquote(f[i])
				testkit.Must(t, err)
			}
		}
		t.Run(fmt.Sprintf("%q", f[0]), func(t *testing.T) { run(t, f) })
		n++
	}
	testkit.Between(t, "vectors in "+file, n, 1, math.MaxInt)
}

func TestHostsAreParsedAsTheVectorsSay(t *testing.T) {
	for _, file := range []string{"canonical-hosts.txt", "ipv6.txt"} {
		vectors(t, file, 2, func(t *testing.T, f []string) {
			h, ok := ParseHost(f[0])
			host := f[1] != "-"
			testkit.Equal(t, "ParseHost", []any{h.String(), ok, h == Host{}}, []any{map[bool]string{true: f[1]}[host], host, !host})
		})
	}
}

func TestSpellingsOfIPv4AddressesAreOneHost(t *testing.T) {
	vectors(t, "ipv4.txt", 3, func(t *testing.T, f []string) {
		parsed, ok := ParseHost(f[0])
		testkit.Equal(t, "ParseHost, and whether it is an address", []any{parsed.String(), parsed.ip(), ok}, []any{f[1], f[2] == "ip", true})
		testkit.Equal(t, "FromQname, as ParseHost", FromQname(f[0]), parsed)
		if f[2] == "ip" {
			testkit.Equal(t, "Expressions", parsed.Expressions(), []string{f[1] + "/"})
		}
	})
}

func TestQnamesBecomeTheHostsOfTheVectors(t *testing.T) {
	vectors(t, "qnames.txt", 3, func(t *testing.T, f []string) {
		h := FromQname(f[0])
		testkit.Equal(t, "host", h.String(), f[1])
		got := "exact"
		switch {
		case h.name == "":
			got = "none"
		case h.truncated():
			got = "parents"
		}
		testkit.Equal(t, "host stands for", got, f[2])
	})
}

func TestExpressionsAreThoseOfTheVectors(t *testing.T) {
	for file, rule := range map[string]Rule{"host-expressions.txt": RuleV5, "host-expressions-v4.txt": RuleV4} {
		vectors(t, file, 2, func(t *testing.T, f []string) {
			h, ok := ParseHost(f[0])
			want := strings.Fields(strings.ReplaceAll(f[1]+" ", " ", "/ "))
			testkit.Equal(t, "Expressions", []any{h.ExpressionsBy(rule), ok}, []any{want, true})
			if rule == RuleV5 {
				testkit.Equal(t, "Expressions without a rule", h.Expressions(), want)
			}
		})
	}
}

func TestHashesAreThoseOfTheVectors(t *testing.T) {
	vectors(t, "hashes.txt", 3, func(t *testing.T, f []string) {
		hash := HashExpression(f[0])
		testkit.Equal(t, "hash", fmt.Sprintf("%x", hash), f[2])
		testkit.Equal(t, "prefix", fmt.Sprintf("%x", hash.Prefix(4)), f[1])
	})
	vectors(t, "sha256.txt", 3, func(t *testing.T, f []string) { // as published
		times, err := strconv.Atoi(f[1])
		testkit.Must(t, err)
		testkit.WantStart(t, fmt.Sprintf("%x", HashExpression(strings.Repeat(f[0], times))), f[2])
	})
}

// specialUse is https://www.iana.org/assignments/special-use-domain-names/special-use-domain.csv of 2026-05-22, with \n for \r\n.
//
//go:embed testdata/special-use-domain.csv
var specialUse string

// specialUseSum is the SHA-256 of that file as IANA serves it. A newer version has another one: take both together.
const specialUseSum = "74cee5aa529088b7540252e30ba4775f83202ccb3323a590789ce9dc9a53a3cd"

func TestNoNameOfTheRegistryOfSpecialUseNamesIsPublic(t *testing.T) {
	lines := strings.Fields(strings.ReplaceAll(specialUse, " (DEPRECATED)", ""))
	if sum := fmt.Sprintf("%x", sha256.Sum256([]byte(strings.ReplaceAll(specialUse, "\n", "\r\n")))); sum != specialUseSum || len(lines) != 43 {
		t.Fatalf("the registry has %d lines and the sum %s", len(lines), sum)
	}
	for _, line := range lines[1:] {
		zone, reference, _ := strings.Cut(line, ",")
		resolved := strings.HasPrefix(zone, "example.") // as other names are (RFC 6761 section 6.5)
		for _, name := range []string{"a." + zone, "www.a." + zone} {
			testkit.Equal(t, name+", "+reference, FromQname(name).Public(), resolved)
		}
	}
}

func ExampleParseURL() {
	u, err := ParseURL("http://user@www.Example.co.uk:8080/a/./%62.html?q#top")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(u)
	for _, e := range u.Expressions(RuleV5) {
		fmt.Println(e.Text, e.DNS)
	}
	// Output:
	// http://www.example.co.uk/a/b.html?q
	// www.example.co.uk/a/b.html?q false
	// www.example.co.uk/a/b.html false
	// www.example.co.uk/ true
	// www.example.co.uk/a/ false
	// example.co.uk/a/b.html?q false
	// example.co.uk/a/b.html false
	// example.co.uk/ true
	// example.co.uk/a/ false
}

// rules are the rules by their names in the vectors.
var rules = map[string]Rule{"v5": RuleV5, "v4": RuleV4}

func TestURLsAreParsedAsTheVectorsSay(t *testing.T) {
	vectors(t, "urls.txt", 2, func(t *testing.T, f []string) {
		u, err := ParseURL(f[0])
		testkit.Must(t, err)
		testkit.Equal(t, "ParseURL", u.String(), f[1])
		checkURL(t, f[0], u)
	})
}

func TestWhatIsNoURLIsRefusedWithTheReason(t *testing.T) {
	vectors(t, "no-urls.txt", 2, func(t *testing.T, f []string) {
		u, err := ParseURL(f[0])
		testkit.Equal(t, "no URL, and why", []any{u, fmt.Sprint(err)}, []any{URL{}, f[1]})
	})
}

func TestExpressionsOfURLsAreThoseOfTheVectors(t *testing.T) {
	vectors(t, "url-expressions.txt", 3, func(t *testing.T, f []string) {
		rule := rules[f[0]]
		u, err := ParseURL(f[1])
		testkit.Must(t, err)
		var got []string
		for _, e := range u.Expressions(rule) {
			got = append(got, e.Text)
		}
		testkit.Equal(t, f[1], got, strings.Fields(f[2]))
	})
}

// TestLongTextsTakeNoLonger would take minutes if a step were quadratic.
func TestLongTextsTakeNoLonger(t *testing.T) {
	testkit.Long(t)
	const n = 1 << 18
	international := make([]rune, n)
	for i := range international {
		international[i] = rune(0x4e00 + i%20000)
	}
	for _, text := range []string{
		strings.Repeat("%25", n), "%" + strings.Repeat("25", n), strings.Repeat("a/../", n), strings.Repeat("/", n), strings.Repeat("/..", n),
		strings.Repeat("../", n), strings.Repeat("a.", n), strings.Repeat(".", n), strings.Repeat("1.", n) + "1", strings.Repeat("0", n),
		strings.Repeat("@", n), strings.Repeat(":", n), strings.Repeat("[", n), strings.Repeat("?", n), strings.Repeat("#", n),
		strings.Repeat("a", n), strings.Repeat("\t", n), strings.Repeat("\xff", n), strings.Repeat("ü", n), strings.Repeat("ü.", n),
		string(international), strings.Repeat("://", n), strings.Repeat("。", n),
	} {
		for _, start := range []string{"", "http://", "http://example.com/", "http://example.com?", "http://a@", "ü"} {
			u, err := ParseURL(start + text)
			testkit.Equal(t, fmt.Sprintf("%.20q…: no expressions", start+text), err == nil && len(u.Expressions(RuleV5)) == 0, false)
		}
	}
}

// checkURL fails the test unless a URL has all properties of a canonical URL.
func checkURL(t *testing.T, input string, u URL) {
	t.Helper()
	text := u.String()
	again, err := ParseURL(text)
	testkit.Equal(t, fmt.Sprintf("what %q became stays the same", input), []any{again.String(), err}, []any{text, nil})
	if strings.ContainsFunc(text, func(r rune) bool { return r <= 0x20 || r >= 0x7f || r == '#' }) {
		t.Errorf("%q became %q, with a byte that is not escaped", input, text)
	}
	checkCanonical(t, input, u.Host())
	if !strings.HasPrefix(u.path, "/") || strings.Contains(u.path, "//") || strings.Contains(u.path+"/", "/../") || strings.Contains(u.path+"/", "/./") {
		t.Errorf("%q became %q, with the path %q", input, text, u.path)
	}
	for name, rule := range rules {
		what := u.String() + " by " + name
		all := u.Expressions(rule)
		if len(all) == 0 || len(all) > 30 {
			t.Fatalf("%s has %d expressions, want 1 to 30", what, len(all))
		}
		exact := u.host.by(rule).name + u.path + map[bool]string{true: u.query}[u.query != "?"]
		testkit.Equal(t, what+": the first expression", all[0].Text, exact)
		var texts, dns []string
		for _, e := range all {
			texts = append(texts, e.Text)
			if e.DNS {
				dns = append(dns, e.Text)
			}
		}
		slices.Sort(texts)
		testkit.Equal(t, what+": expressions, each once", len(slices.Compact(texts)), len(all))
		testkit.Equal(t, what+": what the DNS sees", dns, u.Host().ExpressionsBy(rule))
	}
}

func FuzzParseURL(f *testing.F) {
	for _, seed := range []string{
		"", ":", "://", "http://", "http://host/%25%32%35", "http://%31%36%38%2e%31/%2E%73/%77", "http://host%23.com/%257Ea",
		"http://3279880203/blah", "www.google.com/blah/..", "http://www.google.com.../q?r?#s", "http://www.google.com/foo\tbar\rbaz\n2",
		"http://\x01\x80.com/", "  http://a:b@www.gotaport.com:1234/  ", "http:// leadingspace.com/", "http://host.com//two?more//slashes",
		"http%3A%2F%2Fwackyurl.com:80/", "http://[::ffff:1.2.3.4]:1/a/./b/../c", "http://b%C3%BCcher.example。/", "mailto:a@b.c",
		`http://a\@b.c/`, "http://a@b@c%40d:1:2/", "ftp://u@[::1%25e]/", "http://\u00ad.ü..x_", "%2%35", "http://1.2.3.4.5/;?;",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		u, err := ParseURL(text)
		if err != nil {
			testkit.Equal(t, "no URL, and an error without words", []any{u, err.Error() == ""}, []any{URL{}, false})
			return
		}
		checkURL(t, text, u)
	})
}

// TestURLsOfAnyBytesKeepTheirProperties parses texts of random pieces and of the bytes that have a meaning in URLs.
func TestURLsOfAnyBytesKeepTheirProperties(t *testing.T) {
	random := rand.New(rand.NewPCG(23, 24))
	pieces := strings.Split(`http https :// : / // . .. /./ /../ ? # % %2 %25 25 %2F %2e %3F %40 %5C @ \ [ ] ::1 1 0x7f a A b.com co.uk ü 。 `+
		"\u00ad \xff \x00 \t \r \n xn-- xn--bcher-kva %C3%BC _", " ")
	pieces = append(pieces, " ")
	parsed := 0
	for range 50_000 {
		var b strings.Builder
		if random.IntN(2) == 0 {
			b.WriteString("http://")
		}
		for range random.IntN(12) {
			b.WriteString(pieces[random.IntN(len(pieces))])
		}
		u, err := ParseURL(b.String())
		if err != nil {
			continue
		}
		parsed++
		if checkURL(t, b.String(), u); t.Failed() {
			return
		}
	}
	testkit.Between(t, "texts that were parsed, else this says little", parsed, 5_000, 50_000)
}
