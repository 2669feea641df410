package updater

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"
)

// A Clock says when something may be asked of the server again.
type Clock struct {
	NotBefore time.Time     `json:"not_before"`
	Failures  int           `json:"failures"`         // in a row; 0 after a success
	Wait      time.Duration `json:"wait"`             // the server's last minimum wait
	Asking    bool          `json:"asking,omitempty"` // a fetch is under way, of which it is not known yet whether it fails
	Cause     string        `json:"cause,omitempty"`  // of the last failure, without the key; "": none
	Failed    time.Time     `json:"failed,omitzero"`  // when the last failure was; zero: none
}

// failed is the clock after one more failure. A server that asks for a longer
// wait gets it.
func (c Clock) failed(now time.Time, wait, retryAfter time.Duration) Clock {
	return Clock{NotBefore: now.Add(max(wait, retryAfter)), Failures: c.Failures + 1, Wait: c.Wait}
}

// because is the clock with what the failure at now was.
func (c Clock) because(now time.Time, err error) Clock {
	c.Cause, c.Failed = causeOf(err), now
	return c
}

// ListClock is the clock of one list.
type ListClock struct {
	Clock
	AtOnce   int       `json:"at_once"`         // fetches in a row for which no wait was given
	Rejected bool      `json:"rejected"`        // the last answer failed its checks: the next must be full
	Updated  time.Time `json:"updated"`         // last success; zero: never
	Alone    bool      `json:"alone,omitempty"` // refused, by itself or in a batch, and not fetched since: it is asked for by itself
}

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

// scheduleState is what is on disk.
type scheduleState struct {
	Saved time.Time `json:"saved"`
	Asker string    `json:"asker,omitempty"` // whose the clocks are, see Origin
	clockSet
	Others map[string]clockSet `json:"others,omitempty"` // of other askers, as long as they run
}

// clockSet is all clocks of one asker.
type clockSet struct {
	Fetch  Clock                `json:"fetch"`  // of all list updates
	Search Clock                `json:"search"` // of full-hash searches
	Lists  map[string]ListClock `json:"lists"`
}

// Floors for lists to which the server gave no minimum wait. It then asks for
// the next fetch at once, which makes sense while a size limit splits an update
// into steps; these floors hold off a loop with a server that never says a
// wait.
const (
	unchangedFloor = 30 * time.Minute
	changedFloor   = time.Minute
	maxAtOnce      = 32
	waitFloor      = time.Second // for a wait that is given and is next to none
)

// next is the clock after a success at now, with the minimum wait that the
// server gave (0: none) and whether the answer changed the list.
func (c ListClock) next(now time.Time, wait time.Duration, changed bool) ListClock {
	n := ListClock{Clock: Clock{Wait: wait}, Updated: now}
	switch {
	case wait > 0:
		n.NotBefore = now.Add(max(wait, waitFloor))
	case !changed:
		n.NotBefore = now.Add(unchangedFloor)
	case c.AtOnce < maxAtOnce:
		n.NotBefore, n.AtOnce = now, c.AtOnce+1
	default:
		n.NotBefore, n.AtOnce = now.Add(changedFloor), c.AtOnce
	}
	return n
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

// listDue is the later of the list's own time and that of all fetches.
func (s *scheduleState) listDue(name string) time.Time {
	if t := s.Lists[name].NotBefore; t.After(s.Fetch.NotBefore) {
		return t
	}
	return s.Fetch.NotBefore
}
