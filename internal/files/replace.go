package files

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"
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

// Replace puts what write writes in the place of a file: whole and durably, or not at all, also if
// the process or the machine ends meanwhile. A process that dies leaves a file by the pattern of
// Unfinished.
func Replace(path string, write func(*os.File) error) error {
	return RealDisk().Replace(path, Unfinished(filepath.Base(path)), write)
}

// Replace is the function Replace, on a disk and with a pattern of the unfinished file's name.
func (d Disk) Replace(path, unfinished string, write func(*os.File) error) error {
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
