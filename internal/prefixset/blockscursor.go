package prefixset

import (
	"encoding/binary"
	"math/bits"
)

// blocksCursor reads the entries of blocks in order.
type blocksCursor struct {
	blocks *blocks
	block  int    // of the entry to read next
	next   uint64 // its number there
	half   uint32 // of the block's buckets: 0 or 1
	used   uint64 // of that half: the entry's bucket and those after it
}

// read fills entries, whose length is a multiple of 4, from the beginning, and
// returns how many bytes it filled.
func (c *blocksCursor) read(entries []byte) (filled int) {
	for filled < len(entries) && c.block < blockCount(c.blocks.low) {
		r := c.blocks.record(c.block)
		if c.next == 0 {
			c.half, c.used = 0, r.used(0)
		}
		s := c.blocks.span(r)
		n := min(s.n-c.next, uint64(len(entries)-filled)/4)
		c.decode(entries[filled:filled+4*int(n)], r, s)
		filled += 4 * int(n)
		if c.next += n; c.next == s.n {
			c.block, c.next = c.block+1, 0
		}
	}
	return filled
}

// decode fills entries, of which the block has enough left.
func (c *blocksCursor) decode(entries []byte, r *record, s span) {
	p, half, used := c.blocks, c.half, c.used
	shift := p.low & 31
	mask := uint32(1)<<shift - 1
	block := uint32(c.block) << bucketBits
	low := s.at + s.n + c.next*uint64(p.low)
	// The bit that tells whether an entry is the first of its bucket is due
	// after the entry before it: one bucket is done then.
	begin := s.at + c.next + 1
	for ; len(entries) > 0; begin += 64 {
		begins := wordAt(p.buf, begin)
		some := entries[:min(len(entries), 4*64)]
		entries = entries[len(some):]
		for ; len(some) >= 4; some = some[4:] {
			if used == 0 {
				half, used = 1, r.used(1)
			}
			bucket := 64*half + uint32(bits.TrailingZeros64(used))
			x := (block|bucket)<<shift | uint32(bitsAt(p.buf, low))&mask
			binary.BigEndian.PutUint32(some, x)
			used &= used - begins&1
			begins >>= 1
			low += uint64(p.low)
		}
	}
	c.half, c.used = half, used
}
