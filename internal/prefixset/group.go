package prefixset

import (
	"cmp"
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
	if g == nil {
		return 0
	}
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
	if g == nil || len(g.four) == 0 || len(g.four) > maxJoined {
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
	for i, f := range parts {
		sizes[i], entries = f.n, entries+f.n
	}
	sources := joinSources(parts)
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
