package updater

import (
	"bytes"
	"time"
)

// The clock of searches on its way to and from its document, which every process writes.

// shareSearch applies the pending changes to the document. It returns how many those were, and
// brings what others have written into memory.
func (s *Schedule) shareSearch() (applied int) {
	shared := s.sharer()
	s.mu.Lock()
	pending := s.search.pending
	s.mu.Unlock()
	if shared == nil {
		return len(pending)
	}
	var wrote []byte
	var clock Clock
	err := shared.Update(s.store.origin.searchFile(), func(raw []byte) (_ []byte, err error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		now := time.Now()
		state := scheduleState{Asker: s.state.Asker, Token: s.token, clockSet: clockSet{Search: s.state.Search}}
		if others, err := s.parseCommon(raw, shared); err == nil && !bytes.Equal(raw, s.search.common) {
			state.Search = others.Search
			for _, alter := range pending {
				alter(&state.Search)
			}
		}
		clock = state.Search
		wrote, err = encodeSchedule(state, now, moment{Saved: shared.Now()})
		return wrote, err
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	s.search.lacks = err != nil
	switch {
	case err != nil:
	case len(s.search.pending) == len(pending):
		s.search.common, s.state.Search = wrote, clock
	default:
		// The next pass has the changes that came meanwhile, on top of what is there now.
		s.search.common = nil
	}
	return len(pending)
}

// lookAtSharedSearches takes over what other processes have written about searches. It does not
// wait. If the document has been lost, it is written again.
func (s *Schedule) lookAtSharedSearches() {
	shared := s.sharer()
	if shared == nil {
		return
	}
	raw, known := shared.Read(s.store.origin.searchFile())
	if !known {
		return
	}
	s.mu.Lock()
	busy := len(s.search.pending) > 0
	lost := s.search.lacks || raw == nil
	news := !busy && raw != nil && !bytes.Equal(raw, s.search.common)
	if news {
		news = s.takeSharedSearch(raw, shared)
		lost = lost || !news
	}
	s.mu.Unlock()
	if lost && !busy {
		s.keepSearch()
	}
	if news {
		s.search.running.Go(func() { _ = s.saveSearchFile(0) }) // the next change tries again; Flush waits for it
	}
}

// takeSharedSearch replaces the clock by that of the document, unless the document is damaged
// or older than the last one. The caller holds mu.
func (s *Schedule) takeSharedSearch(raw []byte, shared Shared) (taken bool) {
	state, err := s.parseCommon(raw, shared)
	if err != nil || state.Saved.Before(s.search.commonSaved) {
		return false
	}
	s.search.common, s.search.commonSaved = raw, state.Saved
	if s.search.lacks && s.state.Search.end().After(state.Search.end()) {
		return true // keepSearch adds the own clock
	}
	s.state.Search = state.Search
	return true
}
