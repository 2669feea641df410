package ownlist

import (
	"cmp"
	"slices"
	"time"
)

// State is how a list stands.
type State struct {
	Path       string // of the file, absolute; of hosts of the Corefile the name that they were given
	Named      string // the path as the first of those who have it open gave it
	Allow      bool   // it is an allow list
	InCorefile bool   // it is made of Hosts
	Err        error  // why the file cannot be used now, so that what was read before is in force; nil: it can
	Summary           // of what is in force
}

// State returns how the list stands now. It is safe for concurrent use.
func (f *File) State() State {
	if f.source != nil {
		return f.source.state()
	}
	c := f.content.Load()
	return State{Path: f.name, Named: f.name, Allow: true, InCorefile: true, Summary: c.summaryAt(time.Now())}
}

func (s *source) state() State {
	st := State{Path: s.key.Path, Named: s.key.Path, Allow: s.key.Allow}
	s.mu.Lock()
	st.Err = s.err
	if len(s.openers) > 0 {
		st.Named = s.openers[0].path
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

// States returns how all open files stand, in the order of their paths, and a block
// list before an allow list. It may wait for a file that is being opened. It is safe
// for concurrent use.
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
