package ownlist

import (
	"strings"
	"sync/atomic"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

// Match is the entry of a list that decides on a host.
type Match struct {
	Allow    bool            // else it blocks
	Fetched  bool            // the list is, see Config
	Labels   int             // of the matched name, which is the end of the host; 0: every name
	Response lookup.Response // of a match that blocks
	File     string          // the name or the path given to Open, or the name given to Hosts
}

// Name returns the matched name. h is the host that was given to File.Match.
func (m Match) Name(h lookup.Host) string {
	name := h.String()
	for skip := labels(name) - m.Labels; skip > 0; skip-- {
		_, name, _ = strings.Cut(name, ".")
	}
	return name
}

// File is one own list of the operator: an open file, or hosts of the Corefile. Create it
// with Open or Hosts. It is safe for concurrent use.
type File struct {
	name    string
	fetched bool
	content *atomic.Pointer[content] // shared with other Files of the same source
	source  *source                  // nil: hosts of the Corefile
	close   func()                   // has an effect only once
}

// HostEntry is a host that the Corefile allows.
type HostEntry struct {
	Host  lookup.Host
	Below bool      // match only the names below it
	Until time.Time // when the entry expires; zero: never
}

// Hosts returns a list that matches the entries and all names below them. Every match
// allows, and its File is name. The list needs no Close.
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

// Match returns the entry for h with the most labels, and whether there is one. If
// several entries have the same name, one that allows wins. It takes no lock and does not
// allocate.
func (f *File) Match(h lookup.Host, now time.Time) (Match, bool) {
	c := f.content.Load()
	act, depth := c.match(h, now)
	if act == none {
		return Match{}, false
	}
	m := Match{Allow: act == allow, Fetched: f.fetched, Labels: depth, File: f.name}
	if act == block && len(c.responses) > 0 {
		name := m.Name(h)
		m.Response = c.response(name, !isWhole(h) || name != h.String())
	}
	return m, true
}

// Best returns the match of the file that decides on h, and whether there is one. The
// match with the most labels decides; on a tie the first one that allows. It takes no
// lock and does not allocate.
func Best(files []*File, h lookup.Host, now time.Time) (best Match, found bool) {
	for _, f := range files {
		m, ok := f.Match(h, now)
		if ok && (!found || m.Labels > best.Labels || m.Labels == best.Labels && m.Allow && !best.Allow) {
			best, found = m, true
		}
	}
	return best, found
}

// match returns the action of the most specific entry for h, and the number of its labels.
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
