package prefixset

import (
	"encoding/binary"
	"math"
	"math/bits"
	"slices"
)

// joinSource reads the entries of one set, or of several joined sets in one pass.
type joinSource struct {
	cursor blocksCursor
	of     *members
	at     uint64           // the bit of members where the code of the next entry begins
	parts  [maxCodes]uint32 // by code: which parts of the new group hold the entry; 0: none
	number uint64           // of the source: 0 to 255

	buf   []byte
	rest  []byte   // the entries at hand
	all   []uint32 // as many as buf has entries
	masks []uint32 // of the entries at hand: the parts that hold them
}

// joinSources returns the sources of parts.
func joinSources(parts []*four) (sources []*joinSource) {
	for i, f := range parts {
		at := slices.IndexFunc(sources, func(s *joinSource) bool { return s.of != nil && s.of == f.of })
		if at < 0 {
			at = len(sources)
			sources = append(sources, &joinSource{
				cursor: blocksCursor{blocks: f.blocks}, of: f.of, number: uint64(at),
				buf: make([]byte, 4*runEntries), all: make([]uint32, runEntries),
			})
		}
		s := sources[at]
		for code := range s.parts {
			if f.of == nil || f.of.masks[code]&f.bit != 0 {
				s.parts[code] |= 1 << i
			}
		}
	}
	return sources
}

// head returns the next entry, followed by eight bits with the number of the source, or
// math.MaxUint64 at the end.
func (s *joinSource) head() uint64 {
	for len(s.rest) == 0 {
		n := s.cursor.read(s.buf)
		if n == 0 {
			return math.MaxUint64
		}
		s.sort(n / 4)
	}
	return uint64(binary.BigEndian.Uint32(s.rest))<<8 | s.number
}

// sort finds out which parts hold the first n entries of buf, and drops those that no part holds.
func (s *joinSource) sort(n int) {
	kept := 0
	for i := range n {
		code := 0
		if s.of != nil {
			code = bits.TrailingZeros64(bitsAt(s.of.codes.bytes, s.at)) & (maxCodes - 1)
			s.at += uint64(code) + 1
		}
		copy(s.buf[4*kept:4*kept+4], s.buf[4*i:4*i+4])
		s.all[kept] = s.parts[code]
		if s.all[kept] != 0 {
			kept++
		}
	}
	s.rest, s.masks = s.buf[:4*kept], s.all[:kept]
}

// take returns the entries at hand that are less than bound and that the same parts hold as the
// first, and moves past them. The first is less than bound.
func (s *joinSource) take(bound uint64) (entries []byte, mask uint32) {
	n := 1
	for n < len(s.masks) && s.masks[n] == s.masks[0] && uint64(binary.BigEndian.Uint32(s.rest[4*n:])) < bound {
		n++
	}
	entries, mask = s.rest[:4*n], s.masks[0]
	s.rest, s.masks = s.rest[4*n:], s.masks[n:]
	return entries, mask
}

// joiner makes blocks and members.
type joiner struct {
	blocks  *blocksBuilder
	members *membersBuilder
	pause   *Pause
	entries []byte // on their way to blocks
}

// merge reads the sources to their ends. It reports false if there are too many combinations.
func (j *joiner) merge(sources []*joinSource) bool {
	heads := make([]uint64, len(sources))
	for i, s := range sources {
		heads[i] = s.head()
	}
	for {
		first, second := uint64(math.MaxUint64), uint64(math.MaxUint64)
		for _, h := range heads {
			first, second = min(first, h), min(second, max(first, h))
		}
		if first == math.MaxUint64 {
			j.blocks.add(j.entries)
			return true
		}
		ok := false
		if first>>8 == second>>8 {
			ok = j.addShared(uint32(first>>8), sources, heads)
		} else {
			i := first & 0xff
			ok = j.add(sources[i].take(second >> 8))
			heads[i] = sources[i].head()
		}
		if !ok {
			return false
		}
	}
}

// addShared adds the entry x, which comes next in several sources.
func (j *joiner) addShared(x uint32, sources []*joinSource, heads []uint64) bool {
	mask := uint32(0)
	for i, s := range sources {
		if heads[i]>>8 == uint64(x) {
			_, more := s.take(uint64(x) + 1)
			mask |= more
			heads[i] = s.head()
		}
	}
	return j.add(binary.BigEndian.AppendUint32(nil, x), mask)
}

// add adds entries that belong to the sets of mask.
func (j *joiner) add(entries []byte, mask uint32) bool {
	if len(j.entries)+len(entries) > 4*runEntries {
		j.blocks.add(j.entries)
		j.pause.After(len(j.entries))
		j.entries = j.entries[:0]
	}
	j.entries = append(j.entries, entries...)
	return j.members.add(mask, len(entries)/4)
}
