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
	testkit.Equal(t, "the file was another's, and its owner", []any{seen.Load(), owner(path)}, []any{false, 0})
	edit(fresh, "new")
	testkit.Equal(t, "the owner of a new file", owner(fresh), other)
	testkit.Must(t, os.Chown(path, other, other))
	testkit.Must(t, ReplaceLike(path, func(*os.File) error { return nil }))
	testkit.Equal(t, "the owner of a file", owner(path), other)
}

func TestAFolderOfSomebodyElseIsNotPrivate(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "spare")
	testkit.Must(t, errors.Join(os.Mkdir(dir, 0o700), os.Symlink(dir, dir+"-link")))
	testkit.Equal(t, "a folder of ours", Private(dir), true)
	testkit.Equal(t, "a link is followed", Private(dir+"-link"), false)
	testkit.Must(t, os.Chmod(dir, 0o770))
	testkit.Equal(t, "a folder to which others may write", Private(dir), false)
}

// To open a pipe that nobody writes to blocks for ever.
func TestAPipeThatComesBeforeAFileIsOpenedDoesNotBlock(t *testing.T) {
	pipe, found := filepath.Join(t.TempDir(), "pipe"), 0
	testkit.Must(t, syscall.Mkfifo(pipe, 0o600))
	takingTurns(t, func(at string) error { return os.Link(pipe, at) }, func(path string) {
		if raw, err := Read(path, 100); err == nil && string(raw) == "list" {
			found++
		} else if !errors.Is(err, ErrIrregular) {
			t.Errorf("%q, %v", raw, err)
		}
	})
	testkit.Between(t, "times that the file was read", found, 1, 20_000)
}

// Whoever owns the folder may put a link in the place of the file at any time.
func TestAnEditNeverReadsThroughALink(t *testing.T) {
	secret := testkit.Write(t, t.TempDir(), "secret", "secret")
	takingTurns(t, func(at string) error { return os.Symlink(secret, at) }, func(path string) {
		_ = EditTarget(t.Context(), path, func(old []byte) ([]byte, error) {
			if string(old) == "secret" {
				t.Error("it read the file that the link leads to")
			}
			return old, nil
		})
	})
}

// takingTurns does something many times with a path where a file and what makeOther makes take turns.
func takingTurns(t *testing.T, makeOther func(at string) error, do func(path string)) {
	t.Helper()
	dir := t.TempDir()
	path, next, kept := testkit.Write(t, dir, "list", "list"), filepath.Join(dir, "next"), filepath.Join(dir, "kept")
	var done atomic.Bool
	ended := make(chan error)
	go func() {
		var err error
		for !done.Load() && err == nil {
			err = errors.Join(os.Link(path, kept), makeOther(next), os.Rename(next, path), os.Rename(kept, path))
		}
		ended <- err
	}()
	for range 20_000 {
		do(path)
	}
	done.Store(true)
	testkit.Must(t, <-ended)
}
