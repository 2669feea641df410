package lookup

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

func TestNamesThatEscapesMakeLongerThanTheDNSAllowsAreChecked(t *testing.T) {
	label := strings.Repeat(`\001`, 63)
	qname := strings.Repeat(label+".", 3) + "example.com."
	want := strings.Repeat(strings.Repeat("%01", 63)+".", 3) + "example.com"
	h := FromQname(qname)
	if h.String() != want {
		t.Fatalf("host is %q, want %q", h, want)
	}
	c := checkerOf(t, Config{}, want+"/")
	if _, candidates := c.Check(h); candidates == nil || candidates.expression(0) != want+"/" {
		t.Errorf("the exact host is no candidate")
	}
}

// TestUnescapeEqualsRepeatedPasses compares with the rule as it is written:
// "repeatedly percent-unescape the URL until it has no more percent-escapes".
func TestUnescapeEqualsRepeatedPasses(t *testing.T) {
	onePass := func(s []byte) (out []byte) {
		for i := 0; i < len(s); i++ {
			if s[i] == '%' && i+2 < len(s) && isHex(s[i+1]) && isHex(s[i+2]) {
				out = append(out, unhex(s[i+1])<<4|unhex(s[i+2]))
				i += 2
				continue
			}
			out = append(out, s[i])
		}
		return out
	}
	random := rand.New(rand.NewPCG(1, 2))
	for range 20_000 {
		s := make([]byte, random.IntN(24))
		for i := range s {
			s[i] = "%%%%%2345aBx."[random.IntN(13)]
		}
		want := slices.Clone(s)
		for next := onePass(want); !bytes.Equal(next, want); next = onePass(want) {
			want = next
		}
		if got := unescape(s); !bytes.Equal(got, want) {
			t.Fatalf("unescape(%q) = %q, want %q", s, got, want)
		}
	}
}

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
	for i := 0; i < len(name); i++ {
		c := name[i]
		if c == '%' && i+2 < len(name) && isHex(name[i+1]) && isHex(name[i+2]) {
			i += 2
			continue
		}
		if c <= 0x20 || c >= 0x7f || c == '#' || c == '%' || 'A' <= c && c <= 'Z' {
			t.Errorf("%q became %q, with the byte %#x", input, name, c)
		}
	}
	if got := h.Expressions(); len(got) > maxExpressions {
		t.Errorf("%q has %d expressions, want at most %d", input, len(got), maxExpressions)
	}
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
		if again := FromQname(h.name); again != h {
			t.Errorf("FromQname(%q) = %+v, but of that %+v", qname, h, again)
		}
		if strings.Contains(h.name, "%") {
			return // ParseHost takes undone escapes for an international name
		}
		if parsed, ok := ParseHost(h.name); !ok || parsed != h {
			t.Errorf("FromQname(%q) = %+v, but ParseHost of that is %+v, %v", qname, h, parsed, ok)
		}
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
			if h != (Host{}) {
				t.Errorf("ParseHost(%q) = %+v and no host", text, h)
			}
			return
		}
		if h.name == "" {
			t.Errorf("ParseHost(%q) is an empty host", text)
		}
		checkCanonical(t, text, h)
		if again, ok := ParseHost(h.name); !ok || again.String() != h.String() {
			t.Errorf("ParseHost(%q) = %+v, but of that %+v, %v", text, h, again, ok)
		}
	})
}
