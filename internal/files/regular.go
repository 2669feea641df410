// Package files is what all who read and write files share: it opens regular files and no others,
// and limits how long an end waits for the disk.
package files

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// In the place of a file there may be something else: to open a named pipe can block for ever, and
// /dev/zero has no end.

// ErrIrregular says that a path is a folder, a named pipe, a device or a socket.
var ErrIrregular = errors.New("it is not a regular file")

// ErrSize says that a file has more bytes than it may have.
var ErrSize = errors.New("it is too large")

// Check returns an error that is ErrIrregular if there is something else than a regular file. Links
// are followed. If there is nothing, the error is fs.ErrNotExist.
func Check(path string) error {
	info, err := os.Stat(path)
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("opening %s: %w", path, ErrIrregular)
	}
	return err
}

// Dangling reports whether a path is a link that leads to nothing. Check says fs.ErrNotExist of
// it, but something was there when the link was made.
func Dangling(path string) bool {
	info, err := os.Lstat(path)
	if err != nil || info.Mode()&fs.ModeSymlink == 0 {
		return false
	}
	_, err = os.Stat(path)
	return errors.Is(err, fs.ErrNotExist)
}

// Open opens a file for reading. The error comes from Check or os.OpenFile. It does not block, also if a named
// pipe takes the place of the file meanwhile.
func Open(path string) (*os.File, error) {
	if err := Check(path); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("opening %s: %w", path, ErrIrregular)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// Read returns the content of a file. The error comes from Open or reading, or is ErrSize if
// there are more than most bytes.
func Read(path string, most int) ([]byte, error) {
	f, err := Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	raw, err := io.ReadAll(io.LimitReader(f, int64(most)+1))
	if err == nil && len(raw) > most {
		raw, err = nil, fmt.Errorf("reading %s: %w: more than %d bytes", path, ErrSize, most)
	}
	return raw, err
}

// InTheWay returns what keeps a folder from being made or used: the path itself, or one above it,
// that exists and is no folder. Links are followed. It is "" if there is no such path.
func InTheWay(dir string) string {
	for {
		info, err := os.Stat(dir)
		switch {
		case err == nil && !info.IsDir():
			return dir
		case err == nil, !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTDIR), filepath.Dir(dir) == dir:
			return ""
		}
		dir = filepath.Dir(dir)
	}
}

// RuntimeFolder returns the folder that the service manager has made for sockets and for what a boot
// may lose: the first one of $RUNTIME_DIRECTORY (systemd.exec(5)). "": there is none.
func RuntimeFolder() string {
	first, _, _ := strings.Cut(os.Getenv("RUNTIME_DIRECTORY"), ":")
	return first
}

// Same reports whether two results of os.Stat are probably of the same content: one file, of one size
// and time. nil stands for no file, and equals nothing.
func Same(a, b fs.FileInfo) bool {
	return a != nil && b != nil && os.SameFile(a, b) && a.Size() == b.Size() && a.ModTime().Equal(b.ModTime())
}

// Every calls look at each interval until ctx ends. Looking at a file also finds renames, replaced
// symlinks and changes on network file systems, which notification does not. A look that finds no
// change takes about 1 µs: go test -bench Poll ./internal/ownlist.
func Every(ctx context.Context, interval time.Duration, look func()) {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			look()
		}
	}
}
