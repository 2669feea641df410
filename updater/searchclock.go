package updater

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"
)

// The clock of searches has a file of its own: every process with the folder
// searches, not only the one that fetches lists, and if the server tells one of them
// to wait, all wait. A writer holds a lock while it reads, changes and replaces the
// file. Readers need no lock: the file is replaced whole.

// searchLockTimeout bounds the wait for that lock, under which other processes write
// a few hundred bytes. After it the file is written without the lock.
const searchLockTimeout = 2 * time.Second

// searchClock carries the clock of searches to and from its file. Schedule.mu guards
// it.
type searchClock struct {
	// Each change is a function, not a new clock. So it can be applied to what another
	// process has written meanwhile.
	pending []func(*Clock) // changes in memory that are not in the file yet, oldest first
	saving  chan struct{}  // closed when no change is pending any more; nil: none is
	// seen tells a file that another process wrote from the one that this process knows.
	seen    os.FileInfo // of the file when last read or written; nil: never
	looking bool        // the file is being read
	// Of this process only, not saved: it finds searches that were under way together.
	failed time.Time // when a search failed last; zero: never

	// Of the document in a Shared.
	common      []byte    // as last read or written; nil: never
	commonSaved time.Time // when it was written, as last read
	lacks       bool      // it could not be written

	running sync.WaitGroup // goroutines that write and read the file; not guarded
}

// changeSearch alters the clock of searches: at once in memory, and soon in the file,
// in the order of the calls. alter may be called a second time, on what another
// process has written meanwhile. failed receives the error if the file cannot be
// written. The channel is closed when the change is in the file or cannot be saved.
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
		s.search.running.Go(func() { s.saveSearches(failed) }) // ends when nothing is pending; Flush waits for it
	}
	return s.search.saving
}

// Flush waits until all changes of searches are on disk, or could not be saved. It is
// safe for concurrent use.
func (s *Schedule) Flush() { s.search.running.Wait() }

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

// saveSearch applies the pending changes to the document and to the file.
func (s *Schedule) saveSearch() error {
	applied := s.shareSearch()
	return s.saveSearchFile(applied)
}

