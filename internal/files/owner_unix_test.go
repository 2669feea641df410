//go:build unix

package files

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
)

// Who opens a file while it is theirs reads it ever after.
func TestAFileOfRootIsNeverAnothersWhileItIsEdited(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can")
	}
	const other = 65534
	owner := func(path string) int {
		info, err := os.Lstat(path)
		if err != nil {
			return -1
		}
		return int(info.Sys().(*syscall.Stat_t).Uid)
	}
	dir := t.TempDir()
	path, fresh := filepath.Join(dir, "Corefile"), filepath.Join(dir, "fresh")
	testkit.Must(t, errors.Join(os.Chown(dir, other, other), os.WriteFile(path, nil, 0o600)))
	var done, seen atomic.Bool
	ended := make(chan bool)
	go func() {
		for !done.Load() {
			all, _ := os.ReadDir(dir)
			for _, f := range all {
				if owner(filepath.Join(dir, f.Name())) == other {
					seen.Store(true)
				}
			}
		}
		close(ended)
	}()
	edit := func(path, text string) {
		testkit.Must(t, EditTarget(t.Context(), path, func([]byte) ([]byte, error) { return []byte(text), nil }))
	}
	for i := range 300 {
		edit(path, fmt.Sprint(i))
	}
	testkit.Must(t, ReplaceLike(path, func(f *os.File) error { _, err := f.WriteString("key"); return err })) // as setup does
	done.Store(true)
	<-ended
	if seen.Load() || owner(path) != 0 {
		t.Errorf("the file was another's, and is of user %d", owner(path))
	}
	if edit(fresh, "new"); owner(fresh) != other {
		t.Errorf("a new file is of user %d", owner(fresh))
	}
}

// To open a pipe that nobody writes to blocks for ever.
func TestAPipeThatComesBeforeAFileIsOpenedDoesNotBlock(t *testing.T) {
	dir := t.TempDir()
	path, pipe, next, kept := filepath.Join(dir, "list"), filepath.Join(dir, "pipe"), filepath.Join(dir, "next"), filepath.Join(dir, "kept")
	testkit.Must(t, errors.Join(os.WriteFile(path, []byte("list"), 0o600), syscall.Mkfifo(pipe, 0o600)))
	var done atomic.Bool
	ended := make(chan error)
	go func() {
		var err error
		for !done.Load() && err == nil {
			err = errors.Join(os.Link(path, kept), os.Link(pipe, next), os.Rename(next, path), os.Rename(kept, path))
		}
		ended <- err
	}()
	found := 0
	for range 20_000 {
		if raw, err := Read(path, 100); err == nil && string(raw) == "list" {
			found++
		} else if !errors.Is(err, ErrIrregular) {
			t.Fatalf("%q, %v", raw, err)
		}
	}
	done.Store(true)
	testkit.Must(t, <-ended)
	if found == 0 {
		t.Error("the file was never read")
	}
}

// Whoever owns the folder may put a link in the place of the file at any time.
func TestAnEditNeverReadsThroughALink(t *testing.T) {
	dir := t.TempDir()
	path, secret, link, kept := filepath.Join(dir, "list"), filepath.Join(dir, "secret"), filepath.Join(dir, "link"), filepath.Join(dir, "kept")
	testkit.Must(t, errors.Join(os.WriteFile(path, []byte("list"), 0o600), os.WriteFile(secret, []byte("secret"), 0o600)))
	var done atomic.Bool
	ended := make(chan error)
	go func() {
		var err error
		for !done.Load() && err == nil {
			err = errors.Join(os.Link(path, kept), os.Symlink(secret, link), os.Rename(link, path), os.Rename(kept, path))
		}
		ended <- err
	}()
	for range 20_000 {
		_ = EditTarget(t.Context(), path, func(old []byte) ([]byte, error) {
			if string(old) == "secret" {
				t.Error("it read the file that the link leads to")
			}
			return old, nil
		})
	}
	done.Store(true)
	testkit.Must(t, <-ended)
}
