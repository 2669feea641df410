package updater

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/gofrs/flock"
)

// The file of searches has the form of a schedule, but holds the clocks of searches only.
// The wait for its lock has a limit: a process that is suspended while it holds the lock
// must not stop the searches of others.

// statSearches describes the newest file with the clock of searches. Without one the
// error is fs.ErrNotExist.
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

// readSearches reads the newest file with the clock of searches; nil: there is none.
// An unreadable file counts only if no other can be read.
func (s *Store) readSearches(now time.Time) (newest *scheduleState, info os.FileInfo, err error) {
	at := s.moment(now) // before the disk is read, which may take long
	for _, file := range s.searchFiles() {
		found, statErr := os.Stat(file)
		raw, readErr := readSmall(file)
		if errors.Is(statErr, fs.ErrNotExist) || errors.Is(readErr, fs.ErrNotExist) || noFolder(readErr) {
			continue
		}
		state, parseErr := parseSchedule(raw, now, at)
		if readErr := errors.Join(statErr, readErr, parseErr); readErr != nil {
			err = errors.Join(err, readErr)
			continue
		}
		if newest == nil || state.after(newest.moment) {
			newest, info = &state, found
		}
	}
	if newest != nil {
		err = nil
	}
	return newest, info, err
}

// searchFiles returns the paths where the file may be.
func (s *Store) searchFiles() []string { return s.filesOf(s.origin.searchFile()) }

// writeSearches saves the clock of searches in the folder of the lists, or else in a
// spare folder. It describes the file it wrote.
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

// lockSearches takes the lock of the file and returns the function that releases it.
// It gives up after searchLockTimeout, or at once if the folder has no locks.
func (s *Store) lockSearches() (unlock func(), locked bool) {
	unlock, locked, _ = lockFileAt(filepath.Join(s.dir, s.origin.searchFile()+".lock"))
	if !locked {
		return func() {}, false
	}
	return unlock, true
}

// lockFileAt takes a lock and returns the function that releases it. It gives up after
// searchLockTimeout, without an error, or at once with an error if there are no locks.
func lockFileAt(path string) (unlock func(), locked bool, err error) {
	lock := flock.New(path)
	for begun := time.Now(); time.Since(begun) < searchLockTimeout; time.Sleep(5 * time.Millisecond) {
		locked, err := tryLock(lock)
		if err != nil {
			return nil, false, err
		}
		if locked {
			return func() { lock.Close() }, true, nil
		}
	}
	return nil, false, nil
}

// cleanSearches removes unfinished files of writers that died. It holds the lock
// meanwhile, so that none is of a writer at work.
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
