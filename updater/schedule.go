package updater

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// Schedule says when the server may be asked for what. It saves every change. It is
// safe for concurrent use. Make one with NewSchedule.
//
// The rules are pure functions of clocks, in clock.go, clockset.go and note.go. Schedule owns two
// documents: the schedule of fetches, which the one that may fetch writes, and the clock of searches,
// which all write. What passes from one Schedule to the next in a process is in handover.go.
type Schedule struct {
	store    *Store         // nil: kept in memory only
	random   func() float64 // uniform in [0, 1); tests replace it
	writer   string         // names the notes of this Schedule
	onlooker bool           // never writes the clock of searches, nor into a Shared; set before use
	hand     handover       // has a lock of its own

	mu       sync.Mutex // guards the rest; never held during disk access
	fetches  document[scheduleState]
	searches document[scheduleState]
	asker    string // see Origin.Asker
	token    string // see Origin.Token
	// A search that was sent under another number is not recorded.
	askers uint64 // counts changes of asker and token
	asks   uint64 // requests that were noted
	state  scheduleState
	owned  bool      // the schedule may be written
	kept   time.Time // when long waits were last looked at, see lasts
	// Of this process only, not saved: it finds searches that were under way together.
	failed time.Time // when a search failed last; zero: never
	// Of this process only, too: its first contact by searches, where the rules want one, see SearchRules.
	contact time.Time
}

