// Package relay is a Safe Browsing server, version 5, for the clients of one's own network.
//
//	engine ──lists──▶ Lists.Publish ──▶ state: the entries, and the steps that led to them
//	                                      │        ▲
//	client ──version──▶ Lists.Get ────────┘   dir/history, one file a list
//	                       │
//	                       ▼ one encoder at a time
//	                    Answer: bytes that all clients with this version share
package relay

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/files"
	"github.com/coredns-safebrowsing/safebrowsing/internal/prefixset"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
	"github.com/coredns-safebrowsing/safebrowsing/updater"
)

// Lists are the lists that a relay serves, with the history from which it makes partial
// updates. Versions follow from the content: two relays with the same lists, or one that was
// restarted, hand out the same. Lists is safe for concurrent use. Make one with NewLists.
//
// It starts no goroutine. Get waits for an encoder, never for the disk.
type Lists struct {
	dir     string                            // of the history; "": memory only
	current atomic.Pointer[map[string]*state] // by their forms
	mu      sync.Mutex                        // held by Publish
	encodings
}

// state is the content of one list in one form. It is immutable.
type state struct {
	name    string
	stored  bool   // entries are as long as the engine has them; else they are cut to width
	tag     []byte // of its versions
	width   int    // bytes of an entry; of the shortest ones if stored
	source  *prefixset.Set
	set     *prefixset.Set
	sum     [sha256.Size]byte
	id      id
	history []step // the oldest first
}

// form names a list and its form. No list has the name of a form as stored.
func (s *state) form() string { return formOf(s.name, s.stored) }

func formOf(name string, stored bool) string {
	if stored {
		return name + ".stored"
	}
	return name
}

// holds reports whether an entry of the list may have width bytes.
func (s *state) holds(width int) bool { return width == s.width || s.stored && width > s.width }

// NewLists returns Lists without any list. The history of lists is kept in the folder
// dir/history, which NewLists creates; with an empty dir it is kept in memory only. If the
// folder cannot be made, NewLists returns an error together with Lists that keep the history in memory.
func NewLists(dir string) (*Lists, error) {
	l := &Lists{encodings: newEncodings()}
	l.current.Store(&map[string]*state{})
	if dir == "" {
		return l, nil
	}
	dir = filepath.Join(dir, "history")
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return l, fmt.Errorf("making the folder for the history of lists: %w; keeping it in memory: after a restart all clients get full updates", err)
	}
	files.Clean(dir, func(name string) bool { return strings.HasSuffix(name, historySuffix) }) // of processes that died
	l.dir = dir
	return l, nil
}

// Publish replaces the lists that are served. It keeps the sets; it does not keep the slice.
//
// The suffix of a list's name says how long entries are for a client of version 5 ("Local
// Database"). Web Risk mixes longer entries into a list, where a shorter one would match a popular
// URL (its RawHashes). Such a list has two forms: as it is stored, for clients that take it, see
// protocol.AsStoredHeader, and cut, where entries that then begin alike become one. A client of the
// cut form asks for more than the relay's own list has, never for less.
//
// An error names each list that cannot be served, which keeps its last content, and each whose
// history cannot be read or saved: that list is served, but some clients get a full update
// instead of a partial one. All other lists are published whatever the error.
func (l *Lists) Publish(lists []lookup.List) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	var errs []error
	before, after := *l.current.Load(), make(map[string]*state, len(lists))
	var changed []*state // whose history is saved
	replaced := 0
	for _, list := range lists {
		for _, stored := range []bool{false, true} {
			old := before[formOf(list.Name, stored)]
			s, err := l.next(old, list, stored)
			if err != nil {
				errs = append(errs, fmt.Errorf("list %s: %w", list.Name, err))
			}
			if s == nil {
				continue
			}
			after[s.form()] = s
			if s != old && l.dir != "" {
				changed = append(changed, s)
			}
			if old != nil && s != old && !stored { // the engine gives back what is as stored
				replaced += old.set.Bytes()
			}
		}
	}
	l.current.Store(&after)
	l.forget(after)
	for _, s := range changed {
		if err := saveHistory(l.dir, s); err != nil {
			errs = append(errs, fmt.Errorf("list %s: saving its history: %w; after a restart its clients get full updates", s.name, err))
		}
	}
	prefixset.GiveBack(replaced)
	return errors.Join(errs...)
}

// next returns the state of a form that is published after old, or old if nothing has changed. It
// returns nil if the list has no such form. It returns old and an error if the list cannot be
// served, and a new state and an error if only its history is lost.
func (l *Lists) next(old *state, list lookup.List, stored bool) (*state, error) {
	if old != nil && old.source == list.Set {
		return old, nil
	}
	width, err := updater.Width(list.Name)
	if stored && (err != nil || !asStored(list.Set, width, old != nil)) {
		return nil, nil
	}
	if err != nil {
		return old, err
	}
	set := list.Set
	if !stored {
		if set, err = entriesOf(list.Set, width); err != nil {
			return old, err
		}
	}
	s := &state{name: list.Name, stored: stored, width: width, source: list.Set, set: set, sum: sumOf(setRuns(set))}
	s.id, s.tag = idOf(s.sum), tagOf(s.form())
	switch {
	case old == nil && l.dir != "":
		if s.history, err = loadHistory(l.dir, s); err != nil {
			err = fmt.Errorf("its history cannot be used: %w; clients with older versions get full updates", err)
		}
	case old == nil:
	case old.id == s.id:
		s.history = old.history
	default:
		var c change
		if c, err = changeBetween(setRuns(old.set), setRuns(set), false); err == nil {
			s.history = append(slices.Clip(old.history), step{old.id, time.Now(), c})
		}
	}
	s.history = trimmed(s.history, set.Bytes(), time.Now())
	return s, err
}

// entriesOf returns the set with all entries cut to width bytes. It is an error if one is
// shorter.
func entriesOf(s *prefixset.Set, width int) (*prefixset.Set, error) {
	widths := s.Widths()
	switch {
	case len(widths) == 0 || len(widths) == 1 && widths[0] == width:
		return s, nil
	case widths[0] < width:
		return nil, fmt.Errorf("it has entries of %d bytes, its name says %d", widths[0], width)
	}
	return collect(cutRuns(s, width), s.Len())
}

// maxLonger is the most bytes of longer entries of a list that is served as stored: they are not
// compressed, and a client reads them whole. It has room for 200,000 entries of five bytes.
const maxLonger = 1 << 20

// asStored reports whether a list has a form as stored: some of its entries are longer than width. A
// list that had the form keeps it without such entries, since to change it costs a full update.
func asStored(s *prefixset.Set, width int, had bool) bool {
	longer := 0
	for _, w := range s.Widths() {
		switch {
		case w < width:
			return false
		case w > width:
			longer += w * s.LenOf(w)
		}
	}
	return longer <= maxLonger && (had || longer > 0)
}

// Names returns the names of the lists that are served, in order.
func (l *Lists) Names() []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(*l.current.Load())), func(form string) bool {
		_, err := updater.Width(form)
		return err != nil
	})
}

// Ready reports whether there is a list to serve.
func (l *Lists) Ready() bool { return len(*l.current.Load()) > 0 }
