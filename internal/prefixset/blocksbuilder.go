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
	recorded int       // blocks whose record is complete
	least    uint64    // the least number that may come next
	block    uint32    // of the last number
	pending  []uint32  // entries of that block, not in the stream yet
	begins   []uint64  // used by writeBlock: which of pending begin a bucket, as bits
	pause    Pause     // while entries are moved
}

// newBlocksBuilder returns a builder with memory for n entries. It can hold more.
func newBlocksBuilder(n int) *blocksBuilder { return newBlocksBuilderWith(lowBits(n), n) }

// newBlocksBuilderWith is newBlocksBuilder with another number of low bits than the best.
func newBlocksBuilderWith(low uint, n int) *blocksBuilder {
	mem := newMemory(blocksBytes(low, n) + slack)
	return &blocksBuilder{low: low, mem: mem, stream: bitWriter{buf: mem.bytes, at: streamStart(low)}}
}

// add appends packed big-endian entries. It stops at the first that is not greater than the
// one before, and returns the number of bytes before that.
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

// reserve makes room for more entries. If there are too many entries per bucket, it makes
// the buckets smaller.
func (b *blocksBuilder) reserve(more int) {
	n := b.written + len(b.pending) + more
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

// writeBlock moves the pending entries into the stream.
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

// markBegins returns which buckets the pending entries use, and sets in begins the bit of
// each entry that begins a bucket. It has no branches: the processor could not predict them.
func (b *blocksBuilder) markBegins() (used [2]uint64) {
	words := (len(b.pending) + 63) / 64
	b.begins = slices.Grow(b.begins[:0], words)[:words]
	before := uint32(1 << bucketBits) // the number of no bucket
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

// record writes the number of entries before each block, up to the given block.
func (b *blocksBuilder) record(block int) {
	for ; b.recorded <= block; b.recorded++ {
		binary.LittleEndian.PutUint32(b.stream.buf[recordBytes*b.recorded:], uint32(b.written))
	}
}

// finish returns the set of all entries. There must be at least one. The builder must not be
// used afterwards.
func (b *blocksBuilder) finish() *blocks {
	if n := b.written + len(b.pending); !fits(b.low, n) {
		b.recode(n)
	}
	return b.close()
}

// close is finish without a change of memory or of low bits.
func (b *blocksBuilder) close() *blocks {
	b.writeBlock()
	b.record(blockCount(b.low))
	b.stream.flush()
	b.mem.bytes = b.mem.bytes[:blocksBytes(b.low, b.written)+slack]
	mem := fitted(b.mem)
	return &blocks{low: b.low, n: b.written, buf: mem.bytes, mem: mem}
}
