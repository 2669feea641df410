package prefixset

import (
	"encoding/binary"
	"math"
	"math/bits"
	"runtime"
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

// members says to which of several joined sets each entry of blocks belongs. Each combination
// of sets has a code: the largest set alone has code 0, the next one alone code 1, and so on,
// then come combinations of several, in the order in which they are met. An entry takes code+1
// bits: as many zeros as its code, and a one. It is immutable.
type members struct {
	sets   int // how many are joined
	codes  *memory
	starts []uint32         // where the codes of the entries 0, eachStart, 2*eachStart … begin, in bits
	masks  [maxCodes]uint32 // by code: a bit for each set
}

const (
	maxJoined = 16  // sets
	maxCodes  = 32  // combinations; a code fits into the bits that bitsAt returns
	eachStart = 512 // entries
)

// bytes returns the bytes of memory.
func (m *members) bytes() int { return len(m.codes.bytes) + 4*len(m.starts) + 4*maxCodes }

// mask returns the sets of entry i.
func (m *members) mask(i int) uint32 {
	at, before := uint64(m.starts[i/eachStart]), i%eachStart
	for before > 0 {
		w := wordAt(m.codes.bytes, at)
		if ones := bits.OnesCount64(w); ones < before {
			at, before = at+64, before-ones
			continue
		}
		at, before = at+uint64(select64(w, before-1))+1, 0
	}
	code := bits.TrailingZeros64(bitsAt(m.codes.bytes, at))
	runtime.KeepAlive(m)
	return m.masks[code&(maxCodes-1)]
}

// membersBuilder makes members from the masks of all entries in order.
type membersBuilder struct {
	made  members
	out   bitWriter
	bits  uint64          // written
	n     int             // entries
	code  map[uint32]uint // of the masks with several bits
	next  uint            // code
	pause Pause           // while codes are moved
}

// newMembersBuilder returns a builder for sets with these numbers of entries, the largest first.
// The bit of a set is its number.
func newMembersBuilder(sizes []int) *membersBuilder {
	b := &membersBuilder{code: map[uint32]uint{}, next: uint(len(sizes))}
	expected, entries := 0, 0
	for i, n := range sizes {
		b.made.masks[i] = 1 << i
		expected, entries = expected+(i+1)*n, entries+n
	}
	b.made.codes = newMemory(expected/8 + expected/256 + eachStart*maxCodes/8 + codesSlack) // some entries belong to several sets
	b.made.starts = make([]uint32, 0, entries/eachStart+1)
	b.out.buf = b.made.codes.bytes
	return b
}

// codesSlack is a number of bytes behind the codes: bitWriter and wordAt reach beyond the last.
const codesSlack = 32

// add adds the mask of the next n entries. It reports false if there are too many combinations.
func (b *membersBuilder) add(mask uint32, n int) bool {
	code, ok := b.codeOf(mask)
	if !ok {
		return false
	}
	for range n {
		if b.n%eachStart == 0 {
			b.made.starts = append(b.made.starts, uint32(b.bits))
			b.grow()
		}
		b.out.put(1<<code, code+1)
		b.bits += uint64(code) + 1
		b.n++
	}
	return true
}

// codeOf returns the code of a mask. It reports false if there is none left.
func (b *membersBuilder) codeOf(mask uint32) (code uint, ok bool) {
	if mask&(mask-1) == 0 {
		return uint(bits.TrailingZeros32(mask)), true
	}
	if code, ok = b.code[mask]; !ok && b.next < maxCodes {
		code, ok = b.next, true
		b.code[mask], b.made.masks[code] = code, mask
		b.next++
	}
	return code, ok
}

// grow makes room for eachStart entries more.
func (b *membersBuilder) grow() {
	need := b.out.at + eachStart*maxCodes/8 + codesSlack
	if need <= len(b.out.buf) {
		return
	}
	mem := newMemory(need + need/8)
	b.pause.copy(mem.bytes, b.out.buf)
	b.made.codes, b.out.buf = mem, mem.bytes
}

// finish returns the members. The builder must not be used afterwards.
func (b *membersBuilder) finish() *members {
	b.out.flush()
	b.made.codes.bytes = b.made.codes.bytes[:b.bits/8+codesSlack]
	b.made.codes = fitted(b.made.codes)
	return &b.made
}
