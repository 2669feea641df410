package updater

import (
	"os"
	"time"
)

// The clock of searches has a file of its own, since all processes with one folder
// search, and not only the one that fetches lists: each of them waits as any of them
// was told to. Whoever changes the clock holds a lock for as long as that takes;
// readers need none, for the file is replaced whole.

// searchTurn bounds how long the lock is waited for, in which another process writes
// a few hundred bytes. Then it is done without.
const searchTurn = 2 * time.Second

// searchClock is what a Schedule keeps of the file. It is guarded by Schedule.mu.
type searchClock struct {
	pending []func(*Clock) // changes that are in memory and not in the file yet, the oldest first
	saving  chan struct{}  // closed when no change is pending any more; nil: none is
	seen    os.FileInfo    // of the file as it was read or written last; nil: never
	looking bool           // the file is being read
}

// changeSearch alters the clock of searches: in memory at once, and in the file
// soon, in the order of the calls. Alter may be called twice, for what other
// processes have done lies between the two. Failed is told if the file cannot be
// written, of which alter is no part. The channel is closed when the change is in
// the file, or cannot be.
func (s *Schedule) changeSearch(alter func(*Clock), failed func(error)) <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	alter(&s.state.Search)
	if s.store == nil || s.onlooker {
		done := make(chan struct{})
		close(done)
		return done
	}
	s.search.pending = append(s.search.pending, alter)
	if s.search.saving == nil {
		s.search.saving = make(chan struct{})
		s.saves.Go(func() { s.saveSearches(failed) }) // ends when nothing is pending; waited for by Flush
	}
	return s.search.saving
}

// Flush waits until all changes are on disk.
func (s *Schedule) Flush() { s.saves.Wait() }

// saveSearches writes the pending changes until there are none.
func (s *Schedule) saveSearches(failed func(error)) {
	for {
		err := s.saveSearch()
		s.mu.Lock()
		done := len(s.search.pending) == 0
		if done {
			close(s.search.saving)
			s.search.saving = nil
		}
		s.mu.Unlock()
		if err != nil {
			failed(err)
		}
		if done {
			return
		}
	}
}

