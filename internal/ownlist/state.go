package ownlist

import (
	"cmp"
	"slices"
	"time"
)

// State is the condition of a list at one moment.
type State struct {
	Path       string // absolute path of the file, or the name given to Open or Hosts
	Named      string // the name or the path as given to the oldest Open without a Close
	Fetched    bool   // see Config
	Allow      bool   // it is an allow list
	InCorefile bool   // it was made by Hosts
	Err        error  // why the file cannot be used now; the content before is still used. Or nil.
	Summary           // of the content that queries use
}

// State returns the condition of the list now. It is safe for concurrent use.
func (f *File) State() State {
	if f.source != nil {
		return f.source.state()
	}
	c := f.content.Load()
	return State{Path: f.name, Named: f.name, Allow: true, InCorefile: true, Summary: c.summaryAt(time.Now())}
}

func (s *source) state() State {
	st := State{Path: s.key.name(), Named: s.key.name(), Fetched: s.key.Fetched, Allow: s.key.Allow}
	s.mu.Lock()
	st.Err = s.err
	if len(s.openers) > 0 {
		st.Named = s.openers[0].name
	}
	s.mu.Unlock()
	st.Summary = s.content.Load().summaryAt(time.Now())
	return st
}

func (c *content) summaryAt(now time.Time) Summary {
	sum := c.summary
	sum.Ended = c.ended(now)
	return sum
}

// States returns the states of all open files, sorted by path; of one path the block list
// comes first. It waits while Open reads a file. It is safe for concurrent use.
func States() []State { return opened.states() }

func (r *registry) states() (all []State) {
	r.mu.Lock()
	for _, s := range r.files {
		all = append(all, s.state())
	}
	r.mu.Unlock()
	slices.SortFunc(all, func(a, b State) int {
		if a.Path == b.Path && a.Allow != b.Allow {
			if a.Allow {
				return 1
			}
			return -1
		}
		return cmp.Compare(a.Path, b.Path)
	})
	return all
}

// Idle reports whether a list allows nothing for now, and nothing is wrong with it: a file
// for exceptions has none yet, or all have ended.
func (s State) Idle() bool {
	return s.Allow && s.InForce() == 0 && s.Seems == "" && s.Bad.Count+s.NotSupported()+s.Elsewhere.Count+s.LeftOut.Count() == 0
}

// Complaint says why no name of a list is in force, as Nothing does, but "" if nothing is wrong
// with that, see Idle, or if Err says more.
func (s State) Complaint() string {
	if s.Idle() || s.Err != nil {
		return ""
	}
	return s.Nothing()
}
