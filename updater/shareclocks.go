package updater

import (
	"bytes"
	"errors"
	"fmt"
	"time"
)

// How clocks get to other machines and back. Who may fetch writes the document of the schedule;
// others read it, and add only clocks that the document has lost, or never had. All write the
// clock of searches. Times in documents follow Shared.Now.

// shareSlack makes each wait that was read from a document longer. It is more than the error of
// Shared.Now.
const shareSlack = 100 * time.Millisecond

// common is what a Schedule knows of the document of the schedule. Schedule.mu guards it.
type common struct {
	raw   []byte        // as last read or written; nil: there was none
	state scheduleState // of raw, with a request that is under way
	own   bool          // this process has written raw, and knows what became of its request
	// The document may lack clocks that this process has: it was lost, or could not be written.
	lacks bool
	err   error // of the last attempt to write it
}

// sharer returns what the schedule shares its clocks through, or nil.
func (s *Schedule) sharer() Shared {
	if s.store == nil || s.onlooker {
		return nil
	}
	return s.store.shared
}

// share writes the schedule to its document, as the process that may fetch. Later clocks that
// others have added are adopted.
func (s *Schedule) share() error {
	shared := s.sharer()
	s.mu.Lock()
	owned := s.owned
	s.mu.Unlock()
	if shared == nil || !owned {
		return nil
	}
	var wrote []byte
	var state scheduleState
	err := shared.Own(s.store.origin.scheduleFile(), func(raw []byte) (_ []byte, err error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if !bytes.Equal(raw, s.common.raw) {
			if others, err := s.parseCommon(raw, shared); err == nil {
				s.state.adopt(others)
			}
		}
		state = s.state.clone()
		state.Search = Clock{} // which has a document of its own
		wrote, err = encodeSchedule(state, time.Now(), moment{Saved: shared.Now()})
		return wrote, err
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	s.common.err = err
	if s.common.lacks = err != nil; err == nil {
		s.common.raw, s.common.state, s.common.own = wrote, state, true
	}
	return err
}

// parseCommon reads a document of the schedule. The caller holds mu.
func (s *Schedule) parseCommon(raw []byte, shared Shared) (scheduleState, error) {
	now := time.Now()
	state, err := parseSchedule(raw, now, moment{Saved: shared.Now().Add(-shareSlack)})
	if err != nil {
		return scheduleState{}, err
	}
	if state.Lists == nil {
		state.Lists = make(map[string]ListClock)
	}
	state.askedBy(s.asker, now)
	state.renewedBy(s.token)
	return state, nil
}

// agree returns an error unless the document confirms that the lists may be fetched now.
func (s *Schedule) agree(lists []string, now time.Time) error {
	if s.sharer() == nil {
		return nil
	}
	_ = s.share() // confirmed returns the error
	if err := s.confirmed(); err != nil {
		return err
	}
	if len(s.dueNow(lists, now)) < len(lists) {
		return fmt.Errorf("%w: it has later clocks", errNotHeld)
	}
	return nil
}

// confirmed returns an error unless the last change is in the document, or this process may fetch
// without it.
func (s *Schedule) confirmed() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.common.err; s.sharer() != nil && err != nil && !errors.Is(err, ErrAlone) {
		return fmt.Errorf("%w: %w", errNotHeld, err)
	}
	return nil
}

// reloadShared puts the schedule of the process that had the right to fetch before in the place
// of the one in the folder, whose later clocks stay.
func (s *Schedule) reloadShared() error {
	shared := s.sharer()
	if shared == nil {
		return nil
	}
	raw, _ := shared.Read(s.store.origin.scheduleFile())
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.common.own && bytes.Equal(raw, s.common.raw) {
		return nil // memory and folder are newer
	}
	next, err := s.parseCommon(raw, shared)
	switch {
	case err == nil:
	case s.common.state.Saved.IsZero(): // never seen
	default:
		next = s.common.state.clone()
	}
	s.common.raw, s.common.own = raw, false
	if next.Lists != nil {
		s.take(next)
	}
	if raw == nil {
		return nil
	}
	return err
}

// take replaces the schedule by that of another process. Own clocks that end later stay. The
// caller holds mu.
func (s *Schedule) take(next scheduleState) {
	next.endRequest()
	next.adopt(s.state)
	next.Search = s.state.Search // which has a document of its own
	s.state = next
}

// endRequest counts a request that is under way as failed.
func (s *scheduleState) endRequest() {
	if s.Fetch.Asking {
		s.Fetch.Asking, s.Fetch.Cause = false, "the process ended before the answer came"
	}
}

// lookShared reads the document that another process writes, and reports whether it has
// changed. It saves the clocks in the folder, and adds those that the document lacks.
func (s *Schedule) lookShared() (changed bool) {
	shared := s.sharer()
	s.lookAtSharedSearches()
	raw, known := shared.Read(s.store.origin.scheduleFile())
	if !known {
		return false
	}
	s.mu.Lock()
	next, err := s.parseCommon(raw, shared)
	seen := s.common.state.Saved
	switch {
	case err != nil || next.Saved.Before(seen): // lost, damaged, or an older copy
		s.common.lacks = true
	case !bytes.Equal(raw, s.common.raw):
		s.common.raw, s.common.state, s.common.own, changed = raw, next.clone(), false, !next.Fetch.Asking
	}
	lacks := s.common.lacks
	if changed && lacks {
		s.take(next)
	} else if changed {
		next.Search = s.state.Search
		s.state = next
	}
	own := s.state.clone()
	s.mu.Unlock()
	if lacks {
		s.addClocks(own)
	}
	if changed && s.store.locked() { // otherwise another process writes the folder
		own.Search = Clock{}
		now := time.Now()
		if raw, err := encodeSchedule(own, now, s.store.moment(now)); err == nil {
			_ = s.store.writeSchedule(append(raw, '\n')) // the next change tries again
		}
	}
	return changed
}

// addClocks adds those clocks of a process that does not fetch that end later than those of the
// document.
func (s *Schedule) addClocks(own scheduleState) {
	shared := s.sharer()
	var wrote []byte
	err := shared.Update(s.store.origin.scheduleFile(), func(raw []byte) (_ []byte, err error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		all, err := s.parseCommon(raw, shared)
		switch {
		case s.common.own && bytes.Equal(raw, s.common.raw):
			all = own.clone() // it knows what became of its request
		case err != nil:
			all = s.common.state.clone()
		}
		if all.Lists == nil {
			all.Lists = make(map[string]ListClock)
		}
		if !s.common.own {
			all.later(s.common.state)
		}
		all.later(own)
		all.Asker, all.Token, all.Search = own.Asker, own.Token, Clock{}
		wrote, err = encodeSchedule(all, time.Now(), moment{Saved: shared.Now()})
		return wrote, err
	})
	if err != nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.common.raw, s.common.lacks = wrote, false
	if state, err := s.parseCommon(wrote, shared); err == nil {
		s.common.state = state
	}
}

// later moves each clock to the end of that of other, if that is later. A request that is under
// way stays under way.
func (s *scheduleState) later(other scheduleState) {
	fetch := s.Fetch.Away.or(other.Fetch.Away)
	defer func() { s.Fetch.Away = fetch }()
	if other.Fetch.NotBefore.After(s.Fetch.NotBefore) {
		asking := s.Fetch.Asking || other.Fetch.Asking
		s.Fetch = other.Fetch
		s.Fetch.Asking = asking
	}
	for name, list := range other.Lists {
		if list.NotBefore.After(s.Lists[name].NotBefore) {
			s.Lists[name] = list
		}
	}
}
