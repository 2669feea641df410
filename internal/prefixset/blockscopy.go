package prefixset

import "encoding/binary"

// A partial update changes few blocks. Of the others the bits are copied as they are, which
// takes less time than to code their entries again.

// addOf is add for entries that equal old's, from the given number on. Whole blocks
// of them are copied. They must be in order.
func (b *blocksBuilder) addOf(old *blocks, first int, entries []byte) (taken int) {
	b.reserve(len(entries) / 4)
	begin, end, ok := b.wholeBlocks(old, first, entries)
	if !ok {
		return b.add(entries)
	}
	from, to := 4*(old.before(begin)-first), 4*(old.before(end)-first)
	if taken = b.add(entries[:from]); taken < from {
		return taken
	}
	b.writeBlock(nil)
	b.copyBlocks(old, begin, end)
	b.last = int64(binary.BigEndian.Uint32(entries[to-4:]))
	return to + b.add(entries[to:])
}

// wholeBlocks returns which blocks of old the builder may copy: those from begin, before end.
// All their entries are among the given ones, and no other entry may come into them: the
// builder has none of theirs yet, and one of a later block follows. It reports false if
// there are none.
func (b *blocksBuilder) wholeBlocks(old *blocks, first int, entries []byte) (begin, end int, ok bool) {
	if old.low != b.low || len(entries) == 0 {
		return 0, 0, false
	}
	shift := b.low&31 + bucketBits
	begin = int(binary.BigEndian.Uint32(entries) >> shift)
	end = int(binary.BigEndian.Uint32(entries[len(entries)-4:]) >> shift)
	if first != old.before(begin) || b.marks.n > 0 && int(b.block) == begin {
		begin++
	}
	if begin >= end {
		return 0, 0, false
	}
	from, to := old.before(begin)-first, old.before(end)-first
	return begin, end, 0 <= from && from < to && 4*to < len(entries)
}

// before returns the number of entries before a block.
func (p *blocks) before(block int) int {
	return int(binary.LittleEndian.Uint32(p.buf[recordBytes*block:]))
}

// copyBlocks appends the blocks of old from begin, before end. No entry is pending. The
// low bits must be as many as the builder's.
func (b *blocksBuilder) copyBlocks(old *blocks, begin, end int) {
	b.record(begin - 1)
	first := old.before(begin)
	moved := b.written - first
	copy(b.stream.buf[recordBytes*begin:], old.buf[recordBytes*begin:recordBytes*end])
	for block := begin; block < end; block++ {
		binary.LittleEndian.PutUint32(b.stream.buf[recordBytes*block:], uint32(old.before(block)+moved))
	}
	n := old.before(end) - first
	b.stream.copy(old.buf, old.span(old.record(begin)).at, uint64(n)*uint64(b.low+1))
	b.recorded, b.written = end, b.written+n
}

// copy appends n bits of buf, from the given one on.
func (w *bitWriter) copy(buf []byte, at, n uint64) {
	head := min(uint64(8-w.n)%8, n) // then whole bytes are written
	w.put(bitsAt(buf, at)&(1<<head-1), uint(head))
	at, n = at+head, n-head
	to := w.buf[w.at : w.at+int(n/64*8)]
	for ; len(to) >= 8; to = to[8:] {
		binary.LittleEndian.PutUint64(to, wordAt(buf, at))
		at += 64
	}
	w.at += int(n / 64 * 8)
	rest := n % 64
	w.put(wordAt(buf, at)&(1<<min(rest, 32)-1), uint(min(rest, 32)))
	w.put(wordAt(buf, at)&(1<<rest-1)>>32, uint(rest-min(rest, 32)))
}
