package updater

import (
	"bytes"
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
// The rules are pure functions of clocks, in clock.go, clockset.go and note.go. Schedule owns two
// documents, see Medium: the schedule of fetches, which the one that may fetch writes, and the
// clock of searches, which all write. What passes from one Schedule to the next in a process is in
// handover.go.
type Schedule struct {
	store    *Store         // nil: kept in memory only
	random   func() float64 // uniform in [0, 1); tests replace it
	writer   string         // names the notes of this Schedule
	onlooker bool           // never writes the file of searches; set before use
	hand     handover       // has a lock of its own

	// mu may be locked under fileMu, never the other way round: every search needs mu, and must
	// not wait for a write that hangs.
	fileMu  sync.Mutex // held while the file is written, which may take long
	written []byte     // what was written to it last; guarded by fileMu

	mu    sync.Mutex // guards the rest; never held during disk access
	asker string     // see Origin.Asker
	token string     // see Origin.Token
	// A search that was sent under another number is not recorded.
	askers uint64 // counts changes of asker and token
	asks   uint64 // requests that were noted
	state  scheduleState
	saved  time.Time   // when the file of the schedule was written, as last read
	owned  bool        // the file may be written
	search searchClock // state.Search on its way to and from its document

	common    []byte // the document in a Shared, as last read or written; nil: there was none
	commonErr error  // of the last attempt to write it
}

// NewSchedule returns the schedule saved in store, or an empty one. If the saved
// schedule cannot be read, NewSchedule renames its file and returns an error
// together with a Schedule that sends nothing for half an hour. If the clock of searches
// cannot be read, it replaces that file, and sends no search for a quarter of an hour.
// With a nil store the schedule lives in memory.
func NewSchedule(store *Store) (*Schedule, error) {
	s := newSchedule(store)
	err := s.load(true)
	if errors.Is(err, errUnreadableSearches) {
		s.keepSearches() // in place of the damaged file: a restart must not wait once more
	}
	return s, err
}

// ReadSchedule is NewSchedule for programs that only look: it changes no file.
func ReadSchedule(store *Store) (*Schedule, error) {
	s := newSchedule(store)
	s.onlooker = true
	return s, s.load(false)
}

func newSchedule(store *Store) *Schedule {
	s := &Schedule{store: store, random: rand.Float64, writer: newWriter(), hand: newHandover()}
	s.state.Lists = make(map[string]ListClock)
	if store != nil {
		s.asker, s.token = store.origin.Asker, store.origin.Token
	}
	return s
}

// load joins what is in the folder, since another process or engine may have written it. A file
// that cannot be read may have had a wait.
func (s *Schedule) load(setAside bool) error {
	if s.store == nil {
		return nil
	}
	now := time.Now()
	copies, err := s.store.readClocks(s.store.origin.scheduleFile(), now)
	searches, searchErr := s.store.readClocks(s.store.origin.searchFile(), now)
	if err != nil && setAside {
		s.store.setAside(s.store.origin.scheduleFile())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, saved := range copies {
		if len(searches) > 0 {
			saved.Search = asked{} // where older versions kept it
		}
		s.meet(saved)
		s.saved = latest(s.saved, saved.Saved)
	}
	for _, saved := range searches {
		s.meet(saved)
	}
	s.meet(scheduleState{}) // at least this asks for it
	if err != nil {
		err = fmt.Errorf("the schedule is unreadable, waiting %s before the first request: %w", unchangedFloor, err)
		s.state.Fetch.Clock = s.state.Fetch.unreadable(now, unchangedFloor, errUnreadable)
	}
	if errors.Is(searchErr, ErrDamaged) {
		searchErr = fmt.Errorf("%w, waiting %s before the first search: %w", errUnreadableSearches, backoffUnit, searchErr)
		s.alterSearch(func(a *asked) { a.Clock = a.unreadable(now, backoffUnit, errUnreadableSearches) })
		return errors.Join(err, searchErr)
	}
	return err
}

var (
	errUnreadable         = errors.New("the saved schedule was unreadable")
	errUnreadableSearches = errors.New("the saved clock of searches is unreadable")
)

// unreadable is the clock after its file could not be read at now.
func (c Clock) unreadable(now time.Time, wait time.Duration, err error) Clock {
	if until := now.Add(wait); c.NotBefore.Before(until) {
		return Clock{NotBefore: until}.because(now, err).after(c, now)
	}
	return c
}

// meet joins what a medium, or another Schedule, knows. The caller holds mu.
func (s *Schedule) meet(other scheduleState) {
	now := time.Now()
	// The asker first: a new token ends back-offs of this asker, not of the one before.
	for _, state := range []*scheduleState{&s.state, &other} {
		if state.Lists == nil {
			state.Lists = make(map[string]ListClock)
		}
		state.askedBy(s.asker, now)
		state.renewedBy(s.token)
	}
	if s.asker == "" && s.state.Asker != "" && other.Asker != s.state.Asker { // who only looks has no key
		other.askedBy(s.state.Asker, now)
	}
	other.Fetch.endAsking()
	other.Search.endAsking()
	search := other.Search
	other.Search = s.state.Search
	s.state = s.state.join(other)
	s.state.Others = pruned(s.state.Others, now)
	s.meetSearch(search)
}

// endAsking counts a request that is under way as failed. Versions without notes say so.
func (c *Clock) endAsking() {
	if c.Asking {
		c.Asking, c.Cause = false, "the process ended before the answer came"
	}
}

// look joins what the process that may fetch has written, and reports whether it has changed. A
// file or document that cannot be read now is for the next look.
func (s *Schedule) look() (changed bool) {
	if s.sharer() != nil {
		return s.lookShared()
	}
	if s.store == nil {
		return false
	}
	copies, _ := s.store.readClocks(s.store.origin.scheduleFile(), time.Now())
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, saved := range copies {
		if saved.Asker != s.state.Asker || saved.Saved.Equal(s.saved) || saved.Fetch.Asking {
			continue
		}
		if !saved.Fetch.held().Asking { // its answer may be written at the same time of a coarse clock
			s.saved, changed = saved.Saved, true
		}
		saved.Search = asked{} // which has a file of its own
		s.meet(saved)
	}
	return changed
}

// askerNow returns a number that changes with the asker.
func (s *Schedule) askerNow() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.askers
}

// Rekey continues with another key, see Origin.Asker. The clocks of the old key are
// kept until they end, in case the key comes back. use puts the key in use, in one step with its
// clocks for searches that a Keyed sends; it must not block, nor call s. No fetch may be
// under way. The error is that of saving. It is safe for concurrent use.
func (s *Schedule) Rekey(asker string, use func()) error {
	s.mu.Lock()
	use()
	s.asker = asker
	s.askers++
	s.state.askedBy(asker, time.Now())
	s.search.pending = nil               // the clock of the old key has them
	s.common, s.search.common = nil, nil // the new asker has documents of its own
	s.mu.Unlock()
	if shared := s.sharer(); shared != nil {
		shared.Rekey(asker)
	}
	return s.change(func(*scheduleState) {})
}

// own joins the file again and makes s its writer until disown. It saves at once,
// so that clocks that were in memory only, or end later there, survive a crash. The
// caller holds the lock of the store.
func (s *Schedule) own() (loadErr, saveErr error) {
	loadErr = errors.Join(s.load(true), s.meetCommon())
	s.mu.Lock()
	s.owned = true
	s.mu.Unlock()
	saveErr = s.change(func(state *scheduleState) { // the asking process has lost the lock, so it died: the fetch failed
		state.Fetch = state.Fetch.settled(time.Now(), func(note) bool { return true })
	})
	s.keepSearches()
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
	before, now := s.state.clone(), time.Now()
	alter(&s.state)
	if s.state.Asker == before.Asker {
		s.state.Fetch.Clock = s.state.Fetch.after(before.Fetch.Clock, now)
		for name, list := range s.state.Lists {
			list.Clock = list.after(before.Lists[name].Clock, now)
			s.state.Lists[name] = list
		}
	}
	s.mu.Unlock()
	_ = s.share() // the next change tries again, and the folder has it
	return s.write()
}

// write brings the file of the schedule up to date, if this process may write it.
func (s *Schedule) write() error {
	s.mu.Lock()
	save := s.store != nil && (s.owned || s.sharer() != nil && s.store.locked())
	s.mu.Unlock()
	if !save {
		return nil
	}
	s.fileMu.Lock()
	defer s.fileMu.Unlock()
	_, err := s.store.swap(s.store.origin.scheduleFile(), func(raw []byte) ([]byte, error) {
		now := time.Now()
		at := s.store.moment(now)
		found, err := parseSchedule(raw, now, at)
		s.mu.Lock()
		defer s.mu.Unlock()
		if err == nil && !bytes.Equal(raw, s.written) {
			found.Search = asked{}
			s.meet(found)
		}
		next, err := s.encode(now, at)
		if err != nil {
			return nil, fmt.Errorf("saving the schedule: %w", err)
		}
		s.written = append(next, '\n')
		return s.written, nil
	})
	return err
}

// encode returns the document of the schedule. The caller holds mu.
func (s *Schedule) encode(now time.Time, at moment) ([]byte, error) {
	state := s.state
	state.Search = asked{} // which has a document of its own
	return encodeSchedule(state, now, at)
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
	base := clockSet{Search: s.search.base}
	base.move(earlier)
	s.search.base = base.Search
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
	if len(batch) == 0 || len(alone) > 0 && s.state.Fetch.held().Failures < 2 {
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
