package lookup

import (
	"strconv"
	"strings"
	"testing"
)

// isQuick is isSurelyCanonical, byte by byte, for names of any length but none.
func isQuick(name string) bool {
	for _, c := range []byte(name) {
		if c < '-' || c == '/' || c > '9' && c < '^' || c >= 0x7f {
			return false
		}
	}
	return name != "" && !strings.Contains("."+name+".", "..")
}

// checkQuick compares both ways to find names that are surely canonical with isQuick. A way
// may leave out names of fewer than eight bytes.
func checkQuick(t *testing.T, name string) {
	t.Helper()
	want := isQuick(name)
	if _, got := isSurelyCanonical(name); got != want && (got || len(name) >= 8) {
		t.Fatalf("isSurelyCanonical(%q) = %t, want %t", name, got, want)
	}
	if got := isCanonicalByWords(name); got != (want && len(name) >= 8) {
		t.Fatalf("isCanonicalByWords(%q) = %t", name, got)
	}
}

// Each byte is told from all others at each place of a word of eight bytes, and where two of
// these words overlap.
func TestQuickNamesHaveTheSameBytesAtEachPlace(t *testing.T) {
	for length := range 20 {
		for place := range length {
			for b := range 256 {
				name := []byte(strings.Repeat("a", length))
				name[place] = byte(b)
				checkQuick(t, string(name))
			}
		}
	}
}

func TestQuickNamesHaveNoEmptyLabel(t *testing.T) {
	for _, length := range []int{8, 9, 12, 16} {
		for dots := range 1 << length {
			name := []byte(strings.Repeat("a", length))
			for i := range name {
				if dots>>i&1 == 1 {
					name[i] = '.'
				}
			}
			checkQuick(t, string(name))
		}
	}
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

func TestHexDigits(t *testing.T) {
	for b := range 256 {
		c := string([]byte{byte(b)})
		value, err := strconv.ParseUint(c, 16, 8)
		if isHex(byte(b)) != (err == nil) {
			t.Errorf("isHex(%q) = %t", c, err != nil)
		}
		if err == nil && uint64(unhex(byte(b))) != value {
			t.Errorf("unhex(%q) = %d, want %d", c, unhex(byte(b)), value)
		}
	}
}
