package say

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Text is a string in JSON that may hold any bytes. Those that are not UTF-8
// are escaped as in a canonical host.
type Text string

// MarshalText implements encoding.TextMarshaler.
func (t Text) MarshalText() ([]byte, error) {
	return []byte(escaped(string(t), func(rune) bool { return true })), nil
}

// Shown returns text that others wrote, safe for a terminal: it escapes control characters.
func Shown(s string) string { return escaped(s, unicode.IsPrint) }

// escaped replaces bytes that are not UTF-8, and runes for which keep is false, by %XX.
func escaped(s string, keep func(rune) bool) string {
	var b strings.Builder
	for i := 0; i < len(s); {
		r, size := utf8.DecodeRuneInString(s[i:])
		if r == utf8.RuneError && size == 1 || !keep(r) {
			for _, c := range []byte(s[i : i+size]) {
				fmt.Fprintf(&b, "%%%02X", c)
			}
		} else {
			b.WriteString(s[i : i+size])
		}
		i += size
	}
	return b.String()
}
