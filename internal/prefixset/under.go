package prefixset

import (
	"bytes"
	"encoding/binary"
	"runtime"
	"slices"
	"sort"
)

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
