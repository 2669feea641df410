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
// Without a filter it loads from all sets what it needs for all hashes before it uses the first
// of it: a processor waits where a loaded word is used, and the loads then overlap. First come the
// directories, where more than half of the hashes without an entry end, then the entries.
func Suspects[H ~[32]byte](g *Group, hashes []H) (found uint) {
	if g == nil {
		return 0
	}
	found = filtered(g.filter, hashes)
	if g.filtered {
		return found
	}
	var numbers [AtOnce]uint32
	for i := range hashes {
		numbers[i] = binary.BigEndian.Uint32(hashes[i][:])
	}
	for _, f := range g.four {
		found |= f.holding(numbers[:len(hashes)])
	}
	runtime.KeepAlive(g) // its parts use memory that the collector frees with g
	return found
}

// holding reports which of at most AtOnce numbers are entries.
func (p *blocks) holding(numbers []uint32) (found uint) {
	used := uint(0)
	for i, x := range numbers {
		bucket := x >> (p.low & 31)
		used |= uint(p.record(int(bucket>>bucketBits)).used(bucket/64)>>(bucket%64)&1) << i
	}
	if used == 0 {
		return 0
	}
	var spans [AtOnce]span
	var loaded byte
	for rest := used; rest != 0; rest &= rest - 1 {
		i := bits.TrailingZeros(rest) % AtOnce
		bucket := numbers[i] >> (p.low & 31)
		s := p.span(p.record(int(bucket >> bucketBits)))
		spans[i] = s
		// Entries are evenly distributed over the buckets of a block.
		probable := s.n * uint64(bucket%(1<<bucketBits)) >> bucketBits
		loaded |= p.buf[(s.at+probable)/8] | p.buf[(s.at+s.n+probable*uint64(p.low))/8]
	}
	runtime.KeepAlive(loaded) // the loads are needed for their effect on the processor's caches
	for rest := used; rest != 0; rest &= rest - 1 {
		i := bits.TrailingZeros(rest) % AtOnce
		bucket := numbers[i] >> (p.low & 31)
		rank := p.record(int(bucket >> bucketBits)).rank(bucket % (1 << bucketBits))
		if p.findIn(spans[i], rank, numbers[i]) >= 0 {
			found |= 1 << i
		}
	}
	return found
}
