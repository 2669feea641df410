package lookup

import (
	"strings"
	"testing"
)

// FromQname has quick ways for most names. They lead to the host of the slow way.
func TestEachWayLeadsToTheSameHost(t *testing.T) {
	for _, format := range []string{"?", "?a", "a?", "a?a", "a.?", "?.a", "a?.", "a.?.", "a.??.a", "a.a?A.a", "some-name?A.example."} {
		for b := range 256 {
			name := strings.ReplaceAll(format, "?", string([]byte{byte(b)}))
			want := fromLabels(name)
			if name == "." {
				want = Host{} // the root
			}
			if got := FromQname(name); got != want {
				t.Errorf("FromQname(%q) = %+v, want %+v", name, got, want)
			}
		}
	}
}

// The URL Standard forbids these in a name that it converts to ASCII (section 3.1, "forbidden
// domain code point"). Such a name is not converted, so it is another one than without them.
func TestForbiddenCodePointsEndTheConversion(t *testing.T) {
	for b := range 0x80 {
		c := string([]byte{byte(b)})
		if strings.Contains(strings.TrimSuffix(notInHost, " "), c) {
			continue // see TestHostsAreParsedAsTheVectorsSay
		}
		want := b <= 0x20 || strings.Contains("#%<>^|\x7f", c)
		h, ok := canonicalHost("ü"+c+"a.example", "")
		if plain := strings.HasPrefix(h.String(), "%C3%BC"); !ok || plain != want || plain == strings.HasPrefix(h.String(), "xn--") {
			t.Errorf("%q: host %q, want it not to be converted: %t", c, h, want)
		}
	}
}

// No DNS name has more than 1,012 bytes before its conversion.
func TestLongInternationalNamesAreNotConverted(t *testing.T) {
	for length, converted := range map[int]bool{2: true, 1010: true, 1012: true, 1014: false, 2000: false} {
		h, ok := ParseHost(strings.Repeat("ü", length/2))
		if got := strings.HasPrefix(h.String(), "xn--"); !ok || got != converted {
			t.Errorf("a name of %d bytes is converted: %t, want %t", length, got, converted)
		}
	}
}
