package ownlist

import (
	"strings"
	"sync/atomic"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

// Match is the entry of a list that decides on a host. The zero Match is none.
type Match struct {
	Allow bool
	// Labels is how many labels the matched name has: the host's last ones.
	Labels int
	Answer Answer // of a match that blocks
	File   string // the path or name that the File was opened with
}

// Name returns the matched name, which ends h, the host that was matched.
func (m Match) Name(h lookup.Host) string {
	name := h.String()
	for skip := labels(name) - m.Labels; skip > 0; skip-- {
		_, name, _ = strings.Cut(name, ".")
	}
	return name
}

// File is one list of the operator's own: an open file, or hosts of the
// Corefile. Use Open or Hosts. It is safe for concurrent use.
type File struct {
	name    string
	content *atomic.Pointer[content] // shared by all who opened the file
	source  *source                  // nil: hosts of the Corefile
	close   func()                   // at most once
}

// HostEntry is a host that the Corefile names: to allow it, or to try things with.
type HostEntry struct {
	Host  lookup.Host
	Below bool      // only the names below it match
	Until time.Time // when the entry ends; zero: never
}

// Hosts returns a list of the entries, with all names below them, under the name
// that Match gives as its file. Its matches allow. It needs no Close.
func Hosts(name string, entries []HostEntry) *File {
	b := newBuilder()
	for _, e := range entries {
		scope := tree
		if e.Below {
			scope = below
		}
		if host := e.Host.String(); host != "" {
			b.add(entry{name: []byte(host), scope: scope, allow: true, until: e.Until})
		}
	}
	f := &File{name: name, content: new(atomic.Pointer[content]), close: func() {}}
	f.content.Store(b.build())
	return f
}

// Match returns the most specific entry for h, and whether there is one: an
// entry of the host itself, else of its parent, and so on; of several for one
// name an allowing one. It takes no lock and does not allocate.
func (f *File) Match(h lookup.Host, now time.Time) (Match, bool) {
	c := f.content.Load()
	act, depth := c.match(h, now)
	if act == none {
		return Match{}, false
	}
	m := Match{Allow: act == allow, Labels: depth, File: f.name}
	if act == block && len(c.answers) > 0 {
		name := m.Name(h)
		m.Answer = c.answer(name, !isWhole(h) || name != h.String())
	}
	return m, true
}

// Best returns the match that decides over several files: the one with the
// most labels, and on a tie the first that allows.
func Best(files []*File, h lookup.Host, now time.Time) (best Match, found bool) {
	for _, f := range files {
		m, ok := f.Match(h, now)
		if ok && (!found || m.Labels > best.Labels || m.Labels == best.Labels && m.Allow && !best.Allow) {
			best, found = m, true
		}
	}
	return best, found
}

// match returns what the most specific entry for h does, and its labels.
func (c *content) match(h lookup.Host, now time.Time) (act action, depth int) {
	name := h.String()
	if c.summary.Entries == 0 || name == "" {
		return none, 0
	}
	depth = labels(name)
	if at := uint64(1) << depthBit(depth); (c.exactAt|c.belowAt)&at != 0 {
		if s := c.about(name, now); s != (says{}) {
			if act = s.exact; !isWhole(h) {
				act = s.below
			}
			if act != none {
				return act, depth
			}
		}
	}
	if c.belowAt == 0 || isIP(name) {
		return none, 0
	}
	for depth--; depth >= 0; depth-- {
		name = name[strings.IndexByte(name, '.')+1:]
		if depth == 0 {
			name = ""
		}
		if c.belowAt>>depthBit(depth)&1 != 0 {
			if s := c.about(name, now); s.below != none {
				return s.below, depth
			}
		}
	}
	return none, 0
}
