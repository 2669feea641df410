package prefixset

import "math/bits"

// blocksCursor reads the entries of blocks in order.
type blocksCursor struct {
	blocks *blocks
	block  int    // of the next entry
	next   uint64 // the next entry, counted within the block
	half   uint32 // the half of the block's buckets with that entry: 0 or 1
	used   uint64 // the used buckets of that half, from the entry's bucket on
}

// read writes the next entries and returns the number of bytes. The length of entries must
// be a multiple of 4.
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

// decode fills entries. The block must have enough entries left.
func (c *blocksCursor) decode(entries []byte, r *record, s span) {
	buf, shift, used := c.blocks.buf, c.blocks.low&31, c.used
	base := (uint32(c.block)<<bucketBits | 64*c.half) << shift
	step, mask := uint64(shift), uint32(1)<<shift-1
	low := s.at + s.n + c.next*step
	// The bit that marks the first entry of a bucket counts after the entry before it:
	// that entry ends its bucket.
	begin := s.at + c.next + 1
	for ; len(entries) > 0; begin += 64 {
		begins := wordAt(buf, begin)
		some := entries[:min(len(entries), 4*64)]
		entries = entries[len(some):]
		for i := 0; i < len(some)-3; i += 4 {
			if used == 0 {
				c.half, used = 1, r.used(1)
				base |= 64 << shift
			}
			x := base | uint32(bits.TrailingZeros64(used))<<shift | uint32(bitsAt(buf, low))&mask
			putUint32At(some, i, x)
			used &= used - begins&1
			begins >>= 1
			low += step
		}
	}
	c.used = used
}
