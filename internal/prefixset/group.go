package prefixset

import (
	"cmp"
	"encoding/binary"
	"math/bits"
	"runtime"
	"slices"
)

// Group asks several sets at once whether they hold a hash. It is immutable and safe for
// concurrent use. The zero Group and a nil Group hold nothing.
type Group struct {
	sets []*Set
	four []*four // nil entries are left out; nil if filtered

	filter   *filter // over all entries, or only over entries of other widths than four
	filtered bool    // filter is over all entries
}

// NewGroup returns a Group of sets. If they have at most maxFiltered entries of four bytes, it makes
// a filter over all entries, else over the longer ones. That takes a few nanoseconds for each of
// them. NewGroup calls pause meanwhile; pause may be nil.
func NewGroup(sets []*Set, maxFiltered int, pause *Pause) *Group {
	g := &Group{sets: sets}
	entries, longer := 0, 0
	for _, s := range sets {
		if p := s.four.Load(); p != nil {
			g.four = append(g.four, p)
			entries += p.n
		}
		for _, p := range s.wide {
			longer += p.len()
		}
	}
	if g.filtered = entries <= maxFiltered; g.filtered {
		g.four, longer = nil, longer+entries
	}
	// The entries of the largest set have the shortest codes.
	slices.SortStableFunc(g.four, func(a, b *four) int { return cmp.Compare(b.n, a.n) })
	g.filter = newFilter(longer)
	for _, s := range sets {
		if !g.filtered {
			s = &Set{wide: s.wide}
		}
		g.filter.add(s, pause)
	}
	return g
}

// Joins reports whether Join may join the sets.
func (g *Group) Joins() bool { return g != nil && len(g.four) > 0 && len(g.four) <= maxJoined }

// Bytes returns the bytes of memory that the sets use.
func (g *Group) Bytes() (n int) {
	if g == nil {
		return 0
	}
	for _, s := range g.sets {
		n += s.Bytes()
	}
	return n
}

// Join moves the entries of four bytes of all sets into one set of blocks that they share: an
// entry takes hardly more memory there than alone, and a look-up asks one set instead of all. It
// returns a Group that asks that one, or g if that does so already.
//
// Join returns g if a filter is over all entries, and then parts sets that have been joined. It
// also returns g if the sets cannot be joined: there are more than 16 of them, or entries belong to
// too many combinations of them. Join needs memory for both forms while it works, and calls pause;
// pause may be nil. Sets may be used while they are joined.
func (g *Group) Join(pause *Pause) *Group {
	if g != nil && g.filtered {
		part(g.sets, pause)
	}
	if !g.Joins() || len(g.four) == 1 && g.four[0].of == nil { // nothing to join, or joined
		return g
	}
	joined := &Group{sets: g.sets, filter: g.filter}
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

// part gives each set entries of its own: what joined sets share stays in memory as a whole until
// the last of them is gone.
func part(sets []*Set, pause *Pause) {
	for _, s := range sets {
		if f := s.four.Load(); f != nil && f.of != nil {
			s.four.Store(fourOf(f.alone(pause)))
		}
	}
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
// are too many combinations. The buckets are half as large as a single set's: then a quarter of
// the hashes without an entry meet one in use, not nearly half, and only these need a second
// access to memory. An entry takes 1.1 bits more.
func joinAll(parts []*four, pause *Pause) (*blocks, *members) {
	sizes, entries := make([]int, len(parts)), 0
	for i, f := range parts {
		sizes[i], entries = f.n, entries+f.n
	}
	low := max(lowBits(entries), 1) - 1
	sources := joinSources(parts)
	j := joiner{blocks: newBlocksBuilderWith(low, entries), members: newMembersBuilder(sizes), pause: pause}
	done := j.merge(sources)
	runtime.KeepAlive(parts) // the cursors read memory that the collector frees with them
	if !done {
		return nil, nil
	}
	all, of := j.blocks.finish(), j.members.finish()
	of.sets = len(parts)
	return all, of
}

// AtOnce is the most hashes for one call of Suspects.
const AtOnce = 10

// Suspects reports which of at most AtOnce hashes may begin with an entry of g: bit i of found is
// for hashes[i]. It never leaves out one that does. Of the others it finds those that share four
// bytes with a longer entry, and 7 % if there is a filter. It does not allocate.
//
// Without a filter it looks at the directory for all hashes first, without a branch: a processor
// waits where a loaded word decides what comes next, and the loads then overlap. More than half of
// the hashes without an entry end there.
func Suspects[H ~[32]byte](g *Group, hashes []H) (found uint) {
	if g == nil {
		return 0
	}
	found = filtered(g.filter, hashes)
	if g.filtered {
		return found
	}
	for _, f := range g.four {
		found |= holding(f.blocks, hashes)
	}
	runtime.KeepAlive(g) // its parts use memory that the collector frees with g
	return found
}

// holding reports which of at most AtOnce hashes begin with an entry.
func holding[H ~[32]byte](p *blocks, hashes []H) (found uint) {
	used := uint(0)
	for i := range hashes {
		bucket := binary.BigEndian.Uint32(hashes[i][:]) >> (p.low & 31)
		used |= uint(p.record(int(bucket>>bucketBits)).used(bucket/64)>>(bucket%64)&1) << i
	}
	for ; used != 0; used &= used - 1 {
		i := bits.TrailingZeros(used)
		if p.holdsUsed(binary.BigEndian.Uint32(hashes[i][:])) {
			found |= 1 << i
		}
	}
	return found
}

// holdsUsed reports whether a number is an entry. Its bucket must be in use.
func (p *blocks) holdsUsed(x uint32) bool {
	bucket := x >> (p.low & 31)
	r := p.record(int(bucket >> bucketBits))
	s := p.span(r)
	bucket %= 1 << bucketBits
	// The place of the low bits depends on bits that have to be loaded first. Entries are evenly
	// distributed over the buckets of a block, so this loads most low bits at the same time.
	probable := s.n * uint64(bucket) >> bucketBits
	loaded := p.buf[(s.at+s.n+probable*uint64(p.low))/8]
	found := p.findIn(s, r.rank(bucket), x) >= 0
	runtime.KeepAlive(loaded) // the load is needed for its effect on the processor's caches
	return found
}
