package updater

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"
)

// The clocks of all that is asked for, and of all who ask. These are values without a lock or
// a file. Their maps are not copied with them: who keeps a state beyond the lock of its
// Schedule takes a clone.

// clockSet is all clocks of one asker.
type clockSet struct {
	// Fetches and searches have separate clocks: each is a method of its own ("Request
	// Frequency"). A list waits for Fetch and for its own clock.
	Fetch  asked                `json:"fetch"`  // of all fetches of lists
	Search asked                `json:"search"` // of searches for full hashes
	Lists  map[string]ListClock `json:"lists"`
}

// scheduleState is what the file of the schedule holds. It knows no lock and no file.
type scheduleState struct {
	moment        // when the file was written
	Asker  string `json:"asker,omitempty"` // owner of the clocks, see Origin
	Token  string `json:"token,omitempty"` // that the asker has, see Origin
	Advice advice `json:"advice,omitzero"` // files of earlier versions do not have it
	clockSet
	Others map[string]clockSet `json:"others,omitempty"` // of other askers, until their clocks end
}

// advice is what an Advised said last.
type advice struct {
	Origin string `json:"origin"` // whose words it is about: the folder may be given to another server
	Text   string `json:"text"`
}

// listDue returns when the list may be fetched: the later of its own time and the time of
// all fetches.
func (s *scheduleState) listDue(name string) time.Time {
	return latest(s.Fetch.held().end(), s.Lists[name].end())
}

// fetchHold returns why none of the lists may be fetched: of their holds, the one
// that ends first.
func (s *scheduleState) fetchHold(lists []string) (first Hold) {
	for i, name := range lists {
		hold := s.Fetch.held().hold()
		if own := s.Lists[name].hold(); own.Until.After(hold.Until) {
			hold = own
		}
		if i == 0 || hold.Until.Before(first.Until) {
			first = hold
		}
	}
	return first
}

// change changes the clocks of lists. Status shows them from then on, whatever comes of a fetch.
func (s *scheduleState) change(lists []string, alter func(*ListClock)) {
	for _, name := range lists {
		list := s.Lists[name]
		alter(&list)
		s.Lists[name] = list
	}
}

// maxOthers is how many askers are remembered besides the current one.
const maxOthers = 8

// askedBy switches the state to another asker, unless it is that asker's already. A
// back-off and a wait belong to the key and the endpoint that they were given to: a
// new asker starts without any, one that returns continues where it stopped. The age
// of a list, and whether it must be fetched in full, do not depend on the asker. A
// state without an asker comes from a version that did not store one.
func (s *scheduleState) askedBy(asker string, now time.Time) {
	if asker == "" || s.Asker == asker {
		return
	}
	if s.Asker == "" {
		s.Asker = asker
		return
	}
	last, next := s.clockSet, s.Others[asker]
	others := copied(s.Others)
	delete(others, asker)
	others[s.Asker] = last
	s.Others = pruned(others, now)
	lists := copied(next.Lists)
	for name, list := range last.Lists {
		own := lists[name]
		own.Updated, own.Rejected = list.Updated, list.Rejected
		lists[name] = own
	}
	next.Lists = lists
	s.Asker, s.clockSet = asker, next
}

// pruned removes clocks that have ended at now, and keeps at most maxOthers, those
// that end last. It changes others and returns it.
func pruned(others map[string]clockSet, now time.Time) map[string]clockSet {
	maps.DeleteFunc(others, func(_ string, c clockSet) bool { return !c.latest().After(now) })
	names := slices.SortedFunc(maps.Keys(others), func(a, b string) int { return others[b].latest().Compare(others[a].latest()) })
	for _, name := range names[min(len(names), maxOthers):] {
		delete(others, name)
	}
	return others
}

// latest returns when the last of the clocks ends.
func (c clockSet) latest() time.Time {
	last := latest(c.Fetch.held().end(), c.Search.held().end())
	for _, list := range c.Lists {
		last = latest(last, list.end())
	}
	return last
}

// move applies by to the end of every clock, other askers' included, unless it is zero. It
// changes the maps of s.
func (s *scheduleState) move(by func(time.Time) time.Time) {
	unlessZero := func(t time.Time) time.Time {
		if t.IsZero() {
			return t
		}
		return by(t)
	}
	s.clockSet.move(unlessZero)
	for name, c := range s.Others {
		c.move(unlessZero)
		s.Others[name] = c
	}
}

// move changes all times before which no request may be sent.
func (c *clockSet) move(by func(time.Time) time.Time) {
	for _, clock := range []*asked{&c.Fetch, &c.Search} {
		clock.NotBefore, clock.Away.Until, clock.Besides = by(clock.NotBefore), by(clock.Away.Until), by(clock.Besides)
		for writer, n := range clock.Notes {
			n.Until = by(n.Until)
			clock.Notes[writer] = n
		}
	}
	for name, list := range c.Lists {
		list.NotBefore, list.Besides = by(list.NotBefore), by(list.Besides)
		c.Lists[name] = list
	}
}