// NewSchedule returns the schedule saved in store, or an empty one. If the saved
// schedule cannot be read, NewSchedule returns an error together with a Schedule that
// sends nothing for half an hour, and renames the file if it is damaged. If the clock of searches
// is damaged, it replaces that file, and sends no search for a quarter of an hour.
// With a nil store the schedule lives in memory.
func NewSchedule(store *Store) (*Schedule, error) {
	s := newSchedule(store)
	err := s.load(true)
	if errors.Is(err, errUnreadableSearches) {
		s.keepSearches() // instead of the damaged file: a restart must not wait once more
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
	s := &Schedule{store: store, random: rand.Float64, writer: newWriter(), hand: handover{baton: make(chan struct{}, 1), lists: make(map[string]List)}}
	s.state.Lists = make(map[string]ListClock)
	clocks := document[scheduleState]{mu: &s.mu, parse: parseSchedule, meet: s.meet}
	s.fetches, s.searches = clocks, clocks
	s.fetches.media, s.fetches.lacks, s.fetches.encode = s.fetchMedia, s.fetchesLacking, s.encodeFetches
	s.searches.media, s.searches.lacks, s.searches.encode = s.searchMedia, s.searchesLacking, s.encodeSearches
	s.kept = time.Now()
	if store != nil {
		s.asker, s.token = store.origin.Asker, store.origin.Token
	}
	return s
}

// sharer returns what the schedule shares its clocks through, or nil.
func (s *Schedule) sharer() Shared {
	if s.store == nil || s.onlooker {
		return nil
	}
	return s.store.shared
}

// fetchMedia returns where the schedule is written: by who may fetch. Others only add clocks to a
// Shared that has lost them, or never had them, and save what they take over from there.
func (s *Schedule) fetchMedia() []place {
	if s.store == nil {
		return nil
	}
	name, shared := s.store.origin.scheduleFile(), s.sharer()
	switch {
	case s.owned && shared != nil:
		return s.store.places(name, shared.Leased(), false)
	case s.owned:
		return s.store.folders(name)
	case shared == nil:
		return nil
	case s.store.locked():
		return s.store.places(name, shared, true)
	}
	return s.store.places(name, shared, true)[:1]
}

// encodeFetches returns the document of the schedule. The caller holds mu.
func (s *Schedule) encodeFetches(now time.Time, at moment) ([]byte, error) {
	state := s.state
	state.Search = asked{} // which has a document of its own
	return encodeSchedule(state, now, at)
}

// fetchesLacking reports whether a document does not have all clocks of fetches. The caller holds mu.
func (s *Schedule) fetchesLacking(found scheduleState) bool {
	// A version without notes will say what became of a request. Another token ends back-offs.
	return !found.Fetch.Asking && (found.Token == s.state.Token || found.Token == "") && found.lacks(s.state)
}

// load joins what is in the folder, since another process or engine may have written it. A file
// that cannot be read may have had a wait.
func (s *Schedule) load(setAside bool) error {
	if s.store == nil {
		return nil
	}
	now := time.Now()
	look := func(d *document[scheduleState], name string) error {
		all := s.store.folders(name)
		_, _, err := d.look(all[0], nil)
		_, _, _ = d.look(all[1], nil) // the spare one
		return err
	}
	err, searchErr := look(&s.fetches, s.store.origin.scheduleFile()), look(&s.searches, s.store.origin.searchFile())
	if setAside && errors.Is(err, ErrDamaged) {
		s.store.setAside(s.store.origin.scheduleFile())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.meet(scheduleState{}, inFolder) // at least this asks for it
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
func (s *Schedule) meet(other scheduleState, in placeKind) {
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
	if all := s.state.join(other); fits(all, in) {
		s.state = all
	}
	s.state.Others = pruned(s.state.Others, now)
}

// endAsking counts a request that is under way as failed. Versions without notes say so.
func (c *Clock) endAsking() {
	if c.Asking {
		c.Asking, c.Cause = false, "the process ended before the answer came"
	}
}

// look joins what the process that may fetch has written, and reports whether it has changed. A
// file or document that cannot be read now is for the next look. What is shared is saved in the
// folder, and what the shared document lacks is added: it was lost, or came back as an old copy.
func (s *Schedule) look() (changed bool) {
	if s.store == nil {
		return false
	}
	name, shared := s.store.origin.scheduleFile(), s.sharer()
	places := s.store.folders(name)
	if shared != nil {
		s.lookAtSharedSearches()
		places = s.store.places(name, shared, true)[:1]
	}
	lacks := false
	for _, p := range places {
		_, less, _ := s.fetches.look(p, func(found scheduleState) bool {
			if found.Fetch.Asking { // of a version without notes, which will say what became of it
				return false
			}
			// An answer may be written at the same time of a coarse clock.
			changed = changed || !found.Fetch.held().Asking
			return true
		})
		lacks = lacks || less
	}
	if shared != nil && (changed || lacks) {
		s.mu.Lock()
		w := s.fetches.save(nil) // after an error the next look or change tries again
		s.mu.Unlock()
		<-w.done
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
// under way. The error comes from saving. It is safe for concurrent use.
func (s *Schedule) Rekey(asker string, use func()) error {
	s.mu.Lock()
	use()
	s.asker = asker
	s.askers++
	s.state.askedBy(asker, time.Now())
	s.fetches.forget() // the new asker has documents of its own in a Shared
	s.searches.forget()
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
	loadErr = s.load(true)
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
	s.fetches.dirty = true
	w := s.fetches.save(nil)
	s.mu.Unlock()
	<-w.done
	return w.err
}

// keepEvery is how often a long wait is saved while it lasts.
const keepEvery = time.Hour

// lasts reports, once an hour, whether more than an hour of a wait is left, and of the one of searches.
func (s *Schedule) lasts(now time.Time) (any, searches bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now.Sub(s.kept) < keepEvery {
		return false, false
	}
	s.kept = now
	long := now.Add(keepEvery)
	return s.state.latest().After(long), s.state.Search.held().end().After(long)
}

// forward moves all clocks by the duration of a suspend: the monotonic clock, which
// they follow, stood still meanwhile. The file needs no change: its times are on the wall
// clock, which ran on. search is the clock of searches before the suspend: one that is another
// by now stays, since it may be of a search after the wake-up, and no wait ends early.
func (s *Schedule) forward(suspended time.Duration, search Clock) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.state.clone().Search
	s.state.move(func(t time.Time) time.Time { return t.Add(-suspended) })
	if now.held() != search {
		s.state.Search = now
	}
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

// dueNow returns the lists that may be fetched at now.
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
	return s.state.fetchHold(lists).told(time.Now())
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

// One access token follows another while the asker stays the same. Another API key is
// another asker, with clocks of its own: Rekey is for that.

// Renew continues with another access token, see Origin.Token. It ends the back-offs
// that the server caused by denying the last one (status 401 or 403). For the server the
// asker is the same, so minimum waits and other back-offs stay. use and the error are as in
// Rekey. It is safe for concurrent use.
func (s *Schedule) Renew(token string, use func()) error {
	s.mu.Lock()
	use()
	if s.token == token && s.state.Token == token {
		s.mu.Unlock()
		return nil
	}
	s.token = token
	s.askers++ // an answer that is still under way is about the last token
	search := s.state.Search.held()
	other := s.state.Token != token
	s.mu.Unlock()
	if other && (search.Denied || search.Asking) {
		s.changeSearch(func(a *asked) { // the change below reports any error
			*a, _ = a.answered(s.writer, a.Notes[s.writer].Number)
			a.Clock = a.renewed()
		}, func(error) {})
	}
	return s.change(func(state *scheduleState) { state.renewedBy(token) })
}

// renewedBy switches the state to another token, unless it is that one's already.
func (s *scheduleState) renewedBy(token string) {
	if token == "" || s.Token == token {
		return
	}
	// Clocks of other askers stay: the token says nothing about their keys.
	s.Token = token
	s.Fetch.Clock, s.Search.Clock = s.Fetch.renewed(), s.Search.renewed()
	s.change(slices.Collect(maps.Keys(s.Lists)), func(list *ListClock) { list.Clock = list.renewed() })
}

// renewed is the clock with a new token.
func (c Clock) renewed() Clock {
	if !c.Denied {
		return c
	}
	return Clock{NotBefore: c.Besides, Wait: c.Wait, Attempt: c.Attempt}
}