// saveSearch applies the pending changes to the file.
func (s *Schedule) saveSearch() error {
	unlock, _ := s.store.lockSearches()
	defer unlock()
	now := time.Now()
	saved, info, err := s.store.readSearches(now)
	s.mu.Lock()
	state := scheduleState{Asker: s.state.Asker, clockSet: clockSet{Search: s.state.Search}, Others: searchesOf(s.state.Others)}
	applied := len(s.search.pending)
	if err == nil && saved != nil && s.isNew(info) { // by another process, which comes first
		saved.askedBy(s.asker, now)
		for _, alter := range s.search.pending {
			alter(&saved.Search)
		}
		state = *saved
	}
	s.mu.Unlock()
	raw, err := encodeSchedule(state, now)
	if err == nil {
		info, err = s.store.writeSearches(raw)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.search.pending = s.search.pending[applied:]
	if err != nil {
		return err
	}
	s.search.seen = info
	if len(s.search.pending) == 0 && state.Asker == s.state.Asker {
		s.state.Search = state.Search
	}
	return nil
}

// searchesOf returns the clocks of searches of other askers.
func searchesOf(others map[string]clockSet) map[string]clockSet {
	all := make(map[string]clockSet, len(others))
	for asker, c := range others {
		all[asker] = clockSet{Search: c.Search}
	}
	return all
}

// isNew reports whether a file is another one than that which was read or written
// last. The caller holds mu.
func (s *Schedule) isNew(info os.FileInfo) bool {
	seen := s.search.seen
	return seen == nil || !os.SameFile(seen, info) || !seen.ModTime().Equal(info.ModTime()) || seen.Size() != info.Size()
}

// lookTime bounds how long a search waits for the disk that the clock is read from.
const lookTime = 100 * time.Millisecond

// lookAtSearches takes in what other processes have noted about searches. A disk that
// hangs must not hang the search.
func (s *Schedule) lookAtSearches() {
	s.mu.Lock()
	busy := s.store == nil || s.search.saving != nil || s.search.looking
	s.search.looking = s.search.looking || !busy
	s.mu.Unlock()
	if busy {
		return
	}
	done := make(chan struct{})
	s.saves.Go(func() { // ends with the disk; waited for by Flush
		defer close(done)
		s.readSearch()
	})
	timeout := time.NewTimer(lookTime)
	defer timeout.Stop()
	select {
	case <-done:
	case <-timeout.C:
	}
}

// readSearch reads the file if it has changed. One that cannot be read says nothing.
func (s *Schedule) readSearch() {
	info, err := s.store.statSearches()
	s.mu.Lock()
	changed := err == nil && s.isNew(info)
	s.mu.Unlock()
	var saved *scheduleState
	now := time.Now()
	if changed {
		saved, info, err = s.store.readSearches(now)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.search.looking = false
	if changed && err == nil && saved != nil && len(s.search.pending) == 0 {
		s.takeSearch(*saved, info, now)
	}
}

// takeSearch makes the clock that of the file. The caller holds mu.
func (s *Schedule) takeSearch(saved scheduleState, info os.FileInfo, now time.Time) {
	s.search.seen = info
	saved.askedBy(s.asker, now)
	if saved.Asker == s.state.Asker || s.state.Asker == "" {
		s.state.Search = saved.Search
	}
	for asker, c := range saved.Others {
		other := s.state.Others[asker]
		other.Search = c.Search
		if s.state.Others == nil {
			s.state.Others = make(map[string]clockSet)
		}
		s.state.Others[asker] = other
	}
}

// reloadSearch makes the clock that of the file, unless there are changes that are not
// in it yet. Without a file it is that of the schedule, where it stood once. The
// caller holds mu.
func (s *Schedule) reloadSearch(now time.Time) {
	if s.store == nil || len(s.search.pending) > 0 {
		return
	}
	if saved, info, err := s.store.readSearches(now); err == nil && saved != nil {
		s.takeSearch(*saved, info, now)
	}
}

// keepSearch saves a clock that is later than that of the file: that of another
// folder, or of a schedule that was kept in memory.
func (s *Schedule) keepSearch() {
	s.mu.Lock()
	held := s.state.Search
	s.mu.Unlock()
	if !held.NotBefore.After(time.Now()) {
		return
	}
	s.changeSearch(func(c *Clock) {
		if held.NotBefore.After(c.NotBefore) {
			*c = held
		}
	}, func(error) {}) // the schedule was saved just before
}

// SearchHold returns why no full hashes may be searched for now. It is safe for
// concurrent use.
func (s *Schedule) SearchHold() Hold {
	s.mu.Lock()
	hold, last := s.state.Search.hold(), s.last
	if s.succeeds {
		last = nil
	}
	s.mu.Unlock()
	if last != nil { // it may still be in use, and told to wait
		if other := last.SearchHold(); other.Until.After(hold.Until) {
			return other
		}
	}
	return hold
}

// searchMayWait reports whether the last search failed or had a minimum wait, so that
// the next one may well have one too.
func (s *Schedule) searchMayWait() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state.Search.Failures > 0 || s.state.Search.Wait > 0
}

// searchWaits reports whether the success of a search that was sent then changes
// anything.
func (s *Schedule) searchWaits(sent time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	together := !s.searchFailed.IsZero() && sent.Before(s.searchFailed)
	return s.state.Search.Failures > 0 && !together || s.state.Search.Wait > 0
}

// searchWait returns how long no search may be sent.
func (s *Schedule) searchWait(now time.Time) time.Duration {
	s.mu.Lock()
	wait, last := s.state.Search.NotBefore.Sub(now), s.last
	if s.succeeds {
		last = nil
	}
	s.mu.Unlock()
	if last != nil { // it may still be in use, and told to wait
		wait = max(wait, last.searchWait(now))
	}
	return wait
}

// failedTogether reports whether a search that was sent then was under way when
// another one failed, and notes the time if it failed itself.
func (s *Schedule) failedTogether(sent, now time.Time, err error) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	together := !s.searchFailed.IsZero() && sent.Before(s.searchFailed)
	if err != nil && !together {
		s.searchFailed = now
	}
	return together
}
