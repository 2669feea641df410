package updater

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// A document is a small value that outlives its process, or is agreed among several: the schedule,
// the clock of searches, and the count of searches. One owner has it in memory. Copies of it on
// media are joined with that, by one pure function for each kind of document: what is read is never
// believed in place of what is known, so a medium may lose a document, or bring an old copy back.

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

// exchange gives up after so many tries and so long while others write all the time. Both: on a
// busy machine a second is two tries, and each failure is searches that others do not know of.
const exchangeTries, exchangeLimit = 20, time.Second

// exchange replaces a document by what next makes of it, which may be called several times. A
// content of nil leaves the document as it is.
func exchange(m Medium, document string, next func(raw []byte) ([]byte, error)) error {
	for tries, begun := 0, time.Now(); ; tries++ {
		raw, _ := m.Read(document) // an error that lasts is that of Swap, too
		content, err := next(raw)
		if err != nil || content == nil {
			return err
		}
		err = m.Swap(document, raw, content)
		if !errors.Is(err, ErrConflict) || tries >= exchangeTries && time.Since(begun) > exchangeLimit {
			return err
		}
	}
}

// folder is the Medium of files in the folder of the lists, or in the one that stands in for it.
type folder struct {
	*Store
	spare bool
}

// spareFolder returns the folder for documents that cannot be saved in the folder of the lists, as
// where that is read-only; "": there is none. Otherwise a loop of crashes would be a loop of
// requests. It is meant for files of running programs.
func spareFolder() string {
	dir := os.Getenv("RUNTIME_DIRECTORY") // systemd.exec(5)
	if !filepath.IsAbs(dir) {
		return ""
	}
	return filepath.Join(dir, fmt.Sprintf("coredns-safebrowsing-%d", os.Getuid()))
}

// place returns the folder and the name of the file of a document; "": there is no folder.
func (f folder) place(document string) (dir, name string) {
	if !f.spare {
		return f.dir, document
	}
	return spareFolder(), f.spareFile(document)
}

// Read implements Medium.
func (f folder) Read(document string) ([]byte, error) {
	dir, name := f.place(document)
	if f.spare && !isOurs(dir) {
		return nil, nil
	}
	raw, err := readSmall(filepath.Join(dir, name))
	if errors.Is(err, fs.ErrNotExist) || noFolder(err) {
		return nil, nil
	}
	return raw, err
}

// Swap implements Medium. What cannot be read is replaced.
func (f folder) Swap(document string, old, next []byte) error {
	dir, name := f.place(document)
	if f.spare && (dir == "" || os.MkdirAll(dir, 0o700) != nil || !isOurs(dir)) {
		return errors.New("there is no other folder for it: RUNTIME_DIRECTORY names none that this user can write")
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
	place := f.Store
	if f.spare {
		place = newStore(dir, f.origin)
	}
	place.remove(func(file string) bool { return isUnfinished(file, name) }) // of writers that died
	return place.replace(name, func(w io.Writer) error {
		_, err := w.Write(next)
		return err
	})
}

// errLocked says that another process keeps the lock of a document.
var errLocked = fmt.Errorf("another process has kept the lock for more than %s", searchLockTimeout)

// lockDocument takes the lock of a document and returns the function that releases it. If the
// folder has no locks, because it is read-only for example, the lock is in the spare folder; if
// that has none either, there is no lock. The error is errLocked.
func (s *Store) lockDocument(document string) (unlock func(), err error) {
	unlock, locked, err := lockFileAt(filepath.Join(s.dir, document+".lock"))
	if dir := spareFolder(); err != nil && dir != "" && os.MkdirAll(dir, 0o700) == nil && isOurs(dir) {
		unlock, locked, err = lockFileAt(filepath.Join(dir, s.spareFile(document+".lock")))
	}
	switch {
	case err != nil:
		return func() {}, nil
	case !locked:
		return nil, fmt.Errorf("%s: %w", document, errLocked)
	}
	return unlock, nil
}

// swap brings a document up to date in the folder of the lists, or else in the one that stands in
// for it, with next as in exchange. It reports whether the document is in either; the error is that
// of the folder of the lists.
func (s *Store) swap(document string, next func(raw []byte) ([]byte, error)) (saved bool, err error) {
	var content []byte
	var refused error // by next
	asked := func(raw []byte) ([]byte, error) {
		content, refused = next(raw)
		return content, refused
	}
	if err = exchange(folder{s, false}, document, asked); err == nil {
		if dir := spareFolder(); content != nil && dir != "" && isOurs(dir) {
			os.Remove(filepath.Join(dir, s.spareFile(document)))
		}
		return true, nil
	}
	if errors.Is(err, errLocked) || refused != nil {
		return false, err
	}
	if other := exchange(folder{s, true}, document, asked); other != nil {
		return false, fmt.Errorf("%w; nor can it be saved elsewhere, so that a start does not know of the one before: %w", err, other)
	}
	return true, err
}

// newWriter returns a name for a process that writes documents, which no other one has.
func newWriter() string { return rand.Text()[:13] }
