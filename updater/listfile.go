package updater

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/files"
	"github.com/coredns-safebrowsing/safebrowsing/internal/prefixset"
)

// The form of a list file. It is a copy of what the server can send again: a damaged file is
// never repaired, the list is fetched in full. The origin is in the file, since only the
// server that made a version knows it.

// SaveList replaces the file of the list, durably. Only the holder of the lock may call
// it. The file is the magic line, then origin, name and version, each with its length
// in four bytes little-endian, the checksum, the set, and a SHA-256 of all that. The last
// one comes at the end, so that the file is written in one pass.
func (s *Store) SaveList(l List) error {
	return s.replace(l.Name+listSuffix, func(w io.Writer) error {
		sum := sha256.New()
		if err := s.listFile(l)(io.MultiWriter(w, sum)); err != nil {
			return err
		}
		_, err := w.Write(sum.Sum(nil))
		return err
	})
}

// listFile returns what writes the file of a list, without the SHA-256 at its end.
func (s *Store) listFile(l List) func(io.Writer) error {
	return func(w io.Writer) error {
		out := bufio.NewWriterSize(w, 1<<16)
		head := []byte(listMagic)
		head = appendBytes(head, []byte(s.origin.Name))
		head = appendBytes(head, []byte(l.Name))
		head = appendBytes(head, l.Version)
		head = append(head, l.Checksum[:]...)
		out.Write(head)
		if _, err := l.Set.WriteTo(&pausing{to: out}); err != nil {
			return err
		}
		return out.Flush()
	}
}

// pausing writes in pieces and lets other goroutines run in between: with one core,
// queries would otherwise wait until the whole list is hashed and written.
type pausing struct {
	to    io.Writer
	pause prefixset.Pause
}

// Write implements io.Writer.
func (p *pausing) Write(b []byte) (n int, err error) {
	const piece = 1 << 16
	for n < len(b) && err == nil {
		var written int
		written, err = p.to.Write(b[n:min(len(b), n+piece)])
		n += written
		p.pause.After(written)
	}
	return n, err
}

// appendBytes appends b and its length, which readBytes reads.
func appendBytes(dst, b []byte) []byte {
	return append(binary.LittleEndian.AppendUint32(dst, uint32(len(b))), b...)
}

// LoadList reads a list. The error is fs.ErrNotExist if there is no list of this origin
// or a predecessor. It is ErrDamaged if SaveList did not write the file, or the file
// has changed since; LoadList then renames it, for inspection.
func (s *Store) LoadList(name string) (List, error) {
	l, err := s.ReadList(name)
	if errors.Is(err, ErrDamaged) {
		s.setAside(name + listSuffix)
	}
	return l, err
}

// ReadList is LoadList for programs that only look: it changes no file.
func (s *Store) ReadList(name string) (List, error) {
	l, err := s.loadList(name)
	if err != nil {
		return List{}, fmt.Errorf("loading list %s: %w", name, err)
	}
	return l, nil
}

// loadList reads the file of a list if it came from the Store's server or from a predecessor.
// A file from another server counts as missing.
func (s *Store) loadList(name string) (List, error) {
	l, origin, err := readFile(s.dir, name)
	if err != nil || origin == s.origin.Name {
		return l, err
	}
	if p, ok := s.origin.before(origin); ok {
		return l.takenOver(p.Continues), nil
	}
	return List{}, fmt.Errorf("%w: the file came from %s", fs.ErrNotExist, origin)
}

// savedBefore reports whether the file of a list was written before a time.
func (s *Store) savedBefore(name string, t time.Time) bool {
	info, err := os.Stat(s.listPath(name))
	return err == nil && info.ModTime().Before(t)
}

