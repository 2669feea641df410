package prefixset

import (
	"encoding/binary"
	"math"
	"runtime"
)

// blocksBuilder makes blocks from ascending numbers in one pass.
type blocksBuilder struct {
	low      uint
	mem      *memory
	stream   bitWriter  // into mem, behind the directory
	written  int        // entries in the stream
	recorded int        // blocks whose record is complete
	last     int64      // the last number; -1: there is none yet
	block    uint32     // of the last number
	marks    blockMarks // of the entries of that block
	pending  []byte     // these entries, packed; they are not in the stream yet
	pause    Pause      // while entries are moved
}

// newBlocksBuilder returns a builder with memory for n entries. It can hold more.
func newBlocksBuilder(n int) *blocksBuilder { return newBlocksBuilderWith(lowBits(n), n) }

// newBlocksBuilderWith is newBlocksBuilder with another number of low bits than the best.
func newBlocksBuilderWith(low uint, n int) *blocksBuilder {
	mem := newMemory(blocksBytes(low, n) + slack)
	return &blocksBuilder{low: low, mem: mem, stream: bitWriter{buf: mem.bytes, at: streamStart(low)}, last: -1}
}

// add appends packed big-endian entries. It stops at the first that is not greater than the
// one before, and returns the number of bytes before that.
func (b *blocksBuilder) add(entries []byte) (taken int) {
	b.reserve(len(entries) / 4)
	shift := b.low&31 + bucketBits
	from := 0 // the first of entries that is neither in the stream nor pending
	for taken < len(entries) {
		x := binary.BigEndian.Uint32(entries[taken:])
		if int64(x) <= b.last {
			break
		}
		if block := x >> shift; block != b.block {
			b.writeBlock(entries[from:taken])
			from, b.block = taken, block
		}
		taken += b.mark(entries[taken:])
	}
	b.pending = append(b.pending, entries[from:taken]...)
	return taken
}

// reserve makes room for more entries. If there are too many entries per bucket, it makes
// the buckets smaller.
func (b *blocksBuilder) reserve(more int) {
	n := b.written + b.marks.n + more
	if b.low > lowBits(n)+1 {
		b.recode(n + n/2)
	}
	if size := blocksBytes(b.low, n) + slack; size > len(b.stream.buf) {
		mem := newMemory(blocksBytes(b.low, n+n/4) + slack)
		b.pause.copy(mem.bytes, b.stream.buf)
		b.mem, b.stream.buf = mem, mem.bytes
	}
}

// recode starts again with buckets for n entries, and adds the previous entries.
func (b *blocksBuilder) recode(n int) {
	to := newBlocksBuilder(n)
	cursor := blocksCursor{blocks: b.close()}
	entries := make([]byte, 4*runEntries)
	for filled := cursor.read(entries); filled > 0; filled = cursor.read(entries) {
		to.add(entries[:filled])
		b.pause.After(filled)
	}
	runtime.KeepAlive(cursor.blocks)
	*b = *to
}

// blockMarks says of the entries of one block which buckets they use, and which entries are
// the first of their bucket.
type blockMarks struct {
	n      int       // entries
	used   [2]uint64 // as in the directory
	begins []uint64  // of 64 entries each
	word   uint64    // of the entries after these; the last entry has the highest bit
}

// mark marks the first entries: up to the end of half a block, up to the end of a word of
// begins, or up to the first that is out of order. It returns their bytes. The first entry
// must be in order.
func (b *blocksBuilder) mark(entries []byte) (marked int) {
	low, m := b.low&31, &b.marks
	last := b.last
	before := last >> low // the last bucket
	half := int64(binary.BigEndian.Uint32(entries)) >> (low + 6)
	limit := (half + 1) << (low + 6)
	used, word := m.used[half&1], m.word
	some := entries[:min(len(entries), 4*(64-m.n&63))]
	for ; marked < len(some)-3; marked += 4 {
		x := int64(uint32At(some, marked))
		if x <= last || x >= limit {
			break
		}
		bucket := x >> low
		used |= 1 << (bucket & 63)
		word = word>>1 | uint64(before-bucket)&(1<<63)
		last, before = x, bucket
	}
	b.last = last
	m.used[half&1], m.word = used, word
	if m.n += marked / 4; m.n%64 == 0 {
		m.begins = append(m.begins, word)
	}
	return marked
}

// writeBlock moves the entries of a block into the stream: those that are pending, and more.
func (b *blocksBuilder) writeBlock(more []byte) {
	m, at := &b.marks, recordBytes*int(b.block)+4
	if m.n == 0 {
		return
	}
	b.record(int(b.block))
	binary.LittleEndian.PutUint64(b.stream.buf[at:], m.used[0])
	binary.LittleEndian.PutUint64(b.stream.buf[at+8:], m.used[1])
	for _, w := range m.begins {
		b.stream.put(w&math.MaxUint32, 32)
		b.stream.put(w>>32, 32)
	}
	if rest := uint(m.n % 64); rest > 0 {
		w := m.word >> (64 - rest)
		b.stream.put(w&math.MaxUint32, min(rest, 32))
		b.stream.put(w>>32, rest-min(rest, 32))
	}
	b.stream.putLow(b.pending, b.low)
	b.stream.putLow(more, b.low)
	b.written += m.n
	b.pending = b.pending[:0]
	*m = blockMarks{begins: m.begins[:0]}
}

// record writes the number of entries before each block, up to the given block.
func (b *blocksBuilder) record(block int) {
	for ; b.recorded <= block; b.recorded++ {
		binary.LittleEndian.PutUint32(b.stream.buf[recordBytes*b.recorded:], uint32(b.written))
	}
}

// finish returns the set of all entries. There must be at least one. The builder must not be
// used afterwards.
func (b *blocksBuilder) finish() *blocks {
	if n := b.written + b.marks.n; !fits(b.low, n) {
		b.recode(n)
	}
	return b.close()
}

// close is finish without a change of memory or of low bits.
func (b *blocksBuilder) close() *blocks {
	b.writeBlock(nil)
	b.record(blockCount(b.low))
	b.stream.flush()
	b.mem.bytes = b.mem.bytes[:blocksBytes(b.low, b.written)+slack]
	mem := fitted(b.mem)
	return &blocks{low: b.low, n: b.written, buf: mem.bytes, mem: mem}
}

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
