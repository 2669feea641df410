package say

import "testing"

func TestWordCountsEdits(t *testing.T) {
	known := []string{"allow", "block", "protocol", "respond", "resolver", "ttl"}
	for _, tc := range []struct {
		word, want string
		edits      int
	}{
		{"block", "block", 0},
		{"BLOCK", "block", 0},
		{"blok", "block", 1},
		{"blockk", "block", 1},
		{"blick", "block", 1},
		{"blcok", "block", 1},
		{"resovlers", "resolver", 2},
		{"protcoll", "protocol", 2},
		{"ttl", "ttl", 0},
		{"", "ttl", 3},
		{"xyz", "ttl", 3},
	} {
		if got, edits := Nearest(tc.word, known); got != tc.want || edits != tc.edits {
			t.Errorf("%q: Expected %q by %d edits, got %q by %d", tc.word, tc.want, tc.edits, got, edits)
		}
	}
}

func TestOfEquallyNearWordsTheSameBeginningWins(t *testing.T) {
	if got, _ := Nearest("uw-4b", []string{"mw-4b", "se-4b", "uws-4b"}); got != "uws-4b" {
		t.Errorf("Expected uws-4b, got %q", got)
	}
	if got, _ := Nearest("aa", []string{"ab", "ac"}); got != "ab" {
		t.Errorf("Expected the first of two, got %q", got)
	}
	if got, _ := Nearest("x", nil); got != "" {
		t.Errorf("Expected no word without known ones, got %q", got)
	}
}

func TestDistanceIsSymmetric(t *testing.T) {
	words := []string{"", "a", "ab", "ba", "abc", "acb", "resolver", "respond", "se-4b"}
	for _, a := range words {
		for _, b := range words {
			if distance(a, b) != distance(b, a) {
				t.Errorf("Expected one distance of %q and %q, got %d and %d", a, b, distance(a, b), distance(b, a))
			}
		}
	}
}
