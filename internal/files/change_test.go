package files

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
)

func TestSameSeesEachWayInWhichAFileChanges(t *testing.T) {
	at := time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)
	write := func(path, content string, at time.Time) {
		t.Helper()
		testkit.Must(t, os.WriteFile(path, []byte(content), 0o600))
		testkit.Must(t, os.Chtimes(path, at, at))
	}
	for name, tc := range map[string]struct {
		change func(path string)
		want   bool
	}{
		"nothing":                   {func(string) {}, true},
		"longer":                    {func(path string) { write(path, "three", at) }, false},
		"another time":              {func(path string) { write(path, "one", at.Add(time.Second)) }, false},
		"another file of that time": {func(path string) { write(path+"2", "two", at); os.Rename(path+"2", path) }, false},
		"a link to another one":     {func(path string) { write(path+"2", "two", at); os.Remove(path); os.Symlink(path+"2", path) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "file")
			write(path, "one", at)
			before, err := os.Stat(path)
			testkit.Must(t, err)
			tc.change(path)
			after, err := os.Stat(path)
			testkit.Must(t, err)
			if got := Same(before, after); got != tc.want {
				t.Errorf("the same: %t, want %t", got, tc.want)
			}
			if Same(before, nil) || Same(nil, nil) {
				t.Error("a file is the same as none")
			}
		})
	}
}
