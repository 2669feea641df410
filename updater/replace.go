package updater

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// disk is what replace needs of the file system. Tests replace it.
type disk struct {
	syncFile func(*os.File) error
	rename   func(from, to string) error
	syncDir  func(dir string) error
}

// replace puts what write writes in the place of the named file, durably (see Store).
func (s *Store) replace(name string, write func(io.Writer) error) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("saving %s: %w", filepath.Join(s.dir, name), err)
		}
	}()
	// A name of its own for each writer: without a lock, two may write at the same time.
	f, err := os.CreateTemp(s.dir, name+".*"+unfinished)
	if err != nil {
		return err
	}
	err = write(f)
	// Sync before the rename: after a power failure the name could otherwise lead to an
	// empty file. Close before it, too: Windows does not rename open files.
	err = errors.Join(err, s.disk.syncFile(f), f.Close())
	if err == nil {
		err = s.disk.rename(f.Name(), filepath.Join(s.dir, name))
	}
	if err != nil {
		os.Remove(f.Name())
		return err
	}
	return s.disk.syncDir(s.dir)
}

// ReplaceFile puts what write writes in the place of a file, durably (see Store). If write
// returns an error, the file stays as it is.
func ReplaceFile(path string, write func(io.Writer) error) error {
	return newStore(filepath.Dir(path), Origin{}).replace(filepath.Base(path), write)
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

// syncDir makes renames in the folder durable. Systems that cannot sync a folder, such
// as Windows, need no sync for that.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	if err := syncFile(d); err != nil && !errors.Is(err, errors.ErrUnsupported) && !errors.Is(err, fs.ErrInvalid) && !errors.Is(err, fs.ErrPermission) {
		return err
	}
	return nil
}

// isUnfinished reports whether replace would use this name for a new file that is to
// replace the file replaces.
func isUnfinished(name, replaces string) bool { return replacedBy(name) == replaces }

// isUnfinishedList is isUnfinished for the files of all lists.
func isUnfinishedList(name string) bool {
	list, ok := strings.CutSuffix(replacedBy(name), listSuffix)
	_, err := Width(list)
	return ok && err == nil
}

// replacedBy returns the name of the file that replace would replace by a file of this
// name, or "". Such a name has three parts: the file to replace, a number, the suffix.
func replacedBy(name string) string {
	name, ok := strings.CutSuffix(name, unfinished)
	dot := strings.LastIndexByte(name, '.')
	if !ok || dot < 0 {
		return ""
	}
	if _, err := strconv.ParseUint(name[dot+1:], 10, 64); err != nil {
		return ""
	}
	return name[:dot]
}
