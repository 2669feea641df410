package prefixset

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"runtime"
	"slices"
)

// Set is an immutable, exact set of beginnings of hashes, its entries,
// each of 4 to 32 bytes. Entries of several widths are ordered together
// bytewise, the shorter first of two that begin alike. The zero Set contains
// nothing. Safe for concurrent use.
//
// Most of a large set is outside of the collector's heap. It is given back
// after the first collection that finds the set unreachable: who replaces large
// sets may want to call runtime.GC then, as such a set does not hasten it.
type Set struct {
	four *blocks // entries of four bytes; nil: none
	wide []*wide // the others: one for each width that is held, the narrowest first
}

// Entries are between these many bytes long.
const (
	minWidth = 4
	maxWidth = sha256.Size
)

// Len returns the number of entries.
func (s *Set) Len() int {
	n := 0
	if s.four != nil {
		n = s.four.len()
	}
	for _, p := range s.wide {
		n += p.len()
	}
	return n
}

// Widths returns the widths of the entries in bytes, each once, ascending, or
// nil for an empty set.
func (s *Set) Widths() []int {
	var widths []int
	if s.four != nil {
		widths = append(widths, 4)
	}
	for _, p := range s.wide {
		widths = append(widths, p.width)
	}
	return widths
}

// Bytes returns the memory that the set holds, in bytes.
func (s *Set) Bytes() int {
	n := 0
	if s.four != nil {
		n = s.four.bytes()
	}
	for _, p := range s.wide {
		n += p.bytes()
	}
	return n
}

// Match returns the width in bytes of the shortest entry that hash begins with,
// or 0 if there is none. It does not allocate.
func (s *Set) Match(hash *[32]byte) (width int) {
	if s.four != nil && s.four.contains(binary.BigEndian.Uint32(hash[:])) {
		width = 4
	} else if i := slices.IndexFunc(s.wide, func(p *wide) bool { return p.contains(hash) }); i >= 0 {
		width = s.wide[i].width
	}
	runtime.KeepAlive(s) // and with it the memory of its parts
	return width
}

// Contains reports whether hash begins with an entry. It does not allocate.
func (s *Set) Contains(hash *[32]byte) bool { return s.Match(hash) != 0 }

// ErrOrder says that entries did not come in ascending order, each once.
var ErrOrder = errors.New("entries are not in ascending order, each once")
