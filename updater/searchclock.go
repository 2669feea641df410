package updater

import (
	"bytes"
	"context"
	"os"
	"sync"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/files"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

// The clock of searches is a document of its own: every process with the folder
// searches, not only the one that fetches lists, and if the server tells one of them
// to wait, all wait. It is on two media if there is a Shared.

// searchLockTimeout bounds the wait for the lock of a document in the folder, under which other
// processes write a few hundred bytes, and the wait of a search for it.
const searchLockTimeout = 2 * time.Second

// searchClock carries the clock of searches to and from its media. Schedule.mu guards
// it.
type searchClock struct {
	// Each change is a function, not a new clock. So it can be applied to what another
	// process has written meanwhile. State.Search is base with all pending changes.
	pending []func(*asked) // changes in memory that are not on the first medium yet, oldest first
	base    asked          // if there are any
	dirty   bool           // there is something to write
	saving  chan struct{}  // closed when nothing is to be written any more; nil: nothing is
	// seen tells a file that another process wrote from the one that this process knows.
	seen    os.FileInfo // of the file when last read or written; nil: never
	looking bool        // the file is being read
	// Of this process only, not saved: it finds searches that were under way together.
	failed time.Time // when a search failed last; zero: never

	common []byte // the document in a Shared, as last read or written; nil: never

	running background // goroutines that write and read the file; not guarded
}

// changeSearch alters the clock of searches: at once in memory, and soon on the media,
// in the order of the calls. alter is called with mu held. It may be called again, on what another
// process has written meanwhile. failed receives the error if the file cannot be
// written. The channel is closed when the change is in the file or cannot be saved.
func (s *Schedule) changeSearch(alter func(*asked), failed func(error)) <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.store == nil || s.onlooker {
		s.alterSearch(alter)
		done := make(chan struct{})
		close(done)
		return done
	}
	if len(s.search.pending) == 0 {
		s.search.base = s.state.Search
	}
	s.search.pending = append(s.search.pending, alter)
	s.alterSearch(alter)
	s.search.dirty = true
	if s.search.saving == nil {
		s.search.saving = make(chan struct{})
		s.search.running.Go(func() { s.saveSearches(failed) }) // ends when nothing is to be written; Flush waits for it
	}
	return s.search.saving
}

// keepSearches saves a wait: it may come from another folder, or have been in memory only.
func (s *Schedule) keepSearches() {
	s.mu.Lock()
	over := !s.state.Search.held().end().After(time.Now())
	s.mu.Unlock()
	if !over {
		s.changeSearch(func(*asked) {}, func(error) {}) // saving the schedule, just before, has reported any error
	}
}

// alterSearch applies a change in memory. The caller holds mu.
func (s *Schedule) alterSearch(alter func(*asked)) {
	before := s.state.Search.Clock
	alter(&s.state.Search)
	s.state.Search.Clock = s.state.Search.after(before, time.Now())
}

// meetSearch joins what a medium, or another Schedule, knows of searches. The caller holds mu.
func (s *Schedule) meetSearch(other asked) {
	if len(s.search.pending) == 0 {
		s.state.Search = s.state.Search.join(other)
		return
	}
	s.search.base = s.search.base.join(other)
	s.state.Search = s.search.base
	for _, alter := range s.search.pending {
		s.alterSearch(alter)
	}
}

// background counts goroutines. Unlike with a sync.WaitGroup, one may begin while Wait waits for
// the last one.
type background struct {
	mu   sync.Mutex
	n    int
	idle chan struct{} // closed when n is 0 again; nil: no goroutine has begun yet
}

// Go calls f in a goroutine of its own.
func (b *background) Go(f func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.n == 0 {
		b.idle = make(chan struct{})
	}
	b.n++
	go func() {
		defer b.end()
		f()
	}()
}

func (b *background) end() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.n--; b.n == 0 {
		close(b.idle)
	}
}

// Wait waits until none of the goroutines runs that have begun, or for a later moment at which none runs.
func (b *background) Wait() {
	b.mu.Lock()
	idle := b.idle
	b.mu.Unlock()
	if idle != nil {
		<-idle
	}
}

// Flush waits until all changes of searches are on disk, or could not be saved. It is
// safe for concurrent use.
func (s *Schedule) Flush() { s.search.running.Wait() }

