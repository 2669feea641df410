package lookup

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
)

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
	if again, err := ParseURL(text); err != nil || again.String() != text {
		t.Errorf("%q became %q, but that %q, %v", input, text, again, err)
	}
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
