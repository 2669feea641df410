package files

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/gofrs/flock"
)

// Disk is what replaces files. Tests have disks that hang or fail.
type Disk struct {
	SyncFile func(*os.File) error
	Rename   func(from, to string) error
	SyncDir  func(dir string) error
}

// RealDisk returns the system's disk.
func RealDisk() Disk { return Disk{SyncFile: syncFile, Rename: os.Rename, SyncDir: syncDir} }

// Unfinished is the pattern of os.CreateTemp for the file that is to replace another one, beside it:
// a name of its own for each writer, since without a lock two may write at the same time.
func Unfinished(name string) string { return name + ".*.tmp" }

// Replaced returns the name of the file that a file of this name was to replace; "": it is none by
// the pattern of Unfinished.
func Replaced(name string) string {
	name, ok := strings.CutSuffix(name, ".tmp")
	dot := strings.LastIndexByte(name, '.')
	if !ok || dot < 0 {
		return ""
	}
	if _, err := strconv.ParseUint(name[dot+1:], 10, 64); err != nil {
		return ""
	}
	return name[:dot]
}

// Clean removes what writers that died have left in a folder of new files for those whose names which
// accepts. No other writer may be at work with them.
func Clean(dir string, which func(name string) bool) {
	all, _ := os.ReadDir(dir)
	for _, f := range all {
		if name := Replaced(f.Name()); name != "" && f.Type().IsRegular() && which(name) {
			_ = os.Remove(filepath.Join(dir, f.Name()))
		}
	}
}

// TryLock takes a lock, or reports that another one has it. In the place of its file there may be something else,
// which could block for ever when it is opened. A new file has the owner that Replace gives to files.
func TryLock(lock *flock.Flock) (locked bool, err error) {
	switch err := Check(lock.Path()); {
	case errors.Is(err, ErrIrregular):
		return false, fmt.Errorf("%w; remove it", err)
	case errors.Is(err, fs.ErrNotExist):
		// If it cannot be made, whoever opens the file says why.
		if f, err := os.OpenFile(lock.Path(), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600); err == nil {
			ownLikeFolder(f)
			f.Close()
		}
	}
	return lock.TryLock()
}

// Replace puts what write writes in the place of a file: whole and durably, or not at all, also if
// the process or the machine ends meanwhile. A process that dies leaves a file by the pattern of
// Unfinished. What root writes in the folder of another user belongs to that one, whose service reads it.
func Replace(path string, write func(*os.File) error) error {
	return RealDisk().Replace(path, Unfinished(filepath.Base(path)), write)
}

// ReplaceLike is Replace for what people own, as a Corefile with a key: the owner of a file that is there stays, if the program
// may give it away.
func ReplaceLike(path string, write func(*os.File) error) error {
	return RealDisk().replace(path, Unfinished(filepath.Base(path)), func(f *os.File) error {
		_ = keepOwner(path, f) // else it belongs to whoever runs the program
		return write(f)
	})
}

// keepOwner gives a new file the owner of the one in whose place it comes, or else of the folder.
func keepOwner(path string, f *os.File) error {
	info, err := os.Lstat(path)
	if err != nil {
		ownLikeFolder(f)
		return nil
	}
	if err := ownLike(f, info); err != nil {
		return fmt.Errorf("keeping the owner of %s: %w; run the command as that user", path, err)
	}
	return nil
}

// Replace is the function Replace, on a disk and with a pattern of the unfinished file's name.
func (d Disk) Replace(path, unfinished string, write func(*os.File) error) error {
	return d.replace(path, unfinished, func(f *os.File) error {
		ownLikeFolder(f)
		return write(f)
	})
}

// replace is Replace without another owner.
func (d Disk) replace(path, unfinished string, write func(*os.File) error) error {
	dir := filepath.Dir(path)
	f, err := os.CreateTemp(dir, unfinished)
	if err != nil {
		return err
	}
	err = write(f)
	// Sync before the rename: after a power failure the name could otherwise lead to an empty file.
	// Close before it, too: Windows does not rename open files, and on NFS a full disk is told by it
	// (close(2)).
	err = errors.Join(err, d.SyncFile(f), f.Close())
	if err == nil {
		err = d.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return d.SyncDir(dir)
}

// syncFile waits until the file is on disk. With GOMAXPROCS=1 it sleeps first: the
// scheduler retakes the P from a blocking system call after 20 µs if the P was idle
// recently, otherwise only after 10 ms, and no query is answered meanwhile.
func syncFile(f *os.File) error {
	if runtime.GOMAXPROCS(0) == 1 {
		time.Sleep(20 * time.Millisecond)
	}
	return f.Sync()
}

// syncDir makes renames in the folder durable. Systems that cannot sync a folder, such as Windows, need no
// sync for that. Nor do file systems that cannot, such as those that a virtual machine shares: Linux says EINVAL.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	if err := syncFile(d); err != nil && !errors.Is(err, errors.ErrUnsupported) && !errors.Is(err, syscall.EINVAL) && !errors.Is(err, fs.ErrPermission) {
		return err
	}
	return nil
}

