// Package regular opens regular files and no others. In the place of a file there may be
// something else: to open a named pipe can block for ever, and /dev/zero has no end.
package regular

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// Err says that a path is a folder, a named pipe, a device or a socket.
var Err = errors.New("it is not a regular file")

// ErrSize says that a file has more bytes than it may have.
var ErrSize = errors.New("it is too large")

// Check returns an error that is Err if there is something else than a regular file. Links
// are followed. If there is nothing, the error is fs.ErrNotExist.
func Check(path string) error {
	info, err := os.Stat(path)
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("opening %s: %w", path, Err)
	}
	return err
}

// Open opens a file for reading. The error is that of Check, or of os.Open.
func Open(path string) (*os.File, error) {
	if err := Check(path); err != nil {
		return nil, err
	}
	return os.Open(path)
}

// Read returns the content of a file. The error is that of Open, of reading, or ErrSize if
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

// Named returns the paths of what is in a folder by names with this beginning and this end,
// sorted. Unlike filepath.Glob it takes the folder as it is: [ and * may be part of its name.
// A folder that cannot be read has none.
func Named(dir, begin, end string) (paths []string) {
	all, _ := os.ReadDir(dir)
	for _, f := range all {
		if rest, ok := strings.CutPrefix(f.Name(), begin); ok && strings.HasSuffix(rest, end) {
			paths = append(paths, filepath.Join(dir, f.Name()))
		}
	}
	return paths
}
