package prefixset

import (
	"encoding/binary"
	"math/bits"
	"sort"
)

// blocks holds entries of four bytes, as numbers, in hardly more bits than an exact set
// needs. It is a form of Elias-Fano coding. The low bits of a number are stored as they
// are. The high bits are the number of a bucket; 128 buckets are a block. Of the high bits
// only the steps from one bucket to the next are stored.
//
//	number     block │ bucket (7 bits) │ low bits
//
//	directory  for each block: the number of entries before it (32 bits), and
//	           which of its buckets are in use (128 bits); at the end the number
//	           of all entries (32 bits)
//	stream     for each block: for each entry whether it is the first of its
//	           bucket (1 bit); then the low bits of each entry
//
// An entry takes low+1 bits of the stream, so the number of entries before a block gives
// its place there. Most lookups of other numbers end at the directory. Numbers are
// little-endian; the lowest bit of a byte comes first.
type blocks struct {
	low uint    // low bits of an entry: 0 to maxLow
	n   int     // entries
	buf []byte  // the directory, the stream, and slack bytes without meaning
	mem *memory // owns buf
}

const (
	bucketBits  = 7 // of a number: its bucket in its block
	maxLow      = 32 - bucketBits
	recordBytes = 4 + 2*8

	// slack bytes let wordAt read behind the last bit.
	slack = 9
)

// lowBits returns the best number of low bits for n entries: there are then 0.375 to 0.75
// entries per bucket. One bit more would make a set 0.5 % smaller, but lookups of other
// hashes 50 % slower.
func lowBits(n int) uint {
	const least = 3 << bucketBits / 8 // entries a block
	return uint(min(max(maxLow+1-bits.Len(uint(n/least)), 0), maxLow))
}

// fits reports whether low is close enough to the best number for n entries.
func fits(low uint, n int) bool {
	best := lowBits(n)
	return low <= best+1 && best <= low+1
}

// blockCount returns the number of blocks that cover all numbers of 32 bits. The mask lets the
// compiler leave out a check of the shift.
func blockCount(low uint) int { return 1 << (maxLow - low&31) }

// streamStart returns where the stream begins in buf, in bytes.
func streamStart(low uint) int { return recordBytes*blockCount(low) + 4 }

// blocksBytes returns the bytes of directory and stream of n entries.
func blocksBytes(low uint, n int) int { return streamStart(low) + int((int64(n)*int64(low+1)+7)/8) }

// bytes returns the bytes of memory, with the slack.
func (p *blocks) bytes() int { return len(p.buf) }

// record is the part of the directory about one block, with the number of entries before
// the next block.
type record [recordBytes + 4]byte

// record returns the record of a block without copying it.
func (p *blocks) record(block int) *record { return (*record)(p.buf[recordBytes*block:]) }

// used returns a bit for each of 64 buckets, set if the bucket is in use. half is 0 for the
// first 64 buckets and 1 for the last.
func (r *record) used(half uint32) uint64 { return binary.LittleEndian.Uint64(r[4+8*(half&1):]) }

// rank returns the number of used buckets before the given one.
func (r *record) rank(bucket uint32) int {
	half := bucket / 64
	in := bits.OnesCount64(r.used(half) & (1<<(bucket%64) - 1))
	return in + int(half)*bits.OnesCount64(r.used(0))
}

// span is the place of a block's entries in the stream.
type span struct {
	at    uint64 // the first bit, from the beginning of buf
	n     uint64 // entries
	first uint64 // entries of all blocks before
}

// span returns the place of a block's entries, from its record and the one after it.
func (p *blocks) span(r *record) span {
	first := binary.LittleEndian.Uint32(r[:])
	return span{
		at: 8*uint64(streamStart(p.low)) + uint64(first)*uint64(p.low+1),
		n:  uint64(binary.LittleEndian.Uint32(r[recordBytes:]) - first),

		first: uint64(first),
	}
}

// lowAt returns the low bits of the entry with number i of a block.
func (p *blocks) lowAt(s span, i uint64) uint32 {
	return uint32(bitsAt(p.buf, s.at+s.n+i*uint64(p.low))) & (1<<(p.low&31) - 1)
}

// find returns the number of the entry x, counted from the least, or -1.
func (p *blocks) find(x uint32) int {
	r := p.record(int(x >> (p.low&31 + bucketBits)))
	bucket := x >> (p.low & 31) % (1 << bucketBits)
	if r.used(bucket/64)>>(bucket%64)&1 == 0 {
		return -1
	}
	return p.findIn(p.span(r), r.rank(bucket), x)
}

// findIn is find for a bucket in use, with rank used buckets before it in the block at s.
func (p *blocks) findIn(s span, rank int, x uint32) int {
	want := x & (1<<(p.low&31) - 1)
	i := p.firstOf(s, rank)
	for range 16 {
		got := p.lowAt(s, i)
		if got == want {
			return int(s.first + i)
		}
		i++
		// Most buckets in use have one entry: a processor can predict that. Whether the entry is
		// greater it cannot.
		if i == s.n || bitsAt(p.buf, s.at+i)&1 != 0 || got > want {
			return -1
		}
	}
	return p.findFrom(s, i, want)
}

// firstOf returns the first entry, counted within its block, of the bucket with rank used
// buckets before it.
func (p *blocks) firstOf(s span, rank int) uint64 {
	for i := uint64(0); ; i += 64 {
		w := wordAt(p.buf, s.at+i)
		ones := bits.OnesCount64(w)
		if rank < ones {
			return i + uint64(select64(w, rank))
		}
		rank -= ones
	}
}

// findFrom is find from entry i of a bucket to the bucket's end. Only buckets that are much
// longer than usual need it.
func (p *blocks) findFrom(s span, i uint64, want uint32) int {
	end := i + 1
	for end < s.n {
		zeros := bits.TrailingZeros64(wordAt(p.buf, s.at+end))
		end += uint64(zeros)
		if zeros < 64 {
			break
		}
	}
	count := int(min(end, s.n) - i)
	found := sort.Search(count, func(j int) bool { return p.lowAt(s, i+uint64(j)) >= want })
	if found == count || p.lowAt(s, i+uint64(found)) != want {
		return -1
	}
	return int(s.first + i + uint64(found))
}

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
