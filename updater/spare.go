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

// spareFile is the name of the schedule in a spare folder, which several folders
// of lists may share.
func (s *Store) spareFile() string {
	dir, err := filepath.Abs(s.dir)
	if err != nil {
		dir = s.dir
	}
	sum := sha256.Sum256([]byte(dir))
	return hex.EncodeToString(sum[:8]) + "-" + s.origin.scheduleFile()
}

// readSchedule returns what writeSchedule wrote last, its times on the running
// clock, or nil if it never did.
func (s *Store) readSchedule(now time.Time) (newest *scheduleState, err error) {
	files := []string{filepath.Join(s.dir, s.origin.scheduleFile())}
	for _, dir := range spareFolders() {
		if isOurs(dir) {
			files = append(files, filepath.Join(dir, s.spareFile()))
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
	write := func(w io.Writer) error {
		_, err := w.Write(raw)
		return err
	}
	err := s.replace(s.origin.scheduleFile(), write)
	if err == nil {
		s.dropSpare()
		return nil
	}
	for _, dir := range spareFolders() {
		if os.MkdirAll(dir, 0o700) != nil || !isOurs(dir) {
			continue
		}
		spare := newStore(dir, s.origin)
		if spare.replace(s.spareFile(), write) == nil {
			s.spared.Store(true)
			return err
		}
	}
	return fmt.Errorf("%w; nor can the schedule be saved elsewhere, so that a start does not know of the one before", err)
}

// dropSpare removes a spare schedule that is not needed any more.
func (s *Store) dropSpare() {
	if !s.spared.Load() {
		return
	}
	for _, dir := range spareFolders() {
		if isOurs(dir) {
			os.Remove(filepath.Join(dir, s.spareFile()))
		}
	}
	s.spared.Store(false)
}
