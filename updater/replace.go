package updater

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/coredns-safebrowsing/safebrowsing/internal/files"
)

// replace puts what write writes in the place of the named file, durably (see Store).
func (s *Store) replace(name string, write func(io.Writer) error) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("saving %s: %w", filepath.Join(s.dir, name), err)
		}
	}()
	return s.disk.Replace(filepath.Join(s.dir, name), files.Unfinished(name), func(f *os.File) error { return write(f) })
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
