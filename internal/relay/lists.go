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
	dir     string // of the history; "": memory only
	current atomic.Pointer[map[string]*state]
	mu      sync.Mutex // held by Publish
	encodings
}

// state is the content of one list. It is immutable.
type state struct {
	name    string
	tag     []byte // of its versions
	width   int    // bytes of an entry
	source  *prefixset.Set
	set     *prefixset.Set // of entries that are width bytes long
	sum     [sha256.Size]byte
	id      id
	history []step // the oldest first
}

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
// Database"). Web Risk mixes longer entries into a list: Publish cuts them, and
// entries that then begin alike become one. So a client asks for more than the relay's own list
// has, never for less.
//
// An error names each list that cannot be served, which keeps its last content, and each whose
// history cannot be read or saved: that list is served, but some clients get a full update
// instead of a partial one. All other lists are published whatever the error.
func (l *Lists) Publish(lists []lookup.List) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	var errs []error
	before, after := *l.current.Load(), make(map[string]*state, len(lists))
	var changed []*state
	replaced := 0
	for _, list := range lists {
		old := before[list.Name]
		s, err := l.next(old, list)
		if err != nil {
			errs = append(errs, fmt.Errorf("list %s: %w", list.Name, err))
		}
		if s == nil {
			continue
		}
		after[s.name] = s
		if s != old {
			changed = append(changed, s)
		}
		if old != nil && s != old {
			replaced += old.set.Bytes()
		}
	}
	l.current.Store(&after)
	l.forget(after)
	for _, s := range changed {
		if err := l.save(s); err != nil {
			errs = append(errs, fmt.Errorf("list %s: saving its history: %w; after a restart its clients get full updates", s.name, err))
		}
	}
	prefixset.GiveBack(replaced)
	return errors.Join(errs...)
}

// next returns the state of a list that is published after old, or old if nothing has changed.
// It returns old and an error if the list cannot be served, and a new state and an error if
// only its history is lost.
func (l *Lists) next(old *state, list lookup.List) (*state, error) {
	if old != nil && old.source == list.Set {
		return old, nil
	}
	width, err := updater.Width(list.Name)
	if err != nil {
		return old, err
	}
	set, err := entriesOf(list.Set, width)
	if err != nil {
		return old, err
	}
	s := &state{name: list.Name, tag: tagOf(list.Name), width: width, source: list.Set, set: set, sum: sumOf(setRuns(set))}
	s.id = idOf(s.sum)
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
		if c, err = changeBetween(setRuns(old.set), setRuns(set), width); err == nil {
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
	return collect(cutRuns(s, width), width, s.Len())
}

// save saves the history of a list, if histories are kept on disk.
func (l *Lists) save(s *state) error {
	if l.dir == "" {
		return nil
	}
	return saveHistory(l.dir, s)
}

// Names returns the names of the lists that are served, in order.
func (l *Lists) Names() []string { return slices.Sorted(maps.Keys(*l.current.Load())) }

// Ready reports whether there is a list to serve.
func (l *Lists) Ready() bool { return len(*l.current.Load()) > 0 }
