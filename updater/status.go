package updater

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Status is for programs that look at the folder of a running server. It needs no lock, since
// each file is replaced whole, and it trusts no file: it computes every checksum.

// ListStatus is the state of one list, in a folder or in the memory of a server. What a server
// does not know about its own lists is zero there: Origin, Version, Bytes and Checksum.
type ListStatus struct {
	Name    string
	Origin  string // the address of its server; "": no content
	Version []byte // as the server sent it; nil: no content
	Entries int
	Widths  []int // bytes of an entry, each width that occurs; for an empty list the one in its name
	Bytes   int   // size of the entries in memory

	// Checksum is the SHA-256 of all entries, computed from the file. It is zero unless
	// it equals the one that the server sent.
	Checksum [sha256.Size]byte

	// Err says why the file cannot be used: fs.ErrNotExist if there is none,
	// ErrDamaged, ErrChecksum, or an error of reading. There is no content then.
	Err error

	Updated   time.Time // last success; zero: never
	NotBefore time.Time // when it may be fetched; zero: at any time
	Failures  int       // in a row, of the list, of all fetches, or of fetches that were not sent, whichever is most
	Hold      Hold      // why not before that
}

// oldList is the age from which a list misses many new threats: half of all phishing sites
// live for less than a day.
const oldList = 24 * time.Hour

// Missing reports whether the list is not in force, so that none of its names is blocked.
func (s *ListStatus) Missing() bool { return s.Err != nil }

// Old reports whether the list was last fetched more than a day before now. One of unknown age
// is not old.
func (s *ListStatus) Old(now time.Time) bool {
	return !s.Updated.IsZero() && now.Sub(s.Updated) > oldList
}

// UpdatedIn returns when lists were fetched last, by the document of a schedule, as its writer's clock showed it. A
// document that cannot be read has none. It is safe for concurrent use.
func UpdatedIn(document []byte) map[string]time.Time {
	saved, _ := savedState(document)
	updated := make(map[string]time.Time)
	for name, l := range saved.Lists {
		updated[name] = l.Updated
	}
	return updated
}

// Status returns the lists in a folder, of any origin, sorted by name: those with a
// file, and those that have been asked for. Their times come from the schedule that
// was saved last. Status changes no file and takes no lock.
//
// If a schedule is damaged, Status returns the lists and an error that is ErrDamaged.
// The times then come from another schedule, or are zero.
func Status(dir string) ([]ListStatus, error) {
	files, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	state, scheduleErr := readState(dir, files)
	var names []string
	for _, file := range files {
		if name, ok := strings.CutSuffix(strings.TrimSuffix(file.Name(), damagedSuffix), listSuffix); ok {
			names = append(names, name)
		}
	}
	for name := range state.Lists {
		names = append(names, name)
	}
	slices.Sort(names)
	var all []ListStatus
	for _, name := range slices.Compact(names) {
		width, err := Width(name)
		if err != nil {
			continue // another program's file
		}
		s := ListStatus{Name: name, Widths: []int{width}}
		s.read(dir)
		clock := state.Lists[name]
		s.NotBefore, s.Hold = state.listDue(name), state.fetchHold([]string{name})
		if !errors.Is(s.Err, fs.ErrNotExist) {
			s.Updated = clock.Updated
		}
		s.Failures = max(clock.Failures, state.Fetch.held().Failures, state.Fetch.Away.Tries)
		all = append(all, s)
	}
	return all, scheduleErr
}

// readState reads the schedule among the files of a folder; of several, the one saved
// last.
func readState(dir string, files []os.DirEntry) (newest scheduleState, damaged error) {
	now := time.Now()
	at := newStore(dir, Origin{}).moment(now)
	for _, f := range files {
		if ok, _ := filepath.Match("schedule*.json", f.Name()); !ok {
			continue
		}
		file := filepath.Join(dir, f.Name())
		raw, err := readSmall(file)
		if err != nil && !errors.Is(err, ErrDamaged) {
			return scheduleState{}, err
		}
		var state scheduleState
		if err == nil {
			state, err = parseSchedule(raw, now, at)
		}
		if err != nil {
			damaged = fmt.Errorf("the schedule %s: %w", file, err)
		} else if !newest.after(state.moment) {
			newest = state
		}
	}
	return newest, damaged
}

// read reads the list's file and computes its checksum.
func (s *ListStatus) read(dir string) {
	l, origin, err := readFile(dir, s.Name)
	if aside := s.Name + listSuffix + damagedSuffix; errors.Is(err, fs.ErrNotExist) {
		if _, statErr := os.Stat(filepath.Join(dir, aside)); statErr == nil {
			err = fmt.Errorf("%w: set aside as %s", ErrDamaged, aside)
		}
	}
	if err != nil {
		s.Err = err
		return
	}
	sum := sha256.New()
	if _, err := io.Copy(sum, l.Set.Reader()); err != nil {
		s.Err = err
		return
	}
	checksum := [sha256.Size]byte(sum.Sum(nil))
	if checksum != l.Checksum {
		s.Err = fmt.Errorf("%w: the entries have %x, the server said %x", ErrChecksum, checksum, l.Checksum)
		return
	}
	if l.Set.Len() > 0 {
		s.Widths = l.Set.Widths()
	}
	s.Origin, s.Version, s.Entries, s.Bytes, s.Checksum = origin, l.Version, l.Set.Len(), l.Set.Bytes(), checksum
}
