package updater

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
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
	state.each(asked.stored)
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
	state.each(asked.restored)
	from := state.unset(at)
	state.move(func(t time.Time) time.Time {
		if t.IsZero() {
			return t
		}
		return now.Add(t.Sub(from))
	})
	return state, nil
}

// readClocks returns the copies of a document of clocks in the folder and in the one that stands in
// for it, their times on the clock of now. An error says that the one in the folder cannot be read:
// its waits may still last. The other one counts as absent then.
func (s *Store) readClocks(document string, now time.Time) (copies []scheduleState, err error) {
	at := s.moment(now) // before the disk is read, which may take long
	for _, f := range []folder{{s, false}, {s, true}} {
		raw, readErr := f.Read(document)
		if raw == nil && readErr == nil {
			continue
		}
		state, parseErr := parseSchedule(raw, now, at)
		if readErr := cmp.Or(readErr, parseErr); readErr == nil {
			copies = append(copies, state)
		} else if !f.spare {
			err = readErr
		}
	}
	return copies, err
}
