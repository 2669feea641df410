package lookup

import (
	"encoding/binary"
	"math/bits"
	"sort"
)

// blocks holds entries of four bytes, taken for numbers, in hardly more bits
// than an exact set needs. It is a form of Elias-Fano coding: the low bits of a
// number are stored as they are, and the others, which name its bucket, as what
// they add to those of the number before. 64 buckets are a block.
//
//	number   │ block        │ bucket: 6 bits │ low bits │
//
//	directory  for each block: the number of entries before it (32 bits), and
//	           which of its buckets are used (64 bits); in the end the number of
//	           all entries (32 bits)
//	stream     for each block: for each entry whether it is the first of its
//	           bucket (1 bit); then the low bits of each entry
//
// An entry takes low+1 bits of the stream, so that the number of entries before
// a block tells where it begins there. Half of the look-ups of what is not held
// end at the directory. Numbers are little-endian, bits begin with the least of
// a byte.
type blocks struct {
	low uint    // bits of an entry that are stored as they are: 0 to maxLow
	n   int     // entries
	buf []byte  // the directory, the stream, and slack bytes that mean nothing
	mem *memory // of buf
}

const (
	bucketBits  = 6 // of a number: its bucket in its block
	buckets     = 1 << bucketBits
	maxLow      = 32 - bucketBits // there is one block then
	recordBytes = 4 + 8

	// slack lets wordAt read behind the last bit.
	slack = 9
)

// lowBits returns how many bits of n entries should be stored as they are: a
// set is smallest with 0.75 to 1.5 entries a bucket.
func lowBits(n int) uint {
	const least = buckets * 3 / 4 // entries a block
	return uint(min(max(maxLow+1-bits.Len(uint(n/least)), 0), maxLow))
}

// fits reports whether low is what it should be for n entries, or almost.
func fits(low uint, n int) bool {
	best := lowBits(n)
	return low <= best+1 && best <= low+1
}

func blockCount(low uint) int { return 1 << (maxLow - low&31) }

// streamStart returns where the stream begins in buf, in bytes.
func streamStart(low uint) int { return recordBytes*blockCount(low) + 4 }

// blocksBytes returns the bytes of directory and stream of n entries.
func blocksBytes(low uint, n int) int { return streamStart(low) + int((int64(n)*int64(low+1)+7)/8) }

func (p *blocks) len() int { return p.n }

func (p *blocks) bytes() int { return len(p.buf) }

// record is what the directory says of a block.
type record struct {
	used uint64 // a bit for each bucket: it has entries
	at   uint64 // where its stream begins, in bits from the beginning of buf
	n    uint64 // its entries
}

func (p *blocks) record(block int) record {
	r := (*[recordBytes + 4]byte)(p.buf[recordBytes*block:])
	first := binary.LittleEndian.Uint32(r[:])
	return record{
		used: binary.LittleEndian.Uint64(r[4:]),
		at:   8*uint64(streamStart(p.low)) + uint64(first)*uint64(p.low+1),
		n:    uint64(binary.LittleEndian.Uint32(r[recordBytes:]) - first),
	}
}

// lowAt returns the low bits of the entry with number i of a block.
func (p *blocks) lowAt(r record, i uint64) uint32 {
	return uint32(bitsAt(p.buf, r.at+r.n+i*uint64(p.low))) & (1<<(p.low&31) - 1)
}

// contains reports whether x is an entry.
func (p *blocks) contains(x uint32) bool {
	r := p.record(int(x >> (p.low&31 + bucketBits)))
	bucket := x >> (p.low & 31) & 63
	if r.used>>(bucket&63)&1 == 0 {
		return false
	}
	want := x & (1<<(p.low&31) - 1)
	i := p.firstOf(r, bits.OnesCount64(r.used&(1<<(bucket&63)-1)))
	for range 16 {
		if got := p.lowAt(r, i); got >= want {
			return got == want
		}
		i++
		if i == r.n || bitsAt(p.buf, r.at+i)&1 != 0 {
			return false
		}
	}
	return p.containsFrom(r, i, want)
}

// firstOf returns the number in its block of the first entry of the bucket that
// has rank used ones before it.
func (p *blocks) firstOf(r record, rank int) uint64 {
	for i := uint64(0); ; i += 64 {
		w := wordAt(p.buf, r.at+i)
		ones := bits.OnesCount64(w)
		if rank < ones {
			return i + uint64(select64(w, rank))
		}
		rank -= ones
	}
}

// containsFrom searches the bucket of entry i, from there to its end. It is for
// buckets that are much longer than usual.
func (p *blocks) containsFrom(r record, i uint64, want uint32) bool {
	end := i + 1
	for end < r.n {
		zeros := bits.TrailingZeros64(wordAt(p.buf, r.at+end))
		end += uint64(zeros)
		if zeros < 64 {
			break
		}
	}
	count := int(min(end, r.n) - i)
	found := sort.Search(count, func(j int) bool { return p.lowAt(r, i+uint64(j)) >= want })
	return found < count && p.lowAt(r, i+uint64(found)) == want
}
