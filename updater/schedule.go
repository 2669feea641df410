package updater

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// Schedule is when the server may be asked for what. It is saved at each
// change. It is safe for concurrent use; use NewSchedule.
type Schedule struct {
	store  *Store         // nil: kept in memory only
	random func() float64 // uniform in [0, 1); replaced where a test repeats itself
	// turn is held by the Updater that may ask. Schedules that follow one another
	// have one turn together.
	turn chan struct{}

	fileMu  sync.Mutex // held while the file is written, which may take long
	written uint64     // number of the change that is in the file; guarded by fileMu

	mu           sync.Mutex
	asker        string // see Origin.Asker
	askers       uint64 // counts changes of asker
	state        scheduleState
	changes      uint64
	owned        bool            // the file may be written
	last         *Schedule       // that this one follows; nil: none, or it has been caught up with
	lender       *Schedule       // whose lists are in force until there are others; nil: nobody's
	succeeds     bool            // last is of the predecessor: its clocks are of other requests
	continues    bool            // see Origin
	over         bool            // the lists have been forgotten
	lists        map[string]List // what the Updater holds, for one that follows
	searchFailed time.Time       // when a search failed last
	search       searchClock     // what is done to state.Search
	onlooker     bool            // nothing is written

	saves sync.WaitGroup // of goroutines that write and read the clock of searches
}

// NewSchedule returns the schedule saved in store, or an empty one. A saved
// schedule that cannot be read is set aside; the error says so, and the
// schedule returned is a cautious one, that asks nothing for half an hour. With
// a nil store the schedule lives in memory.
func NewSchedule(store *Store) (*Schedule, error) {
	s := newSchedule(store)
	return s, s.reload(true)
}

// ReadSchedule is NewSchedule for onlookers: a damaged file stays where it is.
func ReadSchedule(store *Store) (*Schedule, error) {
	s := newSchedule(store)
	s.onlooker = true
	return s, s.reload(false)
}

func newSchedule(store *Store) *Schedule {
	s := &Schedule{store: store, random: rand.Float64, turn: make(chan struct{}, 1), lists: make(map[string]List)}
	if store != nil {
		s.asker = store.origin.Asker
	}
	return s
}

// reload reads the file again: another process or engine may have written it.
// What is in memory stays if there is no file: it may be the caution that
// follows from a file that has been set aside.
func (s *Schedule) reload(setAside bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	state := s.state
	var err error
	if s.store != nil {
		saved, readErr := s.store.readSchedule(now)
		if err = readErr; err != nil {
			state = scheduleState{}
			if setAside {
				s.store.setAside(s.store.origin.scheduleFile())
			}
			err = fmt.Errorf("the schedule is unreadable, waiting %s before the first request: %w", unchangedFloor, err)
			state.Fetch = Clock{NotBefore: now.Add(unchangedFloor)}.because(now, errUnreadable)
		} else if saved != nil {
			state = *saved
		}
	}
	if state.Lists == nil {
		state.Lists = make(map[string]ListClock)
	}
	state.askedBy(s.asker, now)
	s.state = state
	s.reloadSearch(now)
	return err
}

var errUnreadable = errors.New("the saved schedule was unreadable")

// look reads the file of whoever owns the folder, and reports whether it has
// changed. What cannot be read now is looked at the next time.
func (s *Schedule) look() (changed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.store == nil {
		return false
	}
	saved, err := s.store.readSchedule(time.Now())
	if err != nil || saved == nil || saved.Fetch.Asking || saved.Asker != s.state.Asker || saved.Saved.Equal(s.state.Saved) {
		return false
	}
	if saved.Lists == nil {
		saved.Lists = make(map[string]ListClock)
	}
	saved.Search = s.state.Search // which has a file of its own
	s.state = *saved
	return true
}

// askerNow returns a number that changes with the asker.
func (s *Schedule) askerNow() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.askers
}

