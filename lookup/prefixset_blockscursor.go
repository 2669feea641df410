package lookup

import (
	"encoding/binary"
	"math/bits"
)

// blocksCursor reads the entries of blocks in order.
type blocksCursor struct {
	blocks *blocks
	block  int    // of the entry to read next
	next   uint64 // its number there
	used   uint64 // the buckets of the block from that of the entry
}

// read fills entries, whose length is a multiple of 4, from the beginning, and
// returns how many bytes it filled.
func (c *blocksCursor) read(entries []byte) (filled int) {
	for filled < len(entries) && c.block < blockCount(c.blocks.low) {
		r := c.blocks.record(c.block)
		if c.next == 0 {
			c.used = r.used
		}
		n := min(r.n-c.next, uint64(len(entries)-filled)/4)
		c.decode(entries[filled:filled+4*int(n)], r)
		filled += 4 * int(n)
		if c.next += n; c.next == r.n {
			c.block, c.next = c.block+1, 0
		}
	}
	return filled
}

// decode fills entries, of which the block has enough left.
func (c *blocksCursor) decode(entries []byte, r record) {
	p, used := c.blocks, c.used
	shift := p.low & 31
	mask := uint32(1)<<shift - 1
	block := uint32(c.block) << bucketBits
	low := r.at + r.n + c.next*uint64(p.low)
	// The bit that tells whether an entry is the first of its bucket is due
	// after the entry before it: one bucket is done then.
	begin := r.at + c.next + 1
	for ; len(entries) > 0; begin += 64 {
		begins := wordAt(p.buf, begin)
		some := entries[:min(len(entries), 4*64)]
		entries = entries[len(some):]
		for ; len(some) >= 4; some = some[4:] {
			bucket := uint32(bits.TrailingZeros64(used))
			x := (block|bucket)<<shift | uint32(bitsAt(p.buf, low))&mask
			binary.BigEndian.PutUint32(some, x)
			used &= used - begins&1
			begins >>= 1
			low += uint64(p.low)
		}
	}
	c.used = used
}