// saveSearches writes until there is nothing to write.
func (s *Schedule) saveSearches(failed func(error)) {
	for {
		err := s.saveSearch()
		s.mu.Lock()
		done := !s.search.dirty
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

// saveSearch brings the document up to date on its media. The pending changes are applied on top of
// what is on the first one; then they are no longer pending, even if that cannot be written.
func (s *Schedule) saveSearch() error {
	name, first := s.store.origin.searchFile(), true
	if shared := s.sharer(); shared != nil {
		var w searchWrite
		err := exchange(shared, name, func(raw []byte) ([]byte, error) {
			found, parseErr := parseCommon(raw, shared)
			if w = s.joinSearches(found, parseErr, first, moment{Saved: shared.Now()}); w.applied == 0 && parseErr == nil && !found.Search.lacks(w.clock) {
				w.raw = nil // others would find news
			}
			return w.raw, w.err
		})
		s.wroteSearches(w, err)
		first = false
	}
	var w searchWrite
	saved, err := s.store.swap(name, func(raw []byte) ([]byte, error) {
		now := time.Now()
		at := s.store.moment(now)
		found, parseErr := parseSchedule(raw, now, at)
		w = s.joinSearches(found, parseErr, first, at)
		return append(w.raw, '\n'), w.err
	})
	if first {
		s.wroteSearches(w, errNotHeld)
	}
	if info, statErr := s.store.statSearches(); saved && statErr == nil {
		s.mu.Lock()
		s.search.seen = info
		s.mu.Unlock()
	}
	return err
}

// searchWrite is what is written to a medium.
type searchWrite struct {
	raw     []byte
	err     error
	asker   string
	clock   asked
	applied int // pending changes that it has
}

// joinSearches joins the clock with what was read from a medium, unless that is damaged, and returns
// what to write at a moment: on the first medium with the pending changes.
func (s *Schedule) joinSearches(found scheduleState, damaged error, first bool, at moment) (w searchWrite) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if damaged == nil {
		s.meet(found)
	}
	w.asker, w.clock = s.state.Asker, s.state.Search
	if first {
		w.applied, s.search.dirty = len(s.search.pending), false
	} else if len(s.search.pending) > 0 {
		w.clock = s.search.base
	}
	state := scheduleState{Asker: s.state.Asker, Token: s.state.Token, clockSet: clockSet{Search: w.clock}, Others: searchesOf(s.state.Others)}
	w.raw, w.err = encodeSchedule(state, time.Now(), at)
	return w
}

// wroteSearches notes what the first medium has, or will get with the next change.
func (s *Schedule) wroteSearches(w searchWrite, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil && w.raw != nil {
		s.search.common = w.raw
	}
	if w.asker == s.state.Asker && w.applied > 0 && w.applied <= len(s.search.pending) {
		s.search.pending = s.search.pending[w.applied:]
		s.search.base = w.clock
		s.meetSearch(w.clock)
	}
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
	return !files.Same(s.search.seen, info)
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

// readSearch joins the file if it has changed. A file that cannot be read is ignored.
func (s *Schedule) readSearch() {
	// Most searches read no more than this: the file changes only with failures and waits.
	info, err := s.store.statSearches()
	s.mu.Lock()
	changed := err == nil && s.isNew(info)
	s.mu.Unlock()
	var copies []scheduleState
	if changed {
		copies, _ = s.store.readClocks(s.store.origin.searchFile(), time.Now())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.search.looking = false
	for _, saved := range copies {
		s.search.seen = info
		s.meet(saved)
	}
}

// lookAtSharedSearches joins what other processes have written about searches. It does not
// wait. What the document lacks is written: it was lost, or came back as an old copy.
func (s *Schedule) lookAtSharedSearches() {
	shared := s.sharer()
	if shared == nil {
		return
	}
	raw, err := shared.Read(s.store.origin.searchFile())
	if err != nil {
		return
	}
	s.mu.Lock()
	busy := s.search.saving != nil
	news := !busy && (raw == nil || !bytes.Equal(raw, s.search.common))
	lacks := false
	if news {
		found, err := parseCommon(raw, shared)
		if err == nil {
			s.meet(found)
		}
		s.search.common = raw
		lacks = err != nil || found.Token == s.state.Token && found.Search.lacks(s.state.Search)
		news = err == nil
	}
	s.mu.Unlock()
	switch {
	case news: // the folder does not have it
		s.changeSearch(func(*asked) {}, func(error) {}) // the next change tries again
	case lacks:
		s.keepSearches()
	}
}

// SearchHold returns why no full hashes may be searched for now. It is safe for
// concurrent use.
func (s *Schedule) SearchHold() Hold {
	last := s.hand.sameServer()
	s.mu.Lock()
	hold := s.state.Search.held().hold()
	s.mu.Unlock()
	if last != nil {
		if other := last.SearchHold(); other.Until.After(hold.Until) {
			return other
		}
	}
	return hold
}

// searchAttempt returns the attempt of the clock of searches.
func (s *Schedule) searchAttempt() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state.Search.Attempt
}

// searchMayWait reports whether the last search failed or got a minimum wait: the
// next answer may well have one too.
func (s *Schedule) searchMayWait() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.state.Search.held()
	return c.Failures > 0 || c.Wait > 0
}

// searchWaits reports whether the success of a search that was sent at sent changes
// the clock.
func (s *Schedule) searchWaits(sent time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	together := !s.search.failed.IsZero() && sent.Before(s.search.failed)
	c := s.state.Search.held()
	return c.Failures > 0 && !together || c.Wait > 0 || c.Away.Tries > 0
}

// searchWait returns how long no search may be sent; not above 0: one may be.
func (s *Schedule) searchWait(now time.Time) time.Duration {
	last := s.hand.sameServer()
	s.mu.Lock()
	wait := s.state.Search.held().end().Sub(now)
	s.mu.Unlock()
	if last != nil {
		wait = max(wait, last.searchWait(now))
	}
	return wait
}

// turn returns how long no search may be sent, like searchWait, and for whom: the number of the
// asker, and a context in which to carries that one's key.
func (s *Schedule) turn(ctx context.Context, to lookup.Searcher, now time.Time) (_ context.Context, asker uint64, wait time.Duration) {
	last := s.hand.sameServer()
	s.mu.Lock()
	if keyed, ok := to.(Keyed); ok {
		ctx = keyed.Keep(ctx)
	}
	asker, wait = s.askers, s.state.Search.held().end().Sub(now)
	s.mu.Unlock()
	if last != nil {
		wait = max(wait, last.searchWait(now))
	}
	return ctx, asker, wait
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
