package updater

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// The file of a Ledger. Every process with the folder writes it, not only the one that
// fetches lists, so it has a lock of its own. It has no checksum: an operator may edit it.

// budgetFile is the file name of the count of searches.
func (o Origin) budgetFile() string {
	return "budget" + strings.TrimPrefix(o.scheduleFile(), "schedule")
}

// budgetPath returns the path of that file in the folder of the lists.
func (s *Store) budgetPath() string { return filepath.Join(s.dir, s.origin.budgetFile()) }

// errUnknownCount says that a file that cannot be read may count searches of today.
var errUnknownCount = errors.New("the number of searches spent today is unknown")

// readBudget reads the count from the folder and the spare folders. If there are
// several, the higher one applies. If a file cannot be read, damaged is its path and
// err says why; err is errUnknownCount if the file may be from today.
func (s *Store) readBudget(today string) (days budgetDays, damaged string, err error) {
	for _, file := range s.filesOf(s.origin.budgetFile()) {
		info, statErr := os.Stat(file)
		if errors.Is(statErr, fs.ErrNotExist) || noFolder(statErr) {
			continue
		}
		found, readErr := readBudgetFile(file)
		if readErr == nil {
			days = days.merged(found)
			continue
		}
		if statErr != nil || dateOf(info.ModTime()) >= today { // otherwise it counts an earlier day
			readErr = fmt.Errorf("%w: %w", errUnknownCount, readErr)
		}
		damaged, err = file, errors.Join(err, readErr)
	}
	return days, damaged, err
}

func readBudgetFile(file string) (budgetDays, error) {
	raw, err := readSmall(file)
	if err != nil {
		return budgetDays{}, err
	}
	days, err := parseBudget(raw)
	if err != nil {
		return budgetDays{}, fmt.Errorf("%s: %w", file, err)
	}
	return days, nil
}

// writeBudget saves the count in the folder of the lists, or else in a spare folder.
// It reports whether the count is in either; the error is that of the folder of the
// lists.
func (s *Store) writeBudget(days budgetDays) (saved bool, err error) {
	raw, err := json.Marshal(days)
	if err != nil {
		return false, err
	}
	name := s.origin.budgetFile()
	file, err := s.save(name, append(raw, '\n'))
	if err == nil {
		s.removeSpare(name)
	}
	return file != "", err
}

// keepDamaged copies a damaged file, so that it can be inspected. The file itself
// stays until it is replaced: without it the next start would count from 0.
func keepDamaged(file string) {
	if raw, err := readSmall(file); err == nil {
		_ = os.WriteFile(file+damagedSuffix, raw, 0o600)
	}
}

// lockBudget takes the lock of the count and returns the function that releases it.
// If the folder has no locks, because it is read-only for example, the lock is in a
// spare folder; if that has none either, there is no lock. The error says that another
// process has kept the lock for searchLockTimeout.
func (s *Store) lockBudget() (unlock func(), err error) {
	name := s.origin.budgetFile() + ".lock"
	unlock, locked, err := lockFileAt(filepath.Join(s.dir, name))
	for _, dir := range spareFolders() {
		if err == nil {
			break
		}
		if os.MkdirAll(dir, 0o700) == nil && isOurs(dir) {
			unlock, locked, err = lockFileAt(filepath.Join(dir, s.spareFile(name)))
		}
	}
	switch {
	case err != nil:
		return func() {}, nil
	case !locked:
		return nil, fmt.Errorf("another process has kept the lock of %s for more than %s", s.origin.budgetFile(), searchLockTimeout)
	}
	return unlock, nil
}

// cleanBudget removes unfinished files of writers that died. The caller holds the
// lock: without it a file could be that of a writer at work.
func (s *Store) cleanBudget() {
	s.remove(func(name string) bool { return isUnfinished(name, s.origin.budgetFile()) })
}