// readFile reads the file of a list, of any origin. The error is ErrDamaged if the
// file is not as SaveList wrote it, or holds a list of another name.
func readFile(dir, name string) (l List, origin string, err error) {
	f, err := files.Open(filepath.Join(dir, name+listSuffix))
	if errors.Is(err, files.ErrIrregular) {
		err = fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	if err != nil {
		return List{}, "", err
	}
	defer f.Close()
	// All of the file is checked before any of it is decoded: no length in a damaged file
	// allocates memory.
	size, err := verify(f)
	if err != nil {
		return List{}, "", err
	}
	l, origin, err = readList(bufio.NewReaderSize(io.LimitReader(f, size), 1<<16), size)
	if unread(err) {
		return List{}, "", err
	}
	if err == nil && l.Name != name {
		err = fmt.Errorf("the file holds list %q", l.Name)
	}
	if err != nil {
		return List{}, "", fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	return l, origin, nil
}

// maxListFile is the most bytes of a list file: the size of the largest list that is accepted.
var maxListFile = listFileBytes(DefaultMaxEntries)

// listFileBytes returns the most bytes of the file of a list with n entries. They have 32 bytes
// each at most; the texts at the beginning, and the index of each width, come on top.
func listFileBytes(entries int) int64 { return 32*int64(entries) + 3*maxText + 16<<20 }

// verify checks a file against the SHA-256 at its end. It returns the number of bytes before that,
// and rewinds f. What cannot be a list file by its length or its first line is not hashed: a file
// without a bound, or a link to one, would take time without a bound.
func verify(f *os.File) (size int64, err error) {
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	if info.Size() > maxListFile {
		return 0, fmt.Errorf("%w: %d bytes, at most %d are read", ErrDamaged, info.Size(), maxListFile)
	}
	first := make([]byte, len(listMagic))
	switch _, err := io.ReadFull(f, first); {
	case unread(err):
		return 0, err
	case err != nil || string(first) != listMagic:
		return 0, errors.Join(fmt.Errorf("%w: not a list file of this version", ErrDamaged), err)
	}
	if size = info.Size() - sha256.Size; size < int64(len(first)) {
		return 0, fmt.Errorf("%w: %d bytes", ErrDamaged, info.Size())
	}
	sum := sha256.New()
	sum.Write(first)
	if _, err := io.CopyN(sum, f, size-int64(len(first))); err != nil {
		return 0, err
	}
	var want [sha256.Size]byte
	if _, err := io.ReadFull(f, want[:]); err != nil {
		return 0, err
	}
	if !bytes.Equal(sum.Sum(nil), want[:]) {
		return 0, fmt.Errorf("%w: wrong checksum", ErrDamaged)
	}
	_, err = f.Seek(0, io.SeekStart)
	return size, err
}

// unread reports whether the disk gave an error, which says nothing of the file: the next start may read it.
func unread(err error) bool {
	_, failed := errors.AsType[*fs.PathError](err)
	return failed
}

// readList reads a list file without the SHA-256 at its end; size is its length.
func readList(r io.Reader, size int64) (l List, origin string, err error) {
	magic := make([]byte, len(listMagic))
	if _, err := io.ReadFull(r, magic); err != nil || string(magic) != listMagic {
		return List{}, "", errors.Join(errors.New("not a list file of this version"), err)
	}
	var texts [3][]byte // origin, name, version
	for i := range texts {
		if texts[i], err = readBytes(r); err != nil {
			return List{}, "", err
		}
	}
	if _, err := io.ReadFull(r, l.Checksum[:]); err != nil {
		return List{}, "", err
	}
	l.Set, err = prefixset.Read(r, int(size))
	l.Name, l.Version = string(texts[1]), texts[2]
	return l, string(texts[0]), err
}

// maxText limits the origin, the name and the version in a list file, in bytes each.
const maxText = 1 << 16

// readBytes reads what appendBytes wrote.
func readBytes(r io.Reader) ([]byte, error) {
	var size [4]byte
	if _, err := io.ReadFull(r, size[:]); err != nil {
		return nil, err
	}
	n := binary.LittleEndian.Uint32(size[:])
	if n > maxText {
		return nil, fmt.Errorf("text of %d bytes", n)
	}
	b := make([]byte, n)
	_, err := io.ReadFull(r, b)
	return b, err
}
