package prefixset

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"runtime"
	"slices"
	"sort"
	"sync/atomic"
)

// Set is an immutable, exact set of entries: beginnings of hashes, of 4 to 32 bytes each.
// Entries of all widths have one order, bytewise; of two that begin alike the shorter comes
// first. The zero Set is empty. A Set is safe for concurrent use.
//
// Most of a large set is outside the collector's heap. It is released after the first
// collection that finds the set unreachable. A set outside the heap does not cause a
// collection, so a caller that replaces large sets may want to call runtime.GC.
type Set struct {
	four atomic.Pointer[four] // entries of four bytes; nil: none. Group.Join replaces it by an equal one
	wide []*wide              // the others, one for each width, the narrowest first
}

// The least and the most bytes of an entry.
const (
	minWidth = 4
	maxWidth = sha256.Size
)

// Len returns the number of entries.
func (s *Set) Len() int {
	n := 0
	if p := s.four.Load(); p != nil {
		n = p.n
	}
	for _, p := range s.wide {
		n += p.len()
	}
	return n
}

// LenOf returns the number of entries of width bytes.
func (s *Set) LenOf(width int) int {
	if p := s.four.Load(); width == 4 && p != nil {
		return p.n
	}
	for _, p := range s.wide {
		if p.width == width {
			return p.len()
		}
	}
	return 0
}

// Widths returns the widths of the entries in bytes, ascending and without duplicates. It
// returns nil for an empty set.
func (s *Set) Widths() []int {
	var widths []int
	if s.four.Load() != nil {
		widths = append(widths, 4)
	}
	for _, p := range s.wide {
		widths = append(widths, p.width)
	}
	return widths
}

// Bytes returns the bytes of memory that the set uses. Of memory that it shares with other sets
// its part counts.
func (s *Set) Bytes() int {
	n := 0
	if p := s.four.Load(); p != nil {
		n = p.bytes()
	}
	for _, p := range s.wide {
		n += p.bytes()
	}
	return n
}

// Match returns the width in bytes of the shortest entry with which hash begins, or 0 if there
// is none. It does not allocate.
func (s *Set) Match(hash *[32]byte) (width int) {
	p := s.four.Load()
	if p != nil && p.contains(binary.BigEndian.Uint32(hash[:])) {
		width = 4
	} else if i := slices.IndexFunc(s.wide, func(p *wide) bool { return p.contains(hash) }); i >= 0 {
		width = s.wide[i].width
	}
	runtime.KeepAlive(p) // its parts use memory that the collector frees with them
	runtime.KeepAlive(s)
	return width
}

// Contains reports whether hash begins with an entry. It does not allocate.
func (s *Set) Contains(hash *[32]byte) bool { return s.Match(hash) != 0 }

// ErrOrder says that entries are not in ascending order or not distinct.
var ErrOrder = errors.New("entries are not in ascending order, each once")

// Under returns the entries that begin with a prefix of four bytes, in order, but at most
// limit of them. It returns the prefix itself alone if that is an entry: each of the other
// entries begins with it.
func (s *Set) Under(prefix [4]byte, limit int) (entries [][]byte) {
	p := s.four.Load()
	defer runtime.KeepAlive(p) // its parts use memory that the collector frees with them
	defer runtime.KeepAlive(s)
	if p != nil && p.contains(binary.BigEndian.Uint32(prefix[:])) {
		return [][]byte{prefix[:]}
	}
	for _, p := range s.wide {
		entries = p.appendUnder(entries, prefix[:], limit-len(entries))
	}
	slices.SortFunc(entries, bytes.Compare)
	return entries
}

// appendUnder appends the entries that begin with prefix, at most limit of them.
func (p *wide) appendUnder(dst [][]byte, prefix []byte, limit int) [][]byte {
	slot, want := p.slotOf(prefix), prefix[p.lead:]
	first, end := int(p.index[slot]), int(p.index[slot+1])
	first += sort.Search(end-first, func(i int) bool { return bytes.Compare(p.tail(first+i), want) >= 0 })
	for i := first; i < end && limit > 0 && bytes.HasPrefix(p.tail(i), want); i++ {
		dst = append(dst, slices.Concat(prefix[:p.lead], p.tail(i)))
		limit--
	}
	return dst
}
