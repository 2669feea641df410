package prefixset

import (
	"encoding/binary"
	"math/bits"
)

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

// decode fills entries. The block must have enough entries left. It puts the low bits first, and
// adds the buckets then: both at once would need more registers than there are.
func (c *blocksCursor) decode(entries []byte, r *record, s span) {
	p := c.blocks
	readLow(entries, p.buf, s.at+s.n+c.next*uint64(p.low), p.low)
	// The bit that marks the first entry of a bucket counts after the entry before it:
	// that entry ends its bucket.
	for end := s.at + c.next + 1; len(entries) > 0; end += 64 {
		some := entries[:min(len(entries), 4*64)]
		entries = entries[len(some):]
		c.addBuckets(some, wordAt(p.buf, end), r)
	}
}

// addBuckets adds the buckets to at most 64 entries. A bit of ends tells that an entry is the
// last of its bucket.
func (c *blocksCursor) addBuckets(entries []byte, ends uint64, r *record) {
	shift, used := c.blocks.low&31, c.used
	base := (uint32(c.block)<<bucketBits | 64*c.half) << shift
	for i := 0; i < len(entries)-3; i += 4 {
		if used == 0 {
			c.half, used = 1, r.used(1)
			base |= 64 << shift
		}
		putUint32At(entries, i, uint32At(entries, i)|base|uint32(bits.TrailingZeros64(used))<<shift)
		used &= used - ends&1
		ends >>= 1
	}
	c.used = used
}

// readLow fills entries with low bits alone. They begin at a bit of buf.
func readLow(entries, buf []byte, at uint64, low uint) {
	low &= 31
	if last := len(entries) - 16; 4*low <= 57 && last >= 0 {
		for i := 0; i < last; i += 16 {
			readLowOfFour(entries[i:], bitsAt(buf, at+uint64(i)/4*uint64(low)), low)
		}
		// Some of these may have been filled before.
		readLowOfFour(entries[last:], bitsAt(buf, at+uint64(last)/4*uint64(low)), low)
		return
	}
	for ; len(entries) >= 4; entries = entries[4:] {
		binary.BigEndian.PutUint32(entries, uint32(bitsAt(buf, at))&(1<<low-1))
		at += uint64(low)
	}
}

// readLowOfFour fills the first four entries. The low bits of the first are the lowest of lows.
func readLowOfFour(entries []byte, lows uint64, low uint) {
	mask := uint64(1)<<(low&31) - 1
	binary.BigEndian.PutUint64(entries, lows&mask<<32|lows>>(low&31)&mask)
	lows >>= 2 * low & 63
	binary.BigEndian.PutUint64(entries[8:], lows&mask<<32|lows>>(low&31)&mask)
}
