package lookup

import (
	"bytes"
	"encoding/binary"
)

// part holds the entries of one width. Their leading bytes are their place in
// an index; only the bytes that follow are stored.
type part struct {
	width  int      // bytes of an entry
	lead   int      // leading bytes that the index stands for: 1 or 2
	index  []uint32 // entries that begin with b are numbers index[b] to index[b+1]-1
	suffix []byte   // width-lead bytes of each entry, ascending within its index slot
}

// minIndexed is the size from which a part has an index of two bytes: below it
// the index would be larger than what it saves.
const minIndexed = 1 << 16

func (p *part) len() int { return int(p.index[len(p.index)-1]) }

func (p *part) bytes() int { return 4*len(p.index) + len(p.suffix) }

// slotOf returns the index slot of an entry, or of a hash that begins with it.
func (p *part) slotOf(entry []byte) int {
	if p.lead == 2 {
		return int(entry[0])<<8 | int(entry[1])
	}
	return int(entry[0])
}

func (p *part) contains(hash *FullHash) bool {
	slot := p.slotOf(hash[:])
	low, high := p.index[slot], p.index[slot+1]
	if p.width == 4 && p.lead == 2 {
		return contains16(p.suffix[2*low:2*high], binary.BigEndian.Uint16(hash[2:]))
	}
	return p.containsTail(int(low), int(high), hash[p.lead:p.width])
}

// contains16 searches ascending big-endian 16-bit numbers.
func contains16(sorted []byte, want uint16) bool {
	low, high := 0, len(sorted)/2
	for low < high {
		middle := int(uint(low+high) >> 1)
		switch got := binary.BigEndian.Uint16(sorted[2*middle:]); {
		case got == want:
			return true
		case got < want:
			low = middle + 1
		default:
			high = middle
		}
	}
	return false
}

func (p *part) containsTail(low, high int, tail []byte) bool {
	for size := len(tail); low < high; {
		middle := (low + high) / 2
		switch c := bytes.Compare(p.suffix[middle*size:(middle+1)*size], tail); {
		case c == 0:
			return true
		case c < 0:
			low = middle + 1
		default:
			high = middle
		}
	}
	return false
}

// partCursor reads the entries of a part in order.
type partCursor struct {
	part *part
	next int // number of the entry to read next
	slot int // index slot of that entry, or one before it
}

// read fills entries, which has room for a whole number of them, from its
// beginning and returns how many bytes it filled.
func (c *partCursor) read(entries []byte) (filled int) {
	p := c.part
	size := p.width - p.lead
	for ; filled < len(entries) && c.next < p.len(); c.next++ {
		for int(p.index[c.slot+1]) <= c.next {
			c.slot++
		}
		e := entries[filled : filled+p.width]
		if p.lead == 2 {
			e[0], e[1] = byte(c.slot>>8), byte(c.slot)
		} else {
			e[0] = byte(c.slot)
		}
		copy(e[p.lead:], p.suffix[c.next*size:(c.next+1)*size])
		filled += p.width
	}
	return filled
}

// partBuilder makes a part from entries in ascending order.
type partBuilder struct {
	part
	slot int    // the slot of the last entry
	n    uint32 // entries so far
}

// newPartBuilder reserves memory for capacity entries.
func newPartBuilder(width, capacity int) *partBuilder {
	lead := 1
	if capacity >= minIndexed {
		lead = 2
	}
	return &partBuilder{part: part{
		width:  width,
		lead:   lead,
		index:  make([]uint32, 1<<(8*lead)+1),
		suffix: make([]byte, 0, capacity*(width-lead)),
	}}
}

// add appends an entry that is greater than all before.
func (b *partBuilder) add(entry []byte) {
	if b.lead == 1 && b.n == minIndexed {
		b.deepen()
	}
	for slot := b.slotOf(entry); b.slot < slot; {
		b.slot++
		b.index[b.slot] = b.n
	}
	b.suffix = append(b.suffix, entry[b.lead:]...)
	b.n++
}

// deepen goes over from an index of one byte to one of two.
func (b *partBuilder) deepen() {
	from := partCursor{part: b.finish()}
	to := partBuilder{part: part{width: b.width, lead: 2, index: make([]uint32, 1<<16+1), suffix: b.suffix[:0]}}
	entry := make([]byte, b.width)
	for from.read(entry) > 0 { // is always ahead of what is written
		to.add(entry)
	}
	*b = to
}

func (b *partBuilder) finish() *part {
	for i := b.slot + 1; i < len(b.index); i++ {
		b.index[i] = b.n
	}
	return &b.part
}
