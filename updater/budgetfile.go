package updater

import (
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

// readBudget reads the count from the folder and the one that stands in for it. If a file cannot be read, damaged is its path and
// err says why; err is errUnknownCount if the file may be from today.
func (s *Store) readBudget(today string) (days budgetDays, damaged string, err error) {
	for _, file := range s.filesOf(s.origin.budgetFile()) {
		info, statErr := os.Stat(file)
		found, readErr := readBudgetFile(file)
		switch {
		case errors.Is(readErr, fs.ErrNotExist), noFolder(statErr):
			continue
		case readErr == nil:
			days = days.join(found)
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

// keepDamaged copies a damaged file, so that it can be inspected. The file itself
// stays until it is replaced: without it the next start would count from 0.
func keepDamaged(file string) {
	if raw, err := readSmall(file); err == nil {
		_ = os.WriteFile(file+damagedSuffix, raw, 0o600)
	}
}