// clone returns a copy that shares no map with s.
func (s scheduleState) clone() scheduleState {
	s.clockSet = s.clockSet.clone()
	s.Others = maps.Clone(s.Others)
	for name, c := range s.Others {
		s.Others[name] = c.clone()
	}
	return s
}

// clone returns a copy that shares no map with c.
func (c clockSet) clone() clockSet {
	c.Lists, c.Fetch.Notes, c.Search.Notes = maps.Clone(c.Lists), maps.Clone(c.Fetch.Notes), maps.Clone(c.Search.Notes)
	return c
}

// each applies change to the clocks of all askers.
func (s *scheduleState) each(change func(asked) asked) {
	s.Fetch, s.Search = change(s.Fetch), change(s.Search)
	for name, c := range s.Others {
		c.Fetch, c.Search = change(c.Fetch), change(c.Search)
		s.Others[name] = c
	}
}

// The form of a document of clocks, and the move of its times between two clocks. It has a checksum: a
// damaged wait could be too short, or last for years.

// savedSchedule is the form of the file.
type savedSchedule struct {
	SHA256   string          `json:"sha256"` // of the bytes of Schedule
	Schedule json.RawMessage `json:"schedule"`
}

// encodeSchedule returns the content of the file for a state. In memory, times follow
// the monotonic clock of now. The file gets them relative to the wall clock, which may
// have been set since: it shows at.Saved at now.
func encodeSchedule(state scheduleState, now time.Time, at moment) ([]byte, error) {
	state = state.clone()
	state.moment = at
	state.move(func(t time.Time) time.Time { return at.Saved.Add(t.Sub(now)) })
	state.each(asked.stored)
	raw, err := json.Marshal(state)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(raw)
	return fmt.Appendf(nil, `{"sha256":"%x","schedule":%s}`, sum, raw), nil
}

// parseSchedule reads the content of the file and moves its times onto the clock of
// now, which includes a monotonic reading: setting the wall clock forward later must
// not cut a wait short. At is the same moment as now. If the wall clock was set since the
// file was saved, the waits are kept, see moment.
func parseSchedule(raw []byte, now time.Time, at moment) (state scheduleState, err error) {
	if state, err = savedState(raw); err != nil {
		return scheduleState{}, err
	}
	state.each(asked.restored)
	from := state.unset(at)
	state.move(func(t time.Time) time.Time { return now.Add(t.Sub(from)) })
	return state, nil
}

// savedState reads the content of the file with its times as they were saved.
func savedState(raw []byte) (state scheduleState, err error) {
	var saved savedSchedule
	if err := json.Unmarshal(raw, &saved); err != nil {
		return scheduleState{}, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	if sum := sha256.Sum256(saved.Schedule); saved.SHA256 != hex.EncodeToString(sum[:]) {
		return scheduleState{}, fmt.Errorf("%w: wrong checksum", ErrDamaged)
	}
	if err := json.Unmarshal(saved.Schedule, &state); err != nil {
		return scheduleState{}, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	return state, nil
}

// A moment is one point in time by the clocks that outlive a process. Each file with waits has
// the moment at which it was saved: so the next process knows how much of the waits has passed.
// It is a value.
//
// The JSON names are part of the format of the files. A version that knows no boots reads the
// wall clock only, and what it saves has no boot.
type moment struct {
	Saved time.Time `json:"saved"` // by the wall clock, which may be set
	// Boot and SinceBoot are by a clock that cannot be set, see thisBoot.
	Boot      string        `json:"boot,omitempty"` // "": not known
	SinceBoot time.Duration `json:"since_boot,omitzero"`
}

// unset returns what the wall clock would show at now if it had not been set since m. Where the
// clocks do not agree, it is the earliest time that one of them allows, and never before m: a
// wait may be kept for too long, but at most as long as was left of it at m. So it does no
// harm if the clock since boot is wrong, as in a container with an offset of its own
// (time_namespaces(7)), or in two machines that went on from one snapshot.
func (m moment) unset(now moment) time.Time {
	wall := now.Saved
	if sinceM := now.SinceBoot - m.SinceBoot; m.Boot != "" && m.Boot == now.Boot && sinceM >= 0 {
		if t := m.Saved.Add(sinceM); t.Before(wall) {
			wall = t
		}
	}
	if wall.Before(m.Saved) {
		return m.Saved
	}
	return wall
}

// after reports whether m is later than other. Between two boots it believes the wall clock.
func (m moment) after(other moment) bool {
	if m.Boot != "" && m.Boot == other.Boot {
		return m.SinceBoot > other.SinceBoot
	}
	return m.Saved.After(other.Saved)
}