// saveSearchFile applies the first pending changes to the file. What another process has
// written comes first.
func (s *Schedule) saveSearchFile(applied int) error {
	// The lock of the file comes before mu, and mu is free while the disk works.
	unlock, _ := s.store.lockSearches()
	defer unlock()
	now := time.Now()
	saved, info, err := s.store.readSearches(now)
	s.mu.Lock()
	// The clock in memory has all pending changes already. It is what to write unless
	// another process has written the file since.
	state, before := s.searches(), s.state.Search
	if s.sharer() == nil {
		applied = len(s.search.pending)
	}
	if err == nil && saved != nil && s.isNew(info) {
		saved.askedBy(s.asker, now)
		for _, alter := range s.search.pending[:applied] {
			alter(&saved.Search)
		}
		state = *saved
	}
	state.Token = cmp.Or(s.token, state.Token)
	s.mu.Unlock()
	raw, err := encodeSchedule(state, now, s.store.moment(now))
	if err == nil {
		info, err = s.store.writeSearches(raw)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	// Changes that came during the write need another pass. Those of a failed write
	// are in memory only. The next write takes them from there, unless another process
	// has written first.
	s.search.pending = s.search.pending[applied:]
	if err != nil {
		return err
	}
	s.search.seen = info
	longer := s.state.Search == before || state.Search.end().After(s.state.Search.end())
	if len(s.search.pending) == 0 && state.Asker == s.state.Asker && longer {
		s.state.Search = state.Search
	}
	return nil
}

// searches returns the clocks of searches in memory. The caller holds mu.
func (s *Schedule) searches() scheduleState {
	return scheduleState{Asker: s.state.Asker, clockSet: clockSet{Search: s.state.Search}, Others: searchesOf(s.state.Others)}
}

// searchesOf returns the clocks of searches of other askers.
func searchesOf(others map[string]clockSet) map[string]clockSet {
	all := make(map[string]clockSet, len(others))
	for asker, c := range others {
		all[asker] = clockSet{Search: c.Search}
	}
	return all
}

// isNew reports whether a file is not the one last read or written. The caller holds
// mu.
func (s *Schedule) isNew(info os.FileInfo) bool {
	seen := s.search.seen
	return seen == nil || !os.SameFile(seen, info) || !seen.ModTime().Equal(info.ModTime()) || seen.Size() != info.Size()
}

// lookTimeout bounds how long a search waits for the disk to read the clock.
const lookTimeout = 100 * time.Millisecond

// lookAtSearches reads what other processes have saved about searches. If the disk
// hangs, the search goes on without it.
func (s *Schedule) lookAtSearches() {
	s.lookAtSharedSearches()
	s.mu.Lock()
	busy := s.store == nil || s.search.saving != nil || s.search.looking
	s.search.looking = s.search.looking || !busy
	s.mu.Unlock()
	if busy {
		return
	}
	done := make(chan struct{})
	s.search.running.Go(func() { // ends when the disk answers; Flush waits for it
		defer close(done)
		s.readSearch()
	})
	timeout := time.NewTimer(lookTimeout)
	defer timeout.Stop()
	select {
	case <-done:
	case <-timeout.C:
	}
}

// readSearch reads the file if it has changed. A file that cannot be read is ignored.
func (s *Schedule) readSearch() {
	// Most searches read no more than this: the file changes only with failures and waits.
	info, err := s.store.statSearches()
	s.mu.Lock()
	changed := err == nil && s.isNew(info)
	s.mu.Unlock()
	var saved *scheduleState
	now := time.Now()
	if changed {
		saved, info, _ = s.store.readSearches(now)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.search.looking = false
	// With changes pending the file may be older than memory. saveSearch brings both together.
	if saved != nil && len(s.search.pending) == 0 {
		s.takeSearch(*saved, info, now)
	}
}

// takeSearch replaces the clock by that of the file. The caller holds mu.
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

// reloadSearch replaces the clock by that of the file. If changes are pending, held is newer: what
// was in memory before the schedule was read. Without a file the clock of the schedule's file stays, where older versions kept
// it. A damaged file may have had a wait: then searches wait as after a first failure.
// The caller holds mu.
func (s *Schedule) reloadSearch(held scheduleState, now time.Time) error {
	if len(s.search.pending) > 0 {
		s.takeSearch(held, s.search.seen, now)
		return nil
	}
	if s.store == nil {
		return nil
	}
	saved, info, err := s.store.readSearches(now)
	switch {
	case errors.Is(err, ErrDamaged):
		if until := now.Add(backoffUnit); s.state.Search.NotBefore.Before(until) {
			s.state.Search = Clock{NotBefore: until}.because(now, errUnreadableSearches)
		}
		return fmt.Errorf("%w, waiting %s before the first search: %w", errUnreadableSearches, backoffUnit, err)
	case err == nil && saved != nil:
		saved.askedBy(s.asker, now)
		saved.renewedBy(s.token)
		s.takeSearch(*saved, info, now)
	}
	return nil
}

var errUnreadableSearches = errors.New("the saved clock of searches is unreadable")

// keepSearch saves the clock if it ends later than that of the file: it may come
// from another folder, or have been in memory only.
func (s *Schedule) keepSearch() {
	s.mu.Lock()
	held := s.state.Search
	s.mu.Unlock()
	if !held.end().After(time.Now()) {
		return
	}
	s.changeSearch(func(c *Clock) {
		away := held.Away.or(c.Away)
		if held.NotBefore.After(c.NotBefore) {
			*c = held
		}
		c.Away = away
	}, func(error) {}) // saving the schedule, just before, has reported any error
}

// SearchHold returns why no full hashes may be searched for now. It is safe for
// concurrent use.
func (s *Schedule) SearchHold() Hold {
	last := s.hand.sameServer()
	s.mu.Lock()
	hold := s.state.Search.hold()
	s.mu.Unlock()
	if last != nil {
		if other := last.SearchHold(); other.Until.After(hold.Until) {
			return other
		}
	}
	return hold
}

// searchMayWait reports whether the last search failed or got a minimum wait: the
// next answer may well have one too.
func (s *Schedule) searchMayWait() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state.Search.Failures > 0 || s.state.Search.Wait > 0
}

// searchWaits reports whether the success of a search that was sent at sent changes
// the clock.
func (s *Schedule) searchWaits(sent time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	together := !s.search.failed.IsZero() && sent.Before(s.search.failed)
	return s.state.Search.Failures > 0 && !together || s.state.Search.Wait > 0 || s.state.Search.Away.Tries > 0
}

// searchWait returns how long no search may be sent; not above 0: one may be.
func (s *Schedule) searchWait(now time.Time) time.Duration {
	last := s.hand.sameServer()
	s.mu.Lock()
	wait := s.state.Search.end().Sub(now)
	s.mu.Unlock()
	if last != nil {
		wait = max(wait, last.searchWait(now))
	}
	return wait
}

// failedTogether reports whether a search that was sent at sent was under way when
// another one failed. If not, and it failed itself, its failure is noted.
func (s *Schedule) failedTogether(sent, now time.Time, err error) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	together := !s.search.failed.IsZero() && sent.Before(s.search.failed)
	if err != nil && !together {
		s.search.failed = now
	}
	return together
}
