package prefixset

import (
	"encoding/binary"
	"math/bits"
	"runtime"
)

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
