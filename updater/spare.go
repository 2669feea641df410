package updater

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// The schedule must outlive a crash even where the folder of the lists cannot be
// written, as in a container whose root is read-only: else a loop of crashes would
// be a loop of requests. It is a few hundred bytes, for which there is a place
// nearly everywhere.

// spareFolders are where a schedule is saved that cannot be saved in its folder:
// the first one that can be written. They are for files of running programs; the
// last one is in memory and belongs to every container.
func spareFolders() (all []string) {
	for _, dir := range []string{os.Getenv("RUNTIME_DIRECTORY"), os.Getenv("XDG_RUNTIME_DIR"), os.TempDir(), "/dev/shm"} {
		if filepath.IsAbs(dir) {
			all = append(all, filepath.Join(dir, fmt.Sprintf("coredns-safebrowsing-%d", os.Getuid())))
		}
	}
	return all
}

// spareFile is the name of a file in a spare folder, which several folders of lists
// may share.
func (s *Store) spareFile(name string) string {
	dir, err := filepath.Abs(s.dir)
	if err != nil {
		dir = s.dir
	}
	sum := sha256.Sum256([]byte(dir))
	return hex.EncodeToString(sum[:8]) + "-" + name
}

// readSchedule returns what writeSchedule wrote last, its times on the running
// clock, or nil if it never did.
func (s *Store) readSchedule(now time.Time) (newest *scheduleState, err error) {
	files := []string{filepath.Join(s.dir, s.origin.scheduleFile())}
	for _, dir := range spareFolders() {
		if isOurs(dir) {
			files = append(files, filepath.Join(dir, s.spareFile(s.origin.scheduleFile())))
		}
	}
	for i, file := range files {
		raw, err := os.ReadFile(file)
		if errors.Is(err, fs.ErrNotExist) || i > 0 && err != nil || noFolder(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		state, err := parseSchedule(raw, now)
		switch {
		case err != nil && i == 0:
			return nil, err
		case err == nil && (newest == nil || state.Saved.After(newest.Saved)):
			newest = &state
		}
		if i > 0 {
			s.spared.Store(true)
		}
	}
	return newest, nil
}

// writeSchedule saves the schedule in the folder of the lists, or else in a spare
// one. The error is that of the folder, and says if there is no other place.
func (s *Store) writeSchedule(raw []byte) error {
	file, err := s.save(s.origin.scheduleFile(), raw)
	switch {
	case err == nil && s.spared.Load(): // not needed any more
		s.removeSpare(s.origin.scheduleFile())
		s.spared.Store(false)
	case err != nil && file != "":
		s.spared.Store(true)
	case err != nil:
		err = fmt.Errorf("%w; nor can the schedule be saved elsewhere, so that a start does not know of the one before", err)
	}
	return err
}

// save replaces a file in the folder of the lists, or else in a spare one. It returns
// which file that was, "" if none, and the error of the folder.
func (s *Store) save(name string, raw []byte) (file string, err error) {
	write := func(w io.Writer) error {
		_, err := w.Write(raw)
		return err
	}
	if err = s.replace(name, write); err == nil {
		return filepath.Join(s.dir, name), nil
	}
	for _, dir := range spareFolders() {
		if os.MkdirAll(dir, 0o700) != nil || !isOurs(dir) {
			continue
		}
		if newStore(dir, s.origin).replace(s.spareFile(name), write) == nil {
			return filepath.Join(dir, s.spareFile(name)), err
		}
	}
	return "", err
}

// removeSpare removes a file from the spare folders.
func (s *Store) removeSpare(name string) {
	for _, dir := range spareFolders() {
		if isOurs(dir) {
			os.Remove(filepath.Join(dir, s.spareFile(name)))
		}
	}
}
