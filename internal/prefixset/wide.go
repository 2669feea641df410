package prefixset

import "bytes"

// wide holds the entries of one width above 4 bytes. An index replaces their leading bytes;
// only the bytes after these are stored.
type wide struct {
	width  int       // bytes of an entry
	lead   int       // leading bytes that the index replaces: 1 or 2
	index  []uint32  // the entries that begin with b have the numbers index[b] to index[b+1]-1
	chunks []*memory // width-lead bytes of each entry; every chunk but the last has chunkEntries
}

// chunkEntries is the number of entries in one chunk of memory. With chunks, the builder can
// add entries without copying those before. From this number on the index has two leading
// bytes: for fewer entries such an index would be larger than the bytes that it saves.
const chunkEntries = 1 << 16

// len returns the number of entries.
func (p *wide) len() int { return int(p.index[len(p.index)-1]) }

// bytes returns the memory for the entries.
func (p *wide) bytes() int {
	n := 4 * len(p.index)
	for _, c := range p.chunks {
		n += len(c.bytes)
	}
	return n
}

// slotOf returns the index slot of an entry, or of a hash that begins with it.
func (p *wide) slotOf(entry []byte) int {
	if p.lead == 2 {
		return int(entry[0])<<8 | int(entry[1])
	}
	return int(entry[0])
}

// tail returns the bytes of entry i after the leading ones.
func (p *wide) tail(i int) []byte {
	size := p.width - p.lead
	at := i % chunkEntries * size
	return p.chunks[i/chunkEntries].bytes[at : at+size]
}

// contains reports whether hash begins with an entry.
func (p *wide) contains(hash *[32]byte) bool {
	slot, want := p.slotOf(hash[:]), hash[p.lead:p.width]
	for low, high := int(p.index[slot]), int(p.index[slot+1]); low < high; {
		middle := int(uint(low+high) / 2)
		switch c := bytes.Compare(p.tail(middle), want); {
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

// wideCursor reads the entries in order.
type wideCursor struct {
	wide *wide
	next int // number of the next entry
	slot int // index slot of that entry, or one before it
}

// read writes the next entries and returns the number of bytes. The length of entries must be
// a multiple of the width.
func (c *wideCursor) read(entries []byte) (filled int) {
	p := c.wide
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
		copy(e[p.lead:], p.tail(c.next))
		filled += p.width
	}
	return filled
}

// wideBuilder makes a wide from entries in ascending order.
type wideBuilder struct {
	wide
	slot int // the slot of the last entry
	n    int // entries so far
}

// newWideBuilder returns a builder for entries of width bytes, with an index of lead leading
// bytes, 1 or 2.
func newWideBuilder(width, lead int) *wideBuilder {
	return &wideBuilder{wide: wide{width: width, lead: lead, index: make([]uint32, 1<<(8*lead)+1)}}
}

// add appends an entry. It must be greater than all entries before it.
func (b *wideBuilder) add(entry []byte) {
	if b.lead == 1 && b.n == chunkEntries {
		b.deepen()
	}
	for slot := b.slotOf(entry); b.slot < slot; {
		b.slot++
		b.index[b.slot] = uint32(b.n)
	}
	if b.n == chunkEntries*len(b.chunks) {
		b.addChunk()
	}
	chunk := b.chunks[len(b.chunks)-1]
	chunk.bytes = append(chunk.bytes, entry[b.lead:]...)
	b.n++
}

// addChunk adds a chunk. The first one grows as it is filled, until there are enough entries
// to deepen.
func (b *wideBuilder) addChunk() {
	chunk := new(memory)
	if b.lead == 2 {
		chunk = newMemory(chunkEntries * (b.width - b.lead))
		chunk.bytes = chunk.bytes[:0]
	}
	b.chunks = append(b.chunks, chunk)
}

// deepen replaces the index of one leading byte by one of two.
func (b *wideBuilder) deepen() {
	to := newWideBuilder(b.width, 2)
	from := wideCursor{wide: b.finish()}
	entry := make([]byte, b.width)
	for from.read(entry) > 0 {
		to.add(entry)
	}
	*b = *to
}

// finish returns the set of all entries. The builder must not be used afterwards.
func (b *wideBuilder) finish() *wide {
	for i := b.slot + 1; i < len(b.index); i++ {
		b.index[i] = uint32(b.n)
	}
	if n := len(b.chunks); n > 0 {
		b.chunks[n-1] = fitted(b.chunks[n-1])
	}
	return &b.wide
}
