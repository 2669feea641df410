package updater

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/gofrs/flock"

	"github.com/coredns-safebrowsing/safebrowsing/internal/files"
)

// Store keeps lists and the schedule in a folder, one file each. A file is replaced
// whole or not at all, even if the power fails: Store writes a new file, syncs it,
// renames it, and syncs the folder.
//
// Several Stores, of several processes too, may read one folder. Only the one that
// holds the lock may write lists and the schedule. A Store is not safe for concurrent
// use, except through a Schedule.
type Store struct {
	dir    string
	origin Origin
	lock   *flock.Flock
	// Not guarded: only the goroutine of the Updater uses it.
	seen   map[string]os.FileInfo // files of lists, as changed found them
	shared Shared                 // nil: the folder is all; set before use
	alone  atomic.Bool            // tryLock has the lock of the folder
	disk   files.Disk
	boot   func() (id string, since time.Duration) // thisBoot; tests replace it
}

const (
	// The file of the lock is never removed: a process could lock a new file while another
	// one still holds the lock of the removed file.
	lockFile      = "lock"
	listSuffix    = ".list"
	damagedSuffix = ".damaged"

	// listMagic is the first line of a list file. It names the format.
	listMagic = "safebrowsing list 2\n"

	// maxSmall limits what is read of a file other than a list, in bytes. It has a few
	// hundred of them for each key and each list.
	maxSmall = 4 << 20
)

// readSmall reads a file other than a list. What is no file of this kind is ErrDamaged: too large,
// a folder, or a link to nothing, whose target may come back with a wait.
func readSmall(path string) ([]byte, error) {
	raw, err := files.Read(path, maxSmall)
	switch {
	case errors.Is(err, fs.ErrNotExist) && files.Dangling(path):
		err = fmt.Errorf("%w: %s is a link to nothing", ErrDamaged, path)
	case errors.Is(err, files.ErrIrregular), errors.Is(err, files.ErrSize):
		err = fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	return raw, err
}

// OpenStore opens the folder and creates it if it does not exist. It returns a Store
// even with an error: its lists cannot be saved, and its schedule goes to a spare
// folder.
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
		seen:   make(map[string]os.FileInfo),
		disk:   files.RealDisk(),
		boot:   thisBoot,
	}
}

// moment returns the moment that is now.
func (s *Store) moment(now time.Time) moment {
	boot, since := s.boot()
	return moment{Saved: now.Round(0), Boot: boot, SinceBoot: since}
}

// moments returns the moment for what is written and for what is read: one clock is never wrong about itself.
func (s *Store) moments(now time.Time) (written, read moment) {
	at := s.moment(now)
	return at, at
}

// changed reports whether the file of any list has changed since the last call.
func (s *Store) changed(lists []string) (changed bool) {
	for _, name := range lists {
		info, err := os.Stat(s.listPath(name))
		if err == nil && !files.Same(s.seen[name], info) {
			s.seen[name], changed = info, true
		}
	}
	return changed
}

// clean removes unfinished files of writers that died, and no other files. Only the
// holder of the lock may call it.
func (s *Store) clean() {
	files.Clean(s.dir, func(name string) bool {
		list, ok := strings.CutSuffix(name, listSuffix)
		_, err := Width(list)
		return name == s.origin.scheduleFile() || ok && err == nil
	})
}

// replace puts what write writes in the place of the named file, durably.
func (s *Store) replace(name string, write func(io.Writer) error) error {
	path := filepath.Join(s.dir, name)
	err := s.disk.Replace(path, files.Unfinished(name), func(f *os.File) error { return write(f) })
	if err != nil {
		return fmt.Errorf("saving %s: %w", path, err)
	}
	return nil
}

// setAside renames a damaged file: it is not read again, and can be inspected. If that
// fails, the next start finds the file damaged again.
func (s *Store) setAside(name string) {
	file := filepath.Join(s.dir, name)
	_ = os.Rename(file, file+damagedSuffix)
}

// Lists belong to a server, clocks to the asker as well. Two keys at one server share the
// lists of a folder, and each has waits of its own.

// Origin says which server the lists of a Store come from, and who asks it.
type Origin struct {
	// Name is the address of the server. Lists of another origin count as absent: this
	// server does not know their versions.
	Name string
	// Predecessors are origins whose lists serve until this server has delivered its
	// own.
	Predecessors []Predecessor
	// Related reports whether lists of another origin, by its name, come from a
	// predecessor whose versions the server knows. Nil: none are.
	Related func(name string) bool
	// Schedule is the file name of the schedule; "": schedule.json. It begins with
	// "schedule" and ends in ".json": Status looks for that.
	Schedule string
	// Asker tells keys apart, see the function Asker; "": all keys are one.
	Asker string
	// Token tells the access tokens of an asker apart, see the function Asker; "": it has
	// none.
	Token string
}

// Predecessor is an origin of lists that another one takes over.
type Predecessor struct {
	Name string // not empty
	// Continues says that the server that takes over knows the versions, for lists
	// whose entries are all as wide as the name says.
	Continues bool
}

// Serves reports whether lists of an origin, by its name, are in force at this one.
func (o Origin) Serves(name string) bool {
	_, before := o.before(name)
	return name == o.Name || before
}

// before returns the predecessor with a name, if it is one.
func (o Origin) before(name string) (p Predecessor, ok bool) {
	if i := slices.IndexFunc(o.Predecessors, func(p Predecessor) bool { return p.Name == name }); i >= 0 {
		return o.Predecessors[i], true
	}
	return Predecessor{Name: name, Continues: true}, o.Related != nil && o.Related(name)
}

// scheduleFile returns the file name of the schedule.
func (o Origin) scheduleFile() string { return cmp.Or(o.Schedule, "schedule.json") }

// searchFile is the file name of the clock of searches. Status must not take it for a
// schedule, so it does not begin like one.
func (o Origin) searchFile() string {
	return "searches" + strings.TrimPrefix(o.scheduleFile(), "schedule")
}

// Asker returns an Origin.Asker for a key at an endpoint: a SHA-256 cut to four bytes,
// as hex. It tells keys apart, and is too short to find a key from it.
func Asker(endpoint, key string) string {
	sum := sha256.Sum256([]byte(endpoint + "\x00" + key))
	return hex.EncodeToString(sum[:4])
}
