package updater

import (
	"errors"
	"net/http"
	"slices"
)

// Follow makes s go on where another schedule of the same server and key stands,
// which may still be in use: an Updater with s waits until that one's has ended.
// It is called before s is used.
func (s *Schedule) Follow(last *Schedule) {
	s.turn, s.last = last.turn, last
	s.adopt(last)
}

// Succeed is Follow for a schedule of the predecessor, see Origin: its lists are
// taken over, with their versions if continues is set, and its clocks are not. Those
// are taken from own, the last schedule of this server; nil: there was none.
func (s *Schedule) Succeed(last, own *Schedule, continues bool) {
	s.turn, s.last, s.succeeds, s.continues = last.turn, last, true, continues
	if own != nil {
		s.adopt(own)
	}
}

// Borrow has the lists of another schedule of the same server be in force at
// once, with which somebody else asks. Its clocks are not this one's. It is called
// before s is used.
func (s *Schedule) Borrow(from *Schedule) { s.lender = from }

// adopt takes over all clocks of another schedule that are later than its own.
func (s *Schedule) adopt(last *Schedule) {
	last.mu.Lock()
	state := last.state.clone()
	last.mu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.state.adopt(state)
}

// catchUp ends the following: the schedule that was followed is at rest now. It
// reports whether there was one.
func (s *Schedule) catchUp() bool {
	s.mu.Lock()
	last, succeeds := s.last, s.succeeds
	s.mu.Unlock()
	if last == nil {
		return false
	}
	if !succeeds {
		s.adopt(last)
	}
	return true
}

// remember keeps a list for a schedule that follows.
func (s *Schedule) remember(l List) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lists[l.Name] = l
}

// recall returns a list that the schedule which is followed remembers.
func (s *Schedule) recall(name string) (List, bool) {
	s.mu.Lock()
	last, succeeds, continues := s.last, s.succeeds, s.continues
	if last == nil {
		last = s.lender
	}
	s.mu.Unlock()
	if last == nil {
		return List{}, false
	}
	last.mu.Lock()
	defer last.mu.Unlock()
	l, ok := last.lists[name]
	if ok = ok && l.held(); ok && succeeds {
		l = l.takenOver(continues)
	}
	return l, ok
}

// ForgetLists lets go of the lists, which are kept for an Updater that follows,
// when none will.
func (s *Schedule) ForgetLists() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.lists)
	s.last, s.over = nil, true
}

// Over reports whether ForgetLists has been called: only the clocks are left.
func (s *Schedule) Over() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.over
}

// follows reports whether there is a schedule of this process that s follows.
func (s *Schedule) follows() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last != nil
}

// Follows reports whether s follows last and has not caught up with it yet.
func (s *Schedule) Follows(last *Schedule) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last == last
}

// unfollow lets go of the schedule that was followed.
func (s *Schedule) unfollow() {
	s.mu.Lock()
	last := s.last
	s.last, s.lender = nil, nil
	s.mu.Unlock()
	switch {
	case last != nil && s.succeeds:
		last.ForgetLists()
	case last != nil: // it may not have caught up itself
		last.unfollow()
	}
}

// takenOver returns the list as a successor has it, without its version unless that
// can be gone on with.
func (l List) takenOver(continues bool) List {
	width, err := Width(l.Name)
	other := func(w int) bool { return w != width }
	if err != nil || !continues || slices.ContainsFunc(l.Set.Widths(), other) {
		l.Version = nil
	}
	l.TakenOver = true
	return l
}

// startsAnew reports whether the list is held, but no update can build upon it.
func (l List) startsAnew() bool { return l.TakenOver && l.Version == nil }

// doubtful returns those of the lists whose versions may be why a server refused a
// request: it may not know those of its predecessor. They are asked for in full.
func (u *Updater) doubtful(names []string, err error) (lists []string) {
	status, ok := errors.AsType[*StatusError](err)
	if !ok || status.Code != http.StatusBadRequest {
		return nil
	}
	for _, name := range names {
		if u.base(name).TakenOver {
			lists = append(lists, name)
		}
	}
	return lists
}
