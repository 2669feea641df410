package updater

import (
	"errors"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestALongCauseIsCutAtAWholeRune(t *testing.T) {
	for _, before := range []string{"", "a", "ab"} { // the cut is at each byte of a rune
		got := causeOf(errors.New(before + strings.Repeat("界", maxCause)))
		if len(got) > maxCause || len(got) < maxCause-2 || !utf8.ValidString(got) {
			t.Errorf("%q...: got %d bytes, valid: %v, want %d at most of whole runes", before, len(got), utf8.ValidString(got), maxCause)
		}
	}
}
