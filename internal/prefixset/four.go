package prefixset

import (
	"encoding/binary"
	"math/bits"
	"runtime"
)

// four holds the entries of four bytes of a Set: all entries of blocks, or the ones that
// belong to one of several joined sets. It is immutable.
type four struct {
	*blocks
	of  *members // nil: all entries of blocks belong to the set
	bit uint32   // of the set in the masks of members
	n   int      // entries of the set
}

// fourOf returns all entries of p.
func fourOf(p *blocks) *four { return &four{blocks: p, n: p.n} }

// bytes returns the bytes of memory, of shared memory the part for these entries.
func (f *four) bytes() int {
	all := f.blocks.bytes()
	if f.of == nil {
		return all
	}
	return int(int64(all+f.of.bytes()) * int64(f.n) / int64(f.blocks.n))
}

// contains reports whether x is an entry.
func (f *four) contains(x uint32) bool {
	i := f.find(x)
	return i >= 0 && (f.of == nil || f.of.mask(i)&f.bit != 0)
}

// cursor returns a reader of the entries in order.
func (f *four) cursor() entryReader {
	all := blocksCursor{blocks: f.blocks}
	if f.of == nil {
		return &all
	}
	return &memberCursor{all: all, of: f.of, bit: f.bit, buf: make([]byte, 4*runEntries)}
}

// alone returns blocks that hold these entries and no others. It calls pause, which may be nil.
func (f *four) alone(pause *Pause) *blocks {
	if f.of == nil {
		return f.blocks
	}
	b := newBlocksBuilder(f.n)
	cursor, entries := f.cursor(), make([]byte, 4*runEntries)
	for filled := cursor.read(entries); filled > 0; filled = cursor.read(entries) {
		b.add(entries[:filled])
		pause.After(filled)
	}
	runtime.KeepAlive(f)
	return b.finish()
}

// entryReader reads the entries of one width in order.
type entryReader interface {
	// read writes the next entries and returns the number of bytes, 0 at the end. The length
	// of entries must be a multiple of the width.
	read(entries []byte) (filled int)
}

// memberCursor reads those entries of blocks in order that belong to one set.
type memberCursor struct {
	all  blocksCursor
	of   *members
	bit  uint32
	at   uint64 // the bit of members where the code of the next entry begins
	buf  []byte
	rest []byte // the part of buf that has not been looked at yet

	pause Pause // most entries may belong to other sets
}

// read implements entryReader.
func (c *memberCursor) read(entries []byte) (filled int) {
	for filled < len(entries) {
		if len(c.rest) == 0 {
			if c.rest = c.buf[:c.all.read(c.buf)]; len(c.rest) == 0 {
				break
			}
			c.pause.After(len(c.rest))
		}
		filled += c.take(entries[filled:])
	}
	return filled
}

// take looks at the entries at hand until dst is full.
func (c *memberCursor) take(dst []byte) (filled int) {
	at, rest, codes := c.at, c.rest, c.of.codes.bytes
	for len(rest) >= 4 && filled < len(dst) {
		code := bits.TrailingZeros64(bitsAt(codes, at))
		at += uint64(code) + 1
		binary.NativeEndian.PutUint32(dst[filled:], binary.NativeEndian.Uint32(rest))
		if c.of.masks[code&(maxCodes-1)]&c.bit != 0 {
			filled += 4
		}
		rest = rest[4:]
	}
	c.at, c.rest = at, rest
	return filled
}
