package updater

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/gofrs/flock"
)

// statSearches and readSearches look where writeSearches has written last. There is
// no file: nil.
func (s *Store) statSearches() (info os.FileInfo, err error) {
	for _, file := range s.searchFiles() {
		found, statErr := os.Stat(file)
		if statErr == nil && (info == nil || found.ModTime().After(info.ModTime())) {
			info = found
		}
	}
	if info == nil {
		err = fs.ErrNotExist
	}
	return info, err
}

func (s *Store) readSearches(now time.Time) (newest *scheduleState, info os.FileInfo, err error) {
	for _, file := range s.searchFiles() {
		found, statErr := os.Stat(file)
		raw, readErr := os.ReadFile(file)
		if errors.Is(statErr, fs.ErrNotExist) || errors.Is(readErr, fs.ErrNotExist) || noFolder(readErr) {
			continue
		}
		state, parseErr := parseSchedule(raw, now)
		if readErr := errors.Join(statErr, readErr, parseErr); readErr != nil {
			err = errors.Join(err, readErr)
			continue
		}
		if newest == nil || state.Saved.After(newest.Saved) {
			newest, info = &state, found
		}
	}
	if newest != nil {
		err = nil
	}
	return newest, info, err
}

// searchFiles are the places of the file: the folder of the lists, and the spare
// ones.
func (s *Store) searchFiles() []string {
	files := []string{filepath.Join(s.dir, s.origin.searchFile())}
	for _, dir := range spareFolders() {
		if isOurs(dir) {
			files = append(files, filepath.Join(dir, s.spareFile(s.origin.searchFile())))
		}
	}
	return files
}

// writeSearches saves the clock of searches where it would save the schedule, and
// returns what the file is.
func (s *Store) writeSearches(raw []byte) (os.FileInfo, error) {
	name := s.origin.searchFile()
	file, err := s.save(name, append(raw, '\n'))
	if file == "" {
		return nil, err
	}
	if err == nil {
		s.removeSpare(name)
	}
	info, statErr := os.Stat(file)
	return info, errors.Join(err, statErr)
}

// lockSearches takes the lock of the file, and returns what lets go of it. Where
// there is no lock to be had it is done without.
func (s *Store) lockSearches() (unlock func(), locked bool) {
	lock := flock.New(filepath.Join(s.dir, s.origin.searchFile()+".lock"))
	for begun := time.Now(); time.Since(begun) < searchTurn; time.Sleep(5 * time.Millisecond) {
		locked, err := lock.TryLock()
		if err != nil {
			break
		}
		if locked {
			return func() { lock.Close() }, true
		}
	}
	return func() {}, false
}

// cleanSearches removes what dead writers of the file left behind. Whoever has the
// lock is the only one that writes.
func (s *Store) cleanSearches() {
	unfinished := func(name string) bool { return isUnfinished(name, s.origin.searchFile()) }
	if len(s.find(unfinished)) == 0 {
		return
	}
	unlock, locked := s.lockSearches()
	defer unlock()
	if locked {
		s.remove(unfinished)
	}
}
