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

// sharer returns what the schedule shares its clocks through, or nil.
func (s *Schedule) sharer() Shared {
	if s.store == nil || s.onlooker {
		return nil
	}
	return s.store.shared
}

// share brings the document of the schedule up to date, as the process that may fetch.
func (s *Schedule) share() error {
	shared := s.sharer()
	s.mu.Lock()
	owned := s.owned
	s.mu.Unlock()
	if shared == nil || !owned {
		return nil
	}
	err := s.exchange(shared, shared.Leased())
	s.mu.Lock()
	defer s.mu.Unlock()
	s.commonErr = err
	return err
}

// exchange joins the document of the schedule with what this process knows.
func (s *Schedule) exchange(shared Shared, m Medium) error {
	var wrote []byte
	err := exchange(m, s.store.origin.scheduleFile(), func(raw []byte) (_ []byte, err error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if !bytes.Equal(raw, s.common) {
			if others, err := parseCommon(raw, shared); err == nil {
				s.meet(others)
			}
		}
		wrote, err = s.encode(time.Now(), moment{Saved: shared.Now()})
		return wrote, err
	})
	if err == nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.common = wrote
	}
	return err
}

// parseCommon reads a document of clocks.
func parseCommon(raw []byte, shared Shared) (scheduleState, error) {
	return parseSchedule(raw, time.Now(), moment{Saved: shared.Now().Add(-shareSlack)})
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
	if err := s.commonErr; s.sharer() != nil && err != nil && !errors.Is(err, ErrAlone) {
		return fmt.Errorf("%w: %w", errNotHeld, err)
	}
	return nil
}

// meetCommon joins the document of the schedule, as the last known.
func (s *Schedule) meetCommon() error {
	shared := s.sharer()
	if shared == nil {
		return nil
	}
	raw, _ := shared.Read(s.store.origin.scheduleFile())
	s.mu.Lock()
	defer s.mu.Unlock()
	if raw == nil || bytes.Equal(raw, s.common) {
		return nil
	}
	others, err := parseCommon(raw, shared)
	if err == nil {
		s.meet(others)
	}
	s.common = raw
	return err
}

// lookShared joins the document that another process writes, and reports whether it has changed. It
// saves the clocks in the folder, and adds those that the document lacks: it was lost, or came back
// as an old copy.
func (s *Schedule) lookShared() (changed bool) {
	shared := s.sharer()
	s.lookAtSharedSearches()
	raw, err := shared.Read(s.store.origin.scheduleFile())
	if err != nil {
		return false
	}
	s.mu.Lock()
	lacks := raw == nil
	if !bytes.Equal(raw, s.common) || lacks {
		others, err := parseCommon(raw, shared)
		old := others.Fetch.Asking // of a version without notes, which will say what became of it
		if err == nil && !old {
			changed = !others.Fetch.held().Asking
			s.meet(others)
		}
		s.common = raw
		lacks = err != nil || !old && others.Token == s.state.Token && others.lacks(s.state)
	}
	s.mu.Unlock()
	if lacks {
		_ = s.exchange(shared, shared) // the next look tries again
	}
	if changed {
		_ = s.write() // the next change tries again
	}
	return changed
}

// lacks reports whether a state that was read does not have clocks of fetches that another one has.
func (s scheduleState) lacks(of scheduleState) bool {
	for name, list := range of.Lists {
		if s.Lists[name].Clock.lacks(list.Clock) {
			return true
		}
	}
	return s.Fetch.lacks(of.Fetch)
}

// lacks reports whether a clock that was read is older than another one, or does not have notes
// that this has.
func (a asked) lacks(of asked) bool {
	for writer, n := range of.Notes {
		if own := a.Notes[writer]; own.Number < n.Number || own.Number == n.Number && !own.Ended && n.Ended {
			return true
		}
	}
	return a.Clock.lacks(of.Clock)
}

// lacks reports whether a clock that was read is older than another one. Times that were read are a
// little later than they were written.
func (c Clock) lacks(of Clock) bool {
	return c.Attempt < of.Attempt || c.NotBefore.Add(2*shareSlack).Before(of.NotBefore)
}