// lockTimeout is how long an edit waits for the edits of others.
const lockTimeout = 10 * time.Second

// Edit replaces the content of a file by what change makes of it, whole or not at all,
// even if the power fails. A lock on the folder keeps other edits by Edit away
// meanwhile, of other processes too. Mode and owner stay; of a symlink the target is
// edited. A file that does not exist has no content. If change returns the same content,
// the file is not written.
func Edit(ctx context.Context, path string, change func(old []byte) ([]byte, error)) error {
	target, err := targetOf(path)
	if err != nil {
		return err
	}
	if err = EditTarget(ctx, target, change); target != path && errors.Is(err, ErrIrregular) {
		return fmt.Errorf("the symlink %s leads to %w", path, err)
	}
	return err
}

// EditTarget is Edit for a path that must not be a symlink. In a folder of another user
// one could lead root to any file.
func EditTarget(ctx context.Context, path string, change func(old []byte) ([]byte, error)) error {
	unlock, err := LockFolder(ctx, filepath.Dir(path))
	if err != nil {
		return err
	}
	defer unlock()
	for range maxEdits {
		if err = editOnce(path, change); !errors.Is(err, errSaved) {
			break
		}
	}
	return err
}

// maxEdits is how often an edit is tried while others save the file without the lock, as editors do.
const maxEdits = 3

var errSaved = errors.New("another program has just changed it: try again")

// editOnce is EditTarget for one who has the lock. It is errSaved if the file has changed since it was read.
func editOnce(path string, change func(old []byte) ([]byte, error)) error {
	if err := RegularOrNone(path); err != nil { // only now: who has the lock may replace it
		return err
	}
	read, _ := os.Lstat(path)
	old, err := readSame(path, read)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	content, err := change(old)
	if err != nil || bytes.Equal(content, old) {
		return err
	}
	disk := RealDisk()
	disk.Rename = func(from, to string) error { // after the sync, which may take long
		if now, _ := os.Lstat(to); !Same(read, now) && (read != nil || now != nil) {
			return errSaved
		}
		return os.Rename(from, to)
	}
	return replaceFile(disk, path, content)
}

// readSame reads a file, unless it is another one than a look at the path has found, as where a link came meanwhile.
func readSame(path string, found fs.FileInfo) ([]byte, error) {
	f, err := Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if opened, err := f.Stat(); err != nil || !os.SameFile(found, opened) {
		return nil, errors.Join(err, errSaved)
	}
	return io.ReadAll(f)
}

// RegularOrNone returns ErrIrregular if a path is neither of a regular file nor of none.
func RegularOrNone(path string) error {
	if info, err := os.Lstat(path); err == nil && !info.Mode().IsRegular() {
		return fmt.Errorf("%s: %w", path, ErrIrregular)
	}
	return nil
}

// targetOf returns what a symlink leads to, and other paths as they are.
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
	return target, err
}

// LockFolder locks a folder. The lock needs no file of its own, which would stay in /etc.
func LockFolder(ctx context.Context, dir string) (unlock func(), err error) {
	ctx, cancel := context.WithTimeout(ctx, lockTimeout)
	defer cancel()
	lock := flock.New(dir, flock.SetFlag(os.O_RDONLY))
	_, err = lock.TryLockContext(ctx, 5*time.Millisecond)
	if errors.Is(err, context.DeadlineExceeded) {
		return nil, fmt.Errorf("another program has locked %s: try again when it has ended", dir)
	}
	if err != nil {
		return nil, fmt.Errorf("locking %s: %w", dir, err)
	}
	return func() { lock.Close() }, nil
}

// replaceFile replaces a file by one with other content. The caller has locked the folder. Until it is
// whole the new one is hidden: a Corefile may import all files of the folder.
func replaceFile(disk Disk, path string, content []byte) error {
	hidden := "." + filepath.Base(path)
	Clean(filepath.Dir(path), func(name string) bool { return name == hidden })
	return disk.replace(path, Unfinished(hidden), func(f *os.File) error { return writeLike(path, f, content) })
}

// writeLike writes a file with the mode and the owner of another one, if that exists: until then it is not
// of the folder's owner, who could keep it open.
func writeLike(path string, f *os.File, content []byte) error {
	mode := fs.FileMode(0o644)
	if info, err := os.Lstat(path); err == nil {
		mode = info.Mode().Perm()
	}
	if err := keepOwner(path, f); err != nil {
		return err
	}
	if _, err := f.Write(content); err != nil {
		return err
	}
	return f.Chmod(mode)
}