// Rekey goes on with another key, see Origin.Asker. The clocks of the old one
// are kept for as long as they run, in case it comes back.
func (s *Schedule) Rekey(asker string) error {
	s.mu.Lock()
	s.asker = asker
	s.askers++
	s.mu.Unlock()
	return s.change(func(state *scheduleState) { state.askedBy(asker, time.Now()) })
}

// own reads the file again, lets this Schedule write it from now on, and does so:
// what was in memory only, or is later there, must survive a crash too. The
// caller holds the lock of the store.
func (s *Schedule) own() (loadErr, saveErr error) {
	s.mu.Lock()
	inMemory := s.state.clone()
	s.mu.Unlock()
	loadErr = s.reload(true)
	s.mu.Lock()
	s.owned = true
	if fetch := &s.state.Fetch; fetch.Asking { // by a process that does not hold the lock any more: it has failed
		fetch.Asking, fetch.Cause = false, "the process ended before the answer came"
	}
	s.mu.Unlock()
	saveErr = s.change(func(state *scheduleState) { state.adopt(inMemory) })
	s.keepSearch()
	return loadErr, saveErr
}

// disown ends what own began.
func (s *Schedule) disown() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.owned = false
}

// change alters the schedule and saves it. The caller does not hold mu. What is
// in memory changes at once, however long the disk takes.
func (s *Schedule) change(alter func(*scheduleState)) error {
	s.mu.Lock()
	alter(&s.state)
	s.changes++
	number, save := s.changes, s.store != nil && s.owned
	state := s.state
	state.Search = Clock{} // which has a file of its own
	raw, err := encodeSchedule(state, time.Now())
	s.mu.Unlock()
	if !save {
		return nil
	}
	if err != nil {
		return fmt.Errorf("saving the schedule: %w", err)
	}
	s.fileMu.Lock()
	defer s.fileMu.Unlock()
	if number < s.written { // a later change has been faster
		return nil
	}
	if err := s.store.writeSchedule(append(raw, '\n')); err != nil {
		return err
	}
	s.written = number
	return nil
}

// forward moves all waits, none of which has gone on while the machine was
// suspended, by the time that the suspend took.
func (s *Schedule) forward(suspended time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	earlier := func(t time.Time) time.Time {
		if t.IsZero() {
			return t
		}
		return t.Add(-suspended)
	}
	s.state.move(earlier)
}

// list returns the clock of a list.
func (s *Schedule) list(name string) ListClock {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state.Lists[name]
}

// due returns when the first of the lists may be fetched.
func (s *Schedule) due(names []string) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	var first time.Time
	for i, name := range names {
		if t := s.state.listDue(name); i == 0 || t.Before(first) {
			first = t
		}
	}
	return first
}

// dueNow returns those of the lists that may be fetched at now.
func (s *Schedule) dueNow(names []string, now time.Time) (due []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, name := range names {
		if !now.Before(s.state.listDue(name)) {
			due = append(due, name)
		}
	}
	return due
}

// together returns those of the lists, which are all due, that the next request is
// for: one of those that must be asked for by themselves, of which the one that
// failed longest ago is first, and then the others. If the requests before failed
// the others come first, so that they get their turn beside a list that fails every
// request for it.
func (s *Schedule) together(lists []string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var batch, alone []string
	for _, name := range lists {
		if s.state.Lists[name].Alone {
			alone = append(alone, name)
		} else {
			batch = append(batch, name)
		}
	}
	if len(batch) == 0 || len(alone) > 0 && s.state.Fetch.Failures < 2 {
		return []string{slices.MinFunc(alone, func(a, b string) int { return s.state.Lists[a].Failed.Compare(s.state.Lists[b].Failed) })}
	}
	return batch
}

// FetchHold returns why none of the lists may be fetched now: the hold that ends
// first, of those lists. It is safe for concurrent use.
func (s *Schedule) FetchHold(lists []string) Hold {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state.fetchHold(lists)
}
