package updater

import (
	"bufio"
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/gofrs/flock"

	"github.com/coredns-safebrowsing/safebrowsing/internal/prefixset"
)

// Store keeps lists and the schedule in a folder, one file each. A file is
// replaced whole or not at all, also when the power fails in between: it is
// written beside, synced, renamed, and the folder is synced. Several Stores,
// also of several processes, may read one folder; only the one that holds its
// lock may write. Methods are not safe for concurrent use, but for those of the
// schedule.
type Store struct {
	dir    string
	origin Origin
	lock   *flock.Flock
	seen   map[string]time.Time // modification times of lists when changed looked
	spared atomic.Bool          // there is a schedule in a spare folder
	disk   disk
}

// disk is what replace asks of the file system, and what tests record.
type disk struct {
	syncFile func(*os.File) error
	rename   func(from, to string) error
	syncDir  func(dir string) error
}

const (
	lockFile      = "lock"
	listSuffix    = ".list"
	damagedSuffix = ".damaged"
	unfinished    = ".tmp" // ends the name of a file that is being written

	// listMagic begins a list file and names its format.
	listMagic = "safebrowsing list 2\n"
)

// Origin says where the lists of a Store come from.
type Origin struct {
	// Name is that of the server. Lists of another origin are taken for absent:
	// their versions mean nothing to this one.
	Name string
	// Predecessor is the name of an origin whose lists are in force until they have
	// been fetched from this one; zero: none.
	Predecessor string
	// Continues says that this origin knows the versions of its predecessor, for
	// lists whose entries are all as wide as the name says.
	Continues bool
	// Schedule is the name of the file of the schedule; zero: "schedule.json".
	Schedule string
	// Asker tells keys apart, see the function of that name; zero: all are one.
	Asker string
}

func (o Origin) scheduleFile() string { return cmp.Or(o.Schedule, "schedule.json") }

// takenOver returns the list as a successor has it, without its version unless that
// can be gone on with.
func (l List) takenOver(continues bool) List {
	width, err := Width(l.Name)
	other := func(w int) bool { return w != width }
	if err != nil || !continues || slices.ContainsFunc(l.Set.Widths(), other) {
		l.Version = nil
	}
	l.TakenOver = true
	return l
}

// OpenStore opens the folder, which is made if it does not exist. With an error
// there is a Store, too: nothing can be saved in its folder, so that the schedule
// is saved in the spare folder.
func OpenStore(dir string, origin Origin) (*Store, error) {
	s := newStore(dir, origin)
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return s, fmt.Errorf("making the folder %s for lists: %w", dir, err)
	}
	return s, nil
}

func newStore(dir string, origin Origin) *Store {
	return &Store{
		dir:    dir,
		origin: origin,
		lock:   flock.New(filepath.Join(dir, lockFile)),
		seen:   make(map[string]time.Time),
		disk:   disk{syncFile: syncFile, rename: os.Rename, syncDir: syncDir},
	}
}

// ErrDamaged says that a file is not what was once written.
var ErrDamaged = errors.New("damaged file")

// SaveList writes the list in place of the one before.
func (s *Store) SaveList(l List) error {
	return s.replace(l.Name+listSuffix, func(w io.Writer) error {
		sum := sha256.New()
		out := bufio.NewWriterSize(io.MultiWriter(w, sum), 1<<16)
		head := []byte(listMagic)
		head = appendBytes(head, []byte(s.origin.Name))
		head = appendBytes(head, []byte(l.Name))
		head = appendBytes(head, l.Version)
		head = append(head, l.Checksum[:]...)
		out.Write(head)
		if _, err := l.Set.WriteTo(&pausing{to: out}); err != nil {
			return err
		}
		if err := out.Flush(); err != nil {
			return err
		}
		_, err := w.Write(sum.Sum(nil))
		return err
	})
}

// pausing writes in pieces and lets others run in between.
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

