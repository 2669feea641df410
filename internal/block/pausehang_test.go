package block

import (
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/files"
)

// A watcher that hangs, as on a network drive that does not answer, delays no end for long, and
// the next one begins when it has ended. A report that does not return stands in for the disk.
func TestClosingAPauseDoesNotWaitForADiskThatHangs(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		hung := make(chan struct{})
		r := newPauses(func(pauseEvent) { <-hung })
		f := r.Open(dir)
		if err := os.WriteFile(PauseFile(dir), []byte("no pause\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * pauseInterval)
		begun := time.Now()
		r.Close(f)
		if took := time.Since(begun); took != files.WaitLimit {
			t.Errorf("got %s, want %s", took, files.WaitLimit)
		}
		time.AfterFunc(time.Hour, func() { close(hung) })
		r.Close(r.Open(dir))
		if waited := time.Since(begun); waited < time.Hour {
			t.Errorf("a second watcher began after %s, while the first one went on", waited)
		}
	})
}
