package ownlist

import (
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/files"
)

// A watcher that hangs, as on a network drive that does not answer, delays no end for long. A
// report that does not return stands in for the disk.
func TestCloseDoesNotWaitForADiskThatHangs(t *testing.T) {
	path := filepath.Join(t.TempDir(), "list.txt")
	must(t, os.WriteFile(path, []byte("one.example\n"), 0o600))
	synctest.Test(t, func(t *testing.T) {
		hung := make(chan struct{})
		f, err := newRegistry(pollInterval).open(Config{Path: path}, func(e Event) {
			if loaded, ok := e.(Loaded); !ok || loaded.Again {
				<-hung
			}
		})
		must(t, err)
		must(t, os.Remove(path))
		time.Sleep(2 * pollInterval)
		begun := time.Now()
		f.Close()
		if took := time.Since(begun); took != files.WaitLimit {
			t.Errorf("got %s, want %s", took, files.WaitLimit)
		}
		close(hung)
	})
}
