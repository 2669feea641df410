package updater

import (
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/gofrs/flock"
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

const (
	lockFile      = "lock"
	listSuffix    = ".list"
	damagedSuffix = ".damaged"
	unfinished    = ".tmp" // ends the name of a file that is being written

	// listMagic begins a list file and names its format.
	listMagic = "safebrowsing list 2\n"
)

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

// setAside renames a damaged file, so that it is not read again and can be
// looked at. If that is not possible either it is read, and found damaged,
// again.
func (s *Store) setAside(name string) {
	file := filepath.Join(s.dir, name)
	os.Rename(file, file+damagedSuffix)
}