func appendBytes(dst, b []byte) []byte {
	return append(binary.LittleEndian.AppendUint32(dst, uint32(len(b))), b...)
}

// LoadList reads a list. It returns an error that is fs.ErrNotExist if there is
// none of this origin or its predecessor, and ErrDamaged if the file was not written by SaveList
// or has changed since; such a file is set aside under another name.
func (s *Store) LoadList(name string) (List, error) {
	l, err := s.ReadList(name)
	if errors.Is(err, ErrDamaged) {
		s.setAside(name + listSuffix)
	}
	return l, err
}

// ReadList is LoadList for onlookers: it changes nothing.
func (s *Store) ReadList(name string) (List, error) {
	l, err := s.loadList(name)
	if err != nil {
		return List{}, fmt.Errorf("loading list %s: %w", name, err)
	}
	return l, nil
}

func (s *Store) loadList(name string) (List, error) {
	f, err := os.Open(filepath.Join(s.dir, name+listSuffix))
	if err != nil {
		return List{}, err
	}
	defer f.Close()
	size, err := verify(f)
	if err != nil {
		return List{}, err
	}
	l, origin, err := readList(bufio.NewReaderSize(io.LimitReader(f, size), 1<<16), size)
	if err == nil && l.Name != name {
		err = fmt.Errorf("the file holds list %q", l.Name)
	}
	if err != nil {
		return List{}, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	switch {
	case origin == s.origin.Name:
		return l, nil
	case origin == s.origin.Predecessor && origin != "":
		return l.takenOver(s.origin.Continues), nil
	}
	return List{}, fmt.Errorf("%w: the file came from %s", fs.ErrNotExist, origin)
}

// verify checks a file against the SHA-256 at its end and returns the bytes
// before it, to whose beginning f is set.
func verify(f *os.File) (size int64, err error) {
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	size = info.Size() - sha256.Size
	if size < int64(len(listMagic)) {
		return 0, fmt.Errorf("%w: %d bytes", ErrDamaged, info.Size())
	}
	sum := sha256.New()
	if _, err := io.CopyN(sum, f, size); err != nil {
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

func readList(r io.Reader, size int64) (l List, origin string, err error) {
	magic := make([]byte, len(listMagic))
	if _, err := io.ReadFull(r, magic); err != nil || string(magic) != listMagic {
		return List{}, "", errors.New("no list file of this version")
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

// maxText bounds the origin, the name and the version in a list file, in bytes.
const maxText = 1 << 16

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

// changed reports whether a file of the lists has changed since it was asked last.
func (s *Store) changed(lists []string) (changed bool) {
	for _, name := range lists {
		info, err := os.Stat(filepath.Join(s.dir, name+listSuffix))
		if err == nil && !info.ModTime().Equal(s.seen[name]) {
			s.seen[name], changed = info.ModTime(), true
		}
	}
	return changed
}

// clean removes files that writers began and did not finish because they died. It
// spares files of others. Only the holder of the lock may call it.
func (s *Store) clean() {
	s.remove(func(name string) bool { return isUnfinished(name, s.origin.scheduleFile()) || isUnfinishedList(name) })
	s.cleanSearches()
}

// find returns the paths of files of such names, and remove removes them.
func (s *Store) find(which func(name string) bool) (paths []string) {
	files, _ := os.ReadDir(s.dir)
	for _, file := range files {
		if file.Type().IsRegular() && which(file.Name()) {
			paths = append(paths, filepath.Join(s.dir, file.Name()))
		}
	}
	return paths
}

func (s *Store) remove(which func(name string) bool) {
	for _, path := range s.find(which) {
		os.Remove(path)
	}
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

// setAside renames a damaged file, so that it is not read again and can be
// looked at. If that is not possible either it is read, and found damaged,
// again.
func (s *Store) setAside(name string) {
	file := filepath.Join(s.dir, name)
	_ = os.Rename(file, file+damagedSuffix)
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
