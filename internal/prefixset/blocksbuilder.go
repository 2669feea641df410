package prefixset

import (
	"encoding/binary"
	"runtime"
	"slices"
)

// blocksBuilder makes blocks from ascending numbers in one pass.
type blocksBuilder struct {
	low      uint
	mem      *memory
	stream   bitWriter // into mem, behind the directory
	written  int       // entries in the stream
	recorded int       // blocks whose record says how many entries are before it
	least    uint64    // what may come next: one more than the last number
	block    uint32    // of the last number
	pending  []uint32  // entries of that block, not yet in the stream
	begins   []uint64  // of pending, while it is written: bits of the stream
}

// newBlocksBuilder reserves memory for n entries, and can hold more.
func newBlocksBuilder(n int) *blocksBuilder {
	low := lowBits(n)
	mem := newMemory(blocksBytes(low, n) + slack)
	return &blocksBuilder{low: low, mem: mem, stream: bitWriter{buf: mem.bytes, at: streamStart(low)}}
}

// add appends packed big-endian entries, up to the first that is not greater
// than the one before. It returns how many bytes it took.
func (b *blocksBuilder) add(entries []byte) (taken int) {
	b.reserve(len(entries) / 4)
	shift := b.low&31 + bucketBits
	for ; taken < len(entries); taken += 4 {
		x := binary.BigEndian.Uint32(entries[taken:])
		if uint64(x) < b.least {
			break
		}
		b.least = uint64(x) + 1
		if block := x >> shift; block != b.block {
			b.writeBlock()
			b.block = block
		}
		b.pending = append(b.pending, x)
	}
	return taken
}

// reserve makes room for more entries. If there are many more than buckets, it
// makes those smaller.
func (b *blocksBuilder) reserve(more int) {
	n := b.written + len(b.pending) + more
	if b.low > lowBits(n)+1 {
		b.recode(n + n/2)
	}
	if size := blocksBytes(b.low, n) + slack; size > len(b.stream.buf) {
		mem := newMemory(blocksBytes(b.low, n+n/4) + slack)
		copy(mem.bytes, b.stream.buf)
		b.mem, b.stream.buf = mem, mem.bytes
	}
}

// recode begins again, for n entries, and adds what was added before.
func (b *blocksBuilder) recode(n int) {
	to := newBlocksBuilder(n)
	cursor := blocksCursor{blocks: b.close()}
	entries := make([]byte, 4*runEntries)
	for filled := cursor.read(entries); filled > 0; filled = cursor.read(entries) {
		to.add(entries[:filled])
	}
	runtime.KeepAlive(cursor.blocks)
	*b = *to
}

// writeBlock moves what is pending into the stream.
func (b *blocksBuilder) writeBlock() {
	used := b.markBegins()
	b.record(int(b.block))
	at := recordBytes*int(b.block) + 4
	binary.LittleEndian.PutUint64(b.stream.buf[at:], used[0])
	binary.LittleEndian.PutUint64(b.stream.buf[at+8:], used[1])
	left := uint(len(b.pending))
	for _, w := range b.begins {
		b.stream.put(w, min(left, 64))
		left -= min(left, 64)
	}
	stream, mask := b.stream, uint32(1)<<(b.low&31)-1
	for _, x := range b.pending {
		stream.put(uint64(x&mask), b.low)
	}
	b.stream = stream
	b.written += len(b.pending)
	b.pending = b.pending[:0]
}

// markBegins finds which buckets the pending entries use, and sets begins to
// the bits that mark the first of each. It does so without branches, which
// could not be foreseen.
func (b *blocksBuilder) markBegins() (used [2]uint64) {
	words := (len(b.pending) + 63) / 64
	b.begins = slices.Grow(b.begins[:0], words)[:words]
	before := uint32(1 << bucketBits) // no bucket
	for i := range b.begins {
		word, pending := uint64(0), b.pending[64*i:min(64*i+64, len(b.pending))]
		for j, x := range pending {
			bucket := x >> (b.low & 31) % (1 << bucketBits)
			begin := min(bucket^before, 1)
			before = bucket
			bit, last := uint64(1)<<(bucket%64), -uint64(bucket/64)
			used[0] |= bit &^ last
			used[1] |= bit & last
			word |= uint64(begin) << (j & 63)
		}
		b.begins[i] = word
	}
	return used
}

// record writes how many entries are before each block up to the given one.
func (b *blocksBuilder) record(block int) {
	for ; b.recorded <= block; b.recorded++ {
		binary.LittleEndian.PutUint32(b.stream.buf[recordBytes*b.recorded:], uint32(b.written))
	}
}

// finish returns the entries, of which there must be one at least. The builder
// must not be used afterwards.
func (b *blocksBuilder) finish() *blocks {
	if n := b.written + len(b.pending); !fits(b.low, n) {
		b.recode(n)
	}
	return b.close()
}

// close is finish, with what memory and low bits there are.
func (b *blocksBuilder) close() *blocks {
	b.writeBlock()
	b.record(blockCount(b.low))
	b.stream.flush()
	b.mem.bytes = b.mem.bytes[:blocksBytes(b.low, b.written)+slack]
	mem := fitted(b.mem)
	return &blocks{low: b.low, n: b.written, buf: mem.bytes, mem: mem}
}
