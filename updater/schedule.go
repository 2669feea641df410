package updater

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// Schedule says when the server may be asked for what. It saves every change. It is
// safe for concurrent use. Make one with NewSchedule.
//
// The rules are pure functions of clocks, in clock.go and clockset.go. Schedule adds
// a lock and a file. What passes from one Schedule to the next is in handover.go.
type Schedule struct {
	store    *Store         // nil: kept in memory only
	random   func() float64 // uniform in [0, 1); tests replace it
	onlooker bool           // never writes the file of searches; set before use
	hand     handover       // has a lock of its own

	// fileMu and mu are never held together: every search needs mu, and must not wait for a
	// write that hangs.
	fileMu  sync.Mutex // held while the file is written, which may take long
	written uint64     // number of the change that is in the file; guarded by fileMu

	mu    sync.Mutex // guards the rest; never held during disk access but in reload and look
	asker string     // see Origin.Asker
	token string     // see Origin.Token
	// A search that was sent under another number is not recorded.
	askers uint64 // counts changes of asker and token
	state  scheduleState
	// Two writers may finish in the wrong order. The number shows which state is newer.
	changes uint64      // counts changes of state
	owned   bool        // the file may be written
	search  searchClock // state.Search on its way to and from its file
	common  common      // the document of the schedule in a Shared
}

// NewSchedule returns the schedule saved in store, or an empty one. If the saved
// schedule cannot be read, NewSchedule renames its file and returns an error
// together with a Schedule that sends nothing for half an hour. If the clock of searches
// cannot be read, it replaces that file, and sends no search for a quarter of an hour.
// With a nil store the schedule lives in memory.
func NewSchedule(store *Store) (*Schedule, error) {
	s := newSchedule(store)
	err := s.reload(true)
	if errors.Is(err, errUnreadableSearches) {
		s.keepSearch() // in place of the damaged file: a restart must not wait once more
	}
	return s, err
}

// ReadSchedule is NewSchedule for programs that only look: it changes no file.
func ReadSchedule(store *Store) (*Schedule, error) {
	s := newSchedule(store)
	s.onlooker = true
	return s, s.reload(false)
}

func newSchedule(store *Store) *Schedule {
	s := &Schedule{store: store, random: rand.Float64, hand: newHandover()}
	if store != nil {
		s.asker, s.token = store.origin.Asker, store.origin.Token
	}
	return s
}

// reload reads the file again, since another process or engine may have written it.
// If there is no file the state in memory stays: it may be the half hour without
// requests that follows an unreadable file.
func (s *Schedule) reload(setAside bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	state := s.state
	var err error
	if s.store != nil {
		saved, readErr := s.store.readSchedule(now)
		if err = readErr; err != nil {
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
	// The asker first: a new token ends back-offs of this asker, not of the one before.
	state.askedBy(s.asker, now)
	state.renewedBy(s.token)
	held := s.searches()
	s.state = state
	return errors.Join(err, s.reloadSearch(held, now))
}

var errUnreadable = errors.New("the saved schedule was unreadable")

// look reads the file that the owner of the folder writes, and reports whether it
// has changed. If the file cannot be read now the next look will do.
func (s *Schedule) look() (changed bool) {
	if s.sharer() != nil {
		return s.lookShared()
	}
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

// Rekey continues with another key, see Origin.Asker. The clocks of the old key are
// kept until they end, in case the key comes back. The error is that of saving. It
// is safe for concurrent use.
func (s *Schedule) Rekey(asker string) error {
	s.mu.Lock()
	s.asker = asker
	s.askers++
	s.common, s.search.common, s.search.commonSaved = common{}, nil, time.Time{} // the new asker has documents of its own
	s.mu.Unlock()
	if shared := s.sharer(); shared != nil {
		shared.Rekey(asker)
	}
	return s.change(func(state *scheduleState) { state.askedBy(asker, time.Now()) })
}

// own reads the file again and makes s its writer until disown. It saves at once,
// so that clocks that were in memory only, or end later there, survive a crash. The
// caller holds the lock of the store.
func (s *Schedule) own() (loadErr, saveErr error) {
	s.mu.Lock()
	// Kept aside, because reload replaces the state in memory.
	inMemory := s.state.clone()
	s.mu.Unlock()
	loadErr = errors.Join(s.reload(true), s.reloadShared())
	s.mu.Lock()
	s.owned = true
	s.state.endRequest() // the asking process has lost the lock, so it died: the fetch failed
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

// change alters the schedule and saves it. The change in memory is immediate,
// however long the disk takes. The caller does not hold mu.
func (s *Schedule) change(alter func(*scheduleState)) error {
	s.mu.Lock()
	alter(&s.state)
	s.mu.Unlock()
	_ = s.share() // the next change tries again, and the folder has it
	s.mu.Lock()
	s.changes++
	number, save := s.changes, s.store != nil && s.owned
	state := s.state.clone()
	state.Search = Clock{} // which has a file of its own
	s.mu.Unlock()
	if !save {
		return nil
	}
	now := time.Now()
	raw, err := encodeSchedule(state, now, s.store.moment(now))
	if err != nil {
		return fmt.Errorf("saving the schedule: %w", err)
	}
	s.fileMu.Lock()
	defer s.fileMu.Unlock()
	if number < s.written { // a later change was written first
		return nil
	}
	if err := s.store.writeSchedule(append(raw, '\n')); err != nil {
		return err
	}
	s.written = number
	return nil
}

// forward moves all clocks by the duration of a suspend: the monotonic clock, which
// they follow, stood still meanwhile. The file needs no change: its times are on the wall
// clock, which ran on.
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

// together returns the lists of the next request, out of lists that are all due. A
// list that must be asked for alone comes first, the one that failed longest ago;
// then come the others, in one request. After two failures in a row the others come
// first: a list that fails each of its requests must not keep them waiting. If
// oneByOne is set every list must be asked for alone.
func (s *Schedule) together(lists []string, oneByOne bool) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var batch, alone []string
	for _, name := range lists {
		if oneByOne || s.state.Lists[name].Alone {
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

// FetchHold returns why none of the lists may be fetched now: of their holds, the
// one that ends first. It is safe for concurrent use.
func (s *Schedule) FetchHold(lists []string) Hold {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state.fetchHold(lists)
}

// Advisory returns what an Advised said last, as the schedule has it; "": nothing, or it is not
// known. It is safe for concurrent use.
func (s *Schedule) Advisory() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.state.Advice.Origin != s.origin() {
		return ""
	}
	return s.state.Advice.Text
}

// advise notes what an Advised says. The next change saves it.
func (s *Schedule) advise(source Source) {
	advised, ok := source.(Advised)
	if !ok {
		return
	}
	if text, known := advised.Advisory(); known {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.state.Advice = advice{s.origin(), text}
	}
}

// origin returns the name of the origin; "" without a store, where there is only one.
func (s *Schedule) origin() string {
	if s.store == nil {
		return ""
	}
	return s.store.origin.Name
}
