package updater

import (
	"io/fs"
	"os"
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

// searchFiles returns the paths where the file may be.
func (s *Store) searchFiles() []string { return s.filesOf(s.origin.searchFile()) }

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
