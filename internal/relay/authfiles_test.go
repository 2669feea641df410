package relay

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// A key may be replaced by another of its size, at its time: cp -p, rsync and archives keep times.
func TestAFileOfTheSameSizeAndTimeIsReadAgain(t *testing.T) {
	path, at := filepath.Join(t.TempDir(), "keys"), time.Now().Add(-time.Hour)
	reads := 0
	w := &watched{what: "keys", paths: []string{path}, load: func() error { reads++; return nil }}
	for n, key := range []string{"first", "first", "other"} {
		if err := os.WriteFile(path, []byte(key), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, at, at); err != nil {
			t.Fatal(err)
		}
		if n == 0 {
			if err := w.open(); err != nil {
				t.Fatal(err)
			}
		}
		w.look()
		if want := 1 + n/2; reads != want {
			t.Errorf("after %q: read %d times, want %d", key, reads, want)
		}
	}
}
