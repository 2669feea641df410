package files

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/gofrs/flock"
)

// lockTimeout is how long an edit waits for the edits of others.
const lockTimeout = 10 * time.Second

// Edit replaces the content of a file by what change makes of it, whole or not at all,
// even if the power fails. A lock on the folder keeps other edits by Edit away
// meanwhile, of other processes too. Mode and owner stay; of a symlink the target is
// edited. A file that does not exist has no content. If change returns the same content,
// the file is not written.
func Edit(ctx context.Context, path string, change func(old []byte) ([]byte, error)) error {
	path, err := targetOf(path)
	if err != nil {
		return err
	}
	return EditTarget(ctx, path, change)
}

// EditTarget is Edit for a path that must not be a symlink. In a folder of another user
// one could lead root to any file.
func EditTarget(ctx context.Context, path string, change func(old []byte) ([]byte, error)) error {
	unlock, err := LockFolder(ctx, filepath.Dir(path))
	if err != nil {
		return err
	}
	defer unlock()
	if err := RegularOrNone(path); err != nil { // only now: who has the lock may replace it
		return err
	}
	old, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	content, err := change(old)
	if err != nil || bytes.Equal(content, old) {
		return err
	}
	return replaceFile(path, content)
}

// RegularOrNone returns an error if a path is neither of a regular file nor of none.
func RegularOrNone(path string) error {
	if info, err := os.Lstat(path); err == nil && !info.Mode().IsRegular() {
		return fmt.Errorf("%s is not a regular file", path)
	}
	return nil
}

// targetOf returns what a symlink leads to, and other paths as they are. It refuses files
// that are not regular.
func targetOf(path string) (string, error) {
	target, err := filepath.EvalSymlinks(path)
	if errors.Is(err, fs.ErrNotExist) {
		if _, err := os.Lstat(path); err == nil {
			return "", fmt.Errorf("the symlink %s leads to no file", path)
		}
		return path, nil
	}
	if _, named := errors.AsType[*fs.PathError](err); err != nil && !named {
		return "", fmt.Errorf("following the symlink %s: %w", path, err)
	}
	if err != nil {
		return "", err
	}
	info, err := os.Stat(target)
	if err == nil && !info.Mode().IsRegular() {
		return "", fmt.Errorf("%s is not a regular file", path)
	}
	return target, err
}

// LockFolder locks a folder. The lock needs no file of its own, which would stay in /etc.
func LockFolder(ctx context.Context, dir string) (unlock func(), err error) {
	ctx, cancel := context.WithTimeout(ctx, lockTimeout)
	defer cancel()
	lock := flock.New(dir, flock.SetFlag(os.O_RDONLY))
	_, err = lock.TryLockContext(ctx, 5*time.Millisecond)
	if errors.Is(err, context.DeadlineExceeded) {
		return nil, fmt.Errorf("another program has locked %s for %v: try again when it has ended", dir, lockTimeout)
	}
	if err != nil {
		return nil, fmt.Errorf("locking %s: %w", dir, err)
	}
	return func() { lock.Close() }, nil
}

// replaceFile replaces a file by one with other content. The caller has locked the folder. Until it is
// whole the new one is hidden: a Corefile may import all files of the folder.
func replaceFile(path string, content []byte) error {
	hidden := "." + filepath.Base(path)
	Clean(filepath.Dir(path), func(name string) bool { return name == hidden })
	return RealDisk().Replace(path, Unfinished(hidden), func(f *os.File) error { return writeLike(path, f, content) })
}

// writeLike writes a file with the mode and the owner of another one, if that exists.
func writeLike(path string, f *os.File, content []byte) error {
	mode := fs.FileMode(0o644)
	if info, err := os.Lstat(path); err == nil {
		mode = info.Mode().Perm()
		if err := ownLike(f, info); err != nil {
			return fmt.Errorf("keeping the owner of %s: %w; run the command as that user", path, err)
		}
	}
	if _, err := f.Write(content); err != nil {
		return err
	}
	return f.Chmod(mode)
}
