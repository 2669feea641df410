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

// disk is what replace asks of the file system, and what tests record.
type disk struct {
	syncFile func(*os.File) error
	rename   func(from, to string) error
	syncDir  func(dir string) error
}

// replace puts what write writes in the place of the named file, durably.
func (s *Store) replace(name string, write func(io.Writer) error) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("saving %s: %w", filepath.Join(s.dir, name), err)
		}
	}()
	f, err := os.CreateTemp(s.dir, name+".*"+unfinished)
	if err != nil {
		return err
	}
	err = write(f)
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

// syncFile waits for the disk. On a machine with one core it waits a moment before:
// the scheduler takes the core from a system call that blocks within 20 µs if the
// core has been idle lately, but else after 10 ms only, in which no query would be
// answered.
func syncFile(f *os.File) error {
	if runtime.GOMAXPROCS(0) == 1 {
		time.Sleep(20 * time.Millisecond)
	}
	return f.Sync()
}

// syncDir makes renames in the folder durable. Systems that cannot sync a
// folder (Windows) make them so by themselves.
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

// isUnfinished reports whether replace gave a file this name, to put it in the place
// of another: the name of that, a number, and the suffix.
func isUnfinished(name, replaces string) bool { return replacedBy(name) == replaces }

func isUnfinishedList(name string) bool {
	list, ok := strings.CutSuffix(replacedBy(name), listSuffix)
	_, err := Width(list)
	return ok && err == nil
}

// replacedBy returns the name of the file in whose place replace would put one of
// this name, or "".
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
