package prefixset

import (
	"cmp"
	"encoding/binary"
	"math"
	"runtime"
	"slices"
)

// Group asks several sets at once whether they hold a hash. It is immutable and safe for
// concurrent use. The zero Group and a nil Group hold nothing.
type Group struct {
	sets []*Set
	four []*four // nil entries are left out
	wide *Filter // over the entries of other widths; nil: there are none
}

// NewGroup returns a Group of sets. It takes little time and memory, but for entries of more
// than four bytes, while which it calls pause; pause may be nil.
func NewGroup(sets []*Set, pause *Pause) *Group {
	g := &Group{sets: sets}
	entries := 0
	for _, s := range sets {
		if p := s.four.Load(); p != nil {
			g.four = append(g.four, p)
		}
		for _, p := range s.wide {
			entries += p.len()
		}
	}
	// The entries of the largest set have the shortest codes.
	slices.SortStableFunc(g.four, func(a, b *four) int { return cmp.Compare(b.n, a.n) })
	if entries > 0 {
		g.wide = NewFilter(entries)
		for _, s := range sets {
			g.wide.Add(&Set{wide: s.wide}, pause)
		}
	}
	return g
}

// Bytes returns the bytes of memory that the sets use.
func (g *Group) Bytes() (n int) {
	for _, s := range g.sets {
		n += s.Bytes()
	}
	return n
}

// Join moves the entries of four bytes of all sets into one set of blocks that they share: an
// entry takes no more memory there than alone, and a look-up asks one set in place of all. It
// returns a Group that asks that one, or g if the sets cannot be joined: there are more than 16 of
// them, or entries belong to too many combinations of them. It needs memory for both forms
// while it works, and calls pause; pause may be nil. Sets may be used while they are joined.
func (g *Group) Join(pause *Pause) *Group {
	if len(g.four) == 0 || len(g.four) > maxJoined {
		return g
	}
	joined := &Group{sets: g.sets, wide: g.wide}
	if p := g.shared(); p != nil {
		joined.four = []*four{fourOf(p)}
		return joined
	}
	all, of := joinAll(g.four, pause)
	if all == nil {
		return g
	}
	for _, s := range g.sets {
		if i := slices.Index(g.four, s.four.Load()); i >= 0 {
			s.four.Store(&four{blocks: all, of: of, bit: 1 << i, n: g.four[i].n})
		}
	}
	joined.four = []*four{fourOf(all)}
	return joined
}

// shared returns the blocks that hold the entries of all sets, and no others, or nil.
func (g *Group) shared() *blocks {
	first := g.four[0]
	n := 0
	for _, f := range g.four {
		if f.blocks != first.blocks {
			return nil
		}
		n |= int(f.bit)
	}
	if first.of != nil && n != 1<<first.of.sets-1 {
		return nil
	}
	return first.blocks
}

// joinAll returns all entries of parts, and to which parts each belongs. It returns nil if there
// are too many combinations.
func joinAll(parts []*four, pause *Pause) (*blocks, *members) {
	sizes, entries := make([]int, len(parts)), 0
	sources := make([]*joinSource, len(parts))
	for i, f := range parts {
		sizes[i], entries = f.n, entries+f.n
		sources[i] = &joinSource{cursor: f.cursor(), buf: make([]byte, 4*runEntries), number: uint64(i)}
	}
	j := joiner{blocks: newBlocksBuilder(entries), members: newMembersBuilder(sizes), pause: pause}
	done := j.merge(sources)
	runtime.KeepAlive(parts) // the cursors read memory that the collector frees with them
	if !done {
		return nil, nil
	}
	all, of := j.blocks.finish(), j.members.finish()
	of.sets = len(parts)
	return all, of
}

// joinSource reads the entries of one set.
type joinSource struct {
	cursor entryReader
	buf    []byte
	rest   []byte // the entries at hand
	number uint64 // of the set: 0 to 255
}

// head returns the next entry, followed by eight bits with the number of the set, or
// math.MaxUint64 at the end.
func (s *joinSource) head() uint64 {
	if len(s.rest) == 0 {
		if s.rest = s.buf[:s.cursor.read(s.buf)]; len(s.rest) == 0 {
			return math.MaxUint64
		}
	}
	return uint64(binary.BigEndian.Uint32(s.rest))<<8 | s.number
}

// take returns the entries at hand that are less than bound, and moves past them.
func (s *joinSource) take(bound uint64) (entries []byte) {
	n := 0
	for n < len(s.rest) && uint64(binary.BigEndian.Uint32(s.rest[n:])) < bound {
		n += 4
	}
	entries, s.rest = s.rest[:n], s.rest[n:]
	return entries
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
			ok = j.add(sources[i].take(second>>8), 1<<i)
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
			mask |= 1 << i
			s.take(uint64(x) + 1)
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
