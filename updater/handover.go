package updater

import (
	"sync"
	"time"
)

// handover passes two things from one Schedule to the next that asks in its place,
// in a reload for example: the right to ask the server, and the lists in memory.
//
// The Schedules form a chain. Each refers to the one before it until its Updater
// has read what that one did last; then unfollow cuts the reference.
type handover struct {
	// baton is full while an Updater may ask. All Schedules of a chain share one.
	baton chan struct{}

	// Written by Succeed before the Schedule is used, read-only afterwards.
	succeeds  bool // last belongs to the predecessor: its clocks are about other requests
	continues bool // see Origin

	// mu guards the rest. It is unlocked before another Schedule of the chain is asked, so
	// the chain cannot deadlock.
	mu     sync.Mutex
	last   *Schedule // the one before; nil: none, or it has been caught up with
	lender *Schedule // its lists serve until there are others; nil: none
	lends  bool      // lender belongs to a predecessor
	over   bool      // the lists have been dropped
	// A List is immutable, so the Updater and the chain share its memory. forget releases
	// it when no Schedule will follow.
	lists map[string]List // what the Updater has in memory, for the Schedule that follows
}

// Follow makes s continue where last stands, a schedule of the same server and key.
// Last may still be in use: an Updater with s waits until the Updater of last has
// ended. Call Follow before s is used.
func (s *Schedule) Follow(last *Schedule) {
	s.hand.follow(last)
	s.meetLast(last)
}

// Borrow publishes the lists of another schedule of the same server at once, while
// another Updater still asks with that schedule. Its clocks are not taken over. If
// predecessor is set from belongs to one, see Origin, whose versions are not known here.
// Call Borrow before s is used. If s follows another one, too, the lists of that come first.
func (s *Schedule) Borrow(from *Schedule, predecessor bool) {
	s.hand.lender, s.hand.lends = from, predecessor
}

// AsksAs reports whether the schedule belongs to whoever asks with the key of an origin. It is safe for concurrent use.
func (s *Schedule) AsksAs(origin Origin) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asker == origin.Asker && s.token == origin.Token
}

// ForgetLists drops the lists that are kept for a schedule that follows. Call it if
// none will. The clocks stay. It is safe for concurrent use.
func (s *Schedule) ForgetLists() { s.hand.forget() }

// Over reports whether ForgetLists has been called, so that only the clocks are
// left. It is safe for concurrent use.
func (s *Schedule) Over() bool {
	s.hand.mu.Lock()
	defer s.hand.mu.Unlock()
	return s.hand.over
}

// Follows reports whether s follows last and has not caught up with it yet. It is
// safe for concurrent use.
func (s *Schedule) Follows(last *Schedule) bool { return s.hand.previous() == last }

// meetLast joins what another Schedule of this process knows.
func (s *Schedule) meetLast(last *Schedule) {
	last.mu.Lock()
	state := last.state.clone()
	last.mu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.meet(state, inFolder)
}

// resume joins the clocks of the schedule before, whose Updater has ended. It reports whether
// there was one.
func (s *Schedule) resume() bool {
	last := s.hand.previous()
	if last == nil {
		return false
	}
	if !s.hand.succeeds {
		s.meetLast(last)
	}
	return true
}

func (h *handover) follow(last *Schedule) { h.baton, h.last = last.hand.baton, last }

// previous returns the schedule before, or nil.
func (h *handover) previous() *Schedule {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.last
}

// sameServer returns the schedule before if it belongs to the same server, or nil.
// That one may still be in use, and be told to wait. Call it before reading the own
// clocks: unfollow cuts the reference after the clocks have been taken over.
func (h *handover) sameServer() *Schedule {
	if h.succeeds {
		return nil
	}
	return h.previous()
}

// remember keeps a list for the schedule that follows.
func (h *handover) remember(l List) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lists[l.Name] = l
}

// recall returns a list of the schedule before, or else of the lender, for one with a store. What is in another folder
// is not saved in this one.
func (h *handover) recall(name string, store *Store) (List, bool) {
	h.mu.Lock()
	last, succeeds, continues, lender, lends := h.last, h.succeeds, h.continues, h.lender, h.lends
	h.mu.Unlock()
	if l, ok := last.recalled(name, succeeds, continues); ok {
		if store != nil && (last.store == nil || last.store.dir != store.dir) {
			l.unsaved = last.list(name).Updated
		}
		return l, true
	}
	l, ok := lender.recalled(name, lends, false)
	l.unsaved = time.Time{} // that is about another folder
	return l, ok
}

// recalled returns a list that the schedule keeps for another one. The nil Schedule keeps none.
func (s *Schedule) recalled(name string, succeeds, continues bool) (List, bool) {
	if s == nil {
		return List{}, false
	}
	// That Updater may still be running, and remember lists.
	s.hand.mu.Lock()
	defer s.hand.mu.Unlock()
	l, ok := s.hand.lists[name]
	if ok = ok && l.held(); ok && succeeds {
		l = l.takenOver(continues)
	}
	return l, ok
}

// forget drops the lists and cuts the reference to the schedule before, which would
// otherwise keep its lists in memory.
func (h *handover) forget() {
	h.mu.Lock()
	defer h.mu.Unlock()
	clear(h.lists)
	h.last, h.over = nil, true
}

// unfollow cuts the references to the schedule before and to the lender.
func (h *handover) unfollow() {
	h.mu.Lock()
	last := h.last
	h.last, h.lender = nil, nil
	h.mu.Unlock()
	// Outside of mu: these lock the mutex of last.
	if last != nil {
		last.hand.unfollow() // it may not have caught up itself
		last.hand.forget()
	}
}
