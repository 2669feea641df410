package updater

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"time"
)

// The form of the schedule's file, and the move of its times between two clocks. The file has
// a checksum: a damaged wait could be too short, or last for years.

// savedSchedule is the form of the file.
type savedSchedule struct {
	SHA256   string          `json:"sha256"` // of the bytes of Schedule
	Schedule json.RawMessage `json:"schedule"`
}

// encodeSchedule returns the content of the file for a state. In memory, times follow
// the monotonic clock of now. The file gets them relative to the wall clock, which may
// have been set since: it shows at.Saved at now.
func encodeSchedule(state scheduleState, now time.Time, at moment) ([]byte, error) {
	state = state.clone()
	state.moment = at
	state.move(func(t time.Time) time.Time {
		if t.IsZero() {
			return t
		}
		return at.Saved.Add(t.Sub(now))
	})
	raw, err := json.Marshal(state)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(raw)
	return fmt.Appendf(nil, `{"sha256":"%x","schedule":%s}`, sum, raw), nil
}

// parseSchedule reads the content of the file and moves its times onto the clock of
// now, which includes a monotonic reading: setting the wall clock forward later must
// not cut a wait short. At is the same moment as now. If the wall clock was set since the
// file was saved, the waits are kept, see moment.
func parseSchedule(raw []byte, now time.Time, at moment) (state scheduleState, err error) {
	var saved savedSchedule
	if err := json.Unmarshal(raw, &saved); err != nil {
		return scheduleState{}, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	if sum := sha256.Sum256(saved.Schedule); saved.SHA256 != hex.EncodeToString(sum[:]) {
		return scheduleState{}, fmt.Errorf("%w: wrong checksum", ErrDamaged)
	}
	if err := json.Unmarshal(saved.Schedule, &state); err != nil {
		return scheduleState{}, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	from := state.unset(at)
	state.move(func(t time.Time) time.Time {
		if t.IsZero() {
			return t
		}
		return now.Add(t.Sub(from))
	})
	return state, nil
}

// readSchedule returns what writeSchedule wrote last, its times on the clock of now. It
// returns nil if there is no file.
func (s *Store) readSchedule(now time.Time) (newest *scheduleState, err error) {
	at := s.moment(now) // before the disk is read, which may take long
	files := []string{filepath.Join(s.dir, s.origin.scheduleFile())}
	for _, dir := range spareFolders() {
		if isOurs(dir) {
			files = append(files, filepath.Join(dir, s.spareFile(s.origin.scheduleFile())))
		}
	}
	for i, file := range files {
		raw, err := readSmall(file)
		// A spare file that cannot be read counts as absent. An unreadable file in the folder
		// of the lists is an error: its waits may still last.
		if errors.Is(err, fs.ErrNotExist) || i > 0 && err != nil || noFolder(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		state, err := parseSchedule(raw, now, at)
		switch {
		case err != nil && i == 0:
			return nil, err
		case err == nil && (newest == nil || state.after(newest.moment)):
			newest = &state
		}
		if i > 0 {
			s.spared.Store(true)
		}
	}
	return newest, nil
}

// writeSchedule saves the schedule in the folder of the lists, or else in a spare
// folder. The error is that of the folder of the lists, and says if the spare folders
// failed as well.
func (s *Store) writeSchedule(raw []byte) error {
	file, err := s.save(s.origin.scheduleFile(), raw)
	switch {
	case err == nil && s.spared.Load(): // the spare one is outdated now
		s.removeSpare(s.origin.scheduleFile())
		s.spared.Store(false)
	case err != nil && file != "":
		s.spared.Store(true)
	case err != nil:
		err = fmt.Errorf("%w; nor can the schedule be saved elsewhere, so that a start does not know of the one before", err)
	}
	return err
}
