package updater

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/gofrs/flock"

	"github.com/coredns-safebrowsing/safebrowsing/internal/files"
)

// Medium keeps small documents for several writers. It is safe for concurrent use.
type Medium interface {
	// Read returns the last known content of a document, nil if there is none. With an error that
	// may be old.
	Read(document string) (raw []byte, err error)
	// Swap replaces the content old, nil for none, by next, durably. The error is ErrConflict if
	// the document has, or may have, another content, which Read returns from then on.
	Swap(document string, old, next []byte) error
}

// ErrConflict says that another writer has changed a document.
var ErrConflict = errors.New("another process has written the document")

// exchange gives up after this number of tries and this time while others write all the time. Both: on a
// busy machine a second is two tries, and each failure is searches that others do not know of.
const exchangeTries, exchangeLimit = 20, time.Second

// exchange replaces a document by what next makes of it, which may be called several times. A
// content of nil leaves the document as it is.
func exchange(m Medium, document string, next func(raw []byte, readErr error) ([]byte, error)) error {
	for tries, begun := 0, time.Now(); ; tries++ {
		raw, readErr := m.Read(document)
		content, err := next(raw, readErr)
		if err != nil || content == nil {
			return err
		}
		err = m.Swap(document, raw, content)
		if !errors.Is(err, ErrConflict) || tries >= exchangeTries && time.Since(begun) > exchangeLimit {
			return err
		}
	}
}

// folder is the Medium of files in the folder of the lists, or in the one that stands in for it
// where that cannot be written: a crash must not lead to a request at once, and a few hundred bytes
// find a place nearly everywhere.
type folder struct {
	*Store
	spare bool
}

// spareFolder returns the folder for documents that cannot be saved in the folder of the lists, as
// where that is read-only; "": there is none. It is meant for files of running programs.
func spareFolder() string {
	dir := files.RuntimeFolder()
	if !filepath.IsAbs(dir) {
		return ""
	}
	return filepath.Join(dir, fmt.Sprintf("coredns-safebrowsing-%d", os.Getuid()))
}

// makeSpare makes the spare folder and returns it; "": there is none that is ours.
func makeSpare() string {
	dir := spareFolder()
	if dir == "" || os.MkdirAll(dir, 0o700) != nil || !files.Private(dir) {
		return ""
	}
	return dir
}

// spareFile returns the name of a file in the spare folder, which several stores may share.
func (s *Store) spareFile(name string) string {
	dir, err := filepath.Abs(s.dir)
	if err != nil {
		dir = s.dir
	}
	sum := sha256.Sum256([]byte(dir))
	return hex.EncodeToString(sum[:8]) + "-" + name
}

// path returns the path of a document; "": there is no folder.
func (f folder) path(document string) string {
	if !f.spare {
		return filepath.Join(f.dir, document)
	}
	if dir := spareFolder(); files.Private(dir) {
		return filepath.Join(dir, f.spareFile(document))
	}
	return ""
}

// stat describes the file of a document; nil: there is none. A link to nothing is one.
func (f folder) stat(document string) os.FileInfo {
	path := f.path(document)
	for _, stat := range []func(string) (os.FileInfo, error){os.Stat, os.Lstat} {
		if info, err := stat(path); err == nil {
			return info
		}
	}
	return nil
}

// Read implements Medium.
func (f folder) Read(document string) ([]byte, error) {
	path := f.path(document)
	if path == "" {
		return nil, nil
	}
	raw, err := readSmall(path)
	if errors.Is(err, fs.ErrNotExist) || files.NoFolder(err) && f.stat(document) == nil { // else it is another user's
		return nil, nil
	}
	return raw, err
}

// Swap implements Medium. What cannot be read is replaced.
func (f folder) Swap(document string, old, next []byte) error {
	place, name := f.Store, document
	if f.spare {
		dir := makeSpare()
		if dir == "" {
			return errors.New("there is no other folder for it: RUNTIME_DIRECTORY names none that this user can write")
		}
		place, name = newStore(dir, f.origin), f.spareFile(document)
	}
	if document != f.origin.scheduleFile() { // whose only writer holds the lock of the folder
		unlock, err := f.lockDocument(document)
		switch {
		case err == nil:
			defer unlock()
		case document != f.origin.searchFile(): // a wait must not be lost; who writes next joins it
			return err
		}
	}
	if now, _ := f.Read(document); !bytes.Equal(now, old) {
		return ErrConflict
	}
	files.Clean(place.dir, func(other string) bool { return other == name }) // of writers that died
	err := place.replace(name, func(w io.Writer) error {
		_, err := w.Write(next)
		return err
	})
	if spare := (folder{f.Store, true}).path(document); err == nil && !f.spare && spare != "" {
		os.Remove(spare)
	}
	return err
}

// diskPatience bounds the wait for the lock of a document in the folder, under which other processes
// write a few hundred bytes, and the wait of a search for the disk.
const diskPatience = 2 * time.Second

// errLocked says that another process keeps the lock of a document.
var errLocked = fmt.Errorf("another process has kept the lock for more than %s", diskPatience)

// lockDocument takes the lock of a document and returns the function that releases it. If the
// folder has no locks, because it is read-only for example, the lock is in the spare folder; if
// that has none either, there is no lock. The error is errLocked: a process that is suspended while
// it holds the lock must not stop the searches of others.
func (s *Store) lockDocument(document string) (unlock func(), err error) {
	unlock, locked, err := lockFileAt(filepath.Join(s.dir, document+".lock"))
	if err != nil {
		if dir := makeSpare(); dir != "" {
			unlock, locked, err = lockFileAt(filepath.Join(dir, s.spareFile(document+".lock")))
		}
	}
	switch {
	case err != nil:
		return func() {}, nil
	case !locked:
		return nil, fmt.Errorf("%s: %w", document, errLocked)
	}
	return unlock, nil
}

// lockFileAt takes a lock and returns the function that releases it. It gives up after
// diskPatience, without an error, or at once with an error if there are no locks.
func lockFileAt(path string) (unlock func(), locked bool, err error) {
	lock := flock.New(path)
	for begun := time.Now(); time.Since(begun) < diskPatience; time.Sleep(5 * time.Millisecond) {
		locked, err := files.TryLock(lock)
		if err != nil {
			return nil, false, err
		}
		if locked {
			return func() { lock.Close() }, true, nil
		}
	}
	return nil, false, nil
}
