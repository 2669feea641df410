package updater

import (
	"context"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

// The clock of searches is a document of its own: every process with the folder
// searches, not only the one that fetches lists, and if the server tells one of them
// to wait, all wait.

// searchMedia returns where the clock of searches is.
func (s *Schedule) searchMedia() []place {
	if s.store == nil || s.onlooker {
		return nil
	}
	return s.store.places(s.store.origin.searchFile(), s.store.shared, false)
}

// encodeSearches returns the document of searches. The caller holds mu.
func (s *Schedule) encodeSearches(now time.Time, at moment) ([]byte, error) {
	state := scheduleState{Asker: s.state.Asker, Token: s.state.Token, clockSet: clockSet{Search: s.state.Search}, Others: make(map[string]clockSet)}
	for asker, c := range s.state.Others {
		state.Others[asker] = clockSet{Search: c.Search}
	}
	return encodeSchedule(state, now, at)
}

// searchesLacking reports whether a document does not have all of the clock of searches. The caller
// holds mu.
func (s *Schedule) searchesLacking(found scheduleState) bool {
	return (found.Token == s.state.Token || found.Token == "") && found.Search.lacks(s.state.Search)
}

// changeSearch alters the clock of searches: at once in memory, and soon on the media. alter is called
// with mu held. failed receives the error if the file cannot be written.
func (s *Schedule) changeSearch(alter func(*asked), failed func(error)) *saving {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.alterSearch(alter)
	s.searches.dirty = true
	return s.searches.save(func(_ bool, err error) {
		if err != nil {
			failed(err)
		}
	})
}

// alterSearch applies a change in memory. The caller holds mu.
func (s *Schedule) alterSearch(alter func(*asked)) {
	before := s.state.Search.Clock
	alter(&s.state.Search)
	s.state.Search.Clock = s.state.Search.after(before, time.Now())
}

// keepSearches saves a wait: it may come from another folder, or have been in memory only.
func (s *Schedule) keepSearches() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.state.Search.held().end().After(time.Now()) {
		s.searches.save(nil) // saving the schedule, just before, has reported any error
	}
}

// Flush waits until all changes of searches are on disk, or could not be saved. It is
// safe for concurrent use.
func (s *Schedule) Flush() { s.searches.flush() }

// lookAtSearches reads what other processes have saved about searches. If the disk
// hangs, the search continues without it.
func (s *Schedule) lookAtSearches() {
	if s.store != nil {
		s.searches.lookBriefly(s.store.folders(s.store.origin.searchFile()))
		s.lookAtSharedSearches()
	}
}

// lookAtSharedSearches joins what other processes have written about searches. It does not
// wait. What is shared is saved in the folder, and what the shared document lacks is added: it was
// lost, or came back as an old copy.
func (s *Schedule) lookAtSharedSearches() {
	shared := s.sharer()
	if shared == nil {
		return
	}
	if news, lacks, _ := s.searches.look(s.store.places(s.store.origin.searchFile(), shared, false)[0], nil); news || lacks {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.searches.save(nil) // after an error the next change tries again
	}
}

// SearchHold returns why no full hashes may be searched for now. It is safe for
// concurrent use.
func (s *Schedule) SearchHold() Hold { return s.heldSearches().hold().told(time.Now()) }

// heldSearches returns the clock of searches, or the one the schedule had before, if it ends later: that
// one may still be in use, and be told to wait.
func (s *Schedule) heldSearches() Clock {
	last, own := s.hand.sameServer(), s.searchClock()
	if last != nil {
		if other := last.heldSearches(); other.end().After(own.end()) {
			return other
		}
	}
	return own
}

// searchClock returns the own clock of searches.
func (s *Schedule) searchClock() Clock {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state.Search.held()
}

// mayWait reports whether the last request failed or got a minimum wait: the next answer may well
// have one too.
func (c Clock) mayWait() bool { return c.Failures > 0 || c.Wait > 0 }

// searchWaits reports whether the success of a search that was sent at sent changes
// the clock.
func (s *Schedule) searchWaits(sent time.Time) bool {
	c, together := s.searchClock(), s.failedTogether(sent, time.Time{}, nil)
	return c.Failures > 0 && !together || c.Wait > 0 || c.Away.Tries > 0
}

// searchWait returns how long no search may be sent; not above 0: one may be.
func (s *Schedule) searchWait(now time.Time) time.Duration { return s.heldSearches().end().Sub(now) }

// contactOf returns who asks, and the first contact of searches: none is sent before.
func (s *Schedule) contactOf() (asker string, contact time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asker, s.contact
}

func (s *Schedule) setContact(t time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.contact = t
}

// turn returns how long no search may be sent, like searchWait, and for whom: the number of the
// asker, and a context in which to carries that one's key.
func (s *Schedule) turn(ctx context.Context, to lookup.Searcher, now time.Time) (_ context.Context, asker uint64, wait time.Duration) {
	wait = s.searchWait(now)
	s.mu.Lock()
	defer s.mu.Unlock()
	if keyed, ok := to.(Keyed); ok {
		ctx = keyed.Keep(ctx)
	}
	return ctx, s.askers, max(wait, s.state.Search.held().end().Sub(now))
}

// failedTogether reports whether a search that was sent at sent was under way when
// another one failed. If not, and it failed itself, its failure is noted.
func (s *Schedule) failedTogether(sent, now time.Time, err error) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	together := !s.failed.IsZero() && sent.Before(s.failed)
	if err != nil && !together {
		s.failed = now
	}
	return together
}
