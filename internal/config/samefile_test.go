package config

import (
	"os"
	"path/filepath"
	"testing"
)

func TestEqualPathsAreOneFileEvenWhileItIsReplaced(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	for _, name := range []string{"one", "two"} {
		writeFile(t, ".", name, "")
	}
	if err := os.Symlink("one", "link"); err != nil {
		t.Fatal(err)
	}
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
		if got := SameFile(tc.a, tc.b); got != tc.want {
			t.Errorf("%s, %s: got %v, want %v", tc.a, tc.b, got, tc.want)
		}
	}
}
