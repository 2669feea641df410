package files

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
)

// On NFS a full disk is told when the file is closed.
func TestAFileWhoseCloseFailsReplacesNothing(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "allow.txt")
	testkit.Must(t, os.WriteFile(path, []byte("a.example\n"), 0o600))
	disk := RealDisk()
	disk.SyncFile = func(f *os.File) error { return f.Close() } // so the next Close fails
	err := disk.Replace(path, Unfinished("allow.txt"), func(f *os.File) error {
		_, err := f.WriteString("half of ")
		return err
	})
	if !errors.Is(err, os.ErrClosed) {
		t.Errorf("the error of Close is not seen: %v", err)
	}
	raw, err := os.ReadFile(path)
	beside, _ := os.ReadDir(dir)
	if err != nil || string(raw) != "a.example\n" || len(beside) != 1 {
		t.Errorf("the file is %q, %v, beside %v", raw, err, beside)
	}
}
