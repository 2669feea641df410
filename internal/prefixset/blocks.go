package prefixset

import (
	"encoding/binary"
	"math/bits"
	"sort"
)

// blocks holds entries of four bytes, taken for numbers, in hardly more bits
// than an exact set needs. It is a form of Elias-Fano coding: the low bits of a
// number are stored as they are. The others name its bucket, of which 128 are a
// block, and are stored as what tells one bucket from the next.
//
//	number     block │ bucket (7 bits) │ low bits
//
//	directory  for each block: the number of entries before it (32 bits), and
//	           which of its buckets are in use (128 bits); in the end the number
//	           of all entries (32 bits)
//	stream     for each block: for each entry whether it is the first of its
//	           bucket (1 bit); then the low bits of each entry
//
// An entry takes low+1 bits of the stream, so that the number of entries before
// a block tells where it begins there. Most look-ups of what is not held end at
// the directory. Numbers are little-endian, bits begin with the least of a byte.
type blocks struct {
	low uint    // bits of an entry that are stored as they are: 0 to maxLow
	n   int     // entries
	buf []byte  // the directory, the stream, and slack bytes that mean nothing
	mem *memory // of buf
}

const (
	bucketBits  = 7 // of a number: its bucket in its block
	maxLow      = 32 - bucketBits
	recordBytes = 4 + 2*8

	// slack lets wordAt read behind the last bit.
	slack = 9
)

// lowBits returns how many bits of n entries should be stored as they are, so
// that there are 0.375 to 0.75 entries a bucket. One bit more would make a set
// by 1 in 200 smaller, but look-ups of what is not held slower by half.
func lowBits(n int) uint {
	const least = 3 << bucketBits / 8 // entries a block
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

// record is what the directory says of a block: a record, and how many entries
// are before the next block.
type record [recordBytes + 4]byte

func (p *blocks) record(block int) *record { return (*record)(p.buf[recordBytes*block:]) }

// used returns a bit for each of the first or of the last 64 buckets: it is in
// use. half is 0 or 1.
func (r *record) used(half uint32) uint64 { return binary.LittleEndian.Uint64(r[4+8*(half&1):]) }

// rank returns how many buckets before the given one are in use.
func (r *record) rank(bucket uint32) int {
	half := bucket / 64
	in := bits.OnesCount64(r.used(half) & (1<<(bucket%64) - 1))
	return in + int(half)*bits.OnesCount64(r.used(0))
}

// span is where the entries of a block are in the stream.
type span struct {
	at uint64 // the first bit, from the beginning of buf
	n  uint64 // entries
}

func (p *blocks) span(r *record) span {
	first := binary.LittleEndian.Uint32(r[:])
	return span{
		at: 8*uint64(streamStart(p.low)) + uint64(first)*uint64(p.low+1),
		n:  uint64(binary.LittleEndian.Uint32(r[recordBytes:]) - first),
	}
}

// lowAt returns the low bits of the entry with number i of a block.
func (p *blocks) lowAt(s span, i uint64) uint32 {
	return uint32(bitsAt(p.buf, s.at+s.n+i*uint64(p.low))) & (1<<(p.low&31) - 1)
}

// contains reports whether x is an entry.
func (p *blocks) contains(x uint32) bool {
	r := p.record(int(x >> (p.low&31 + bucketBits)))
	bucket := x >> (p.low & 31) % (1 << bucketBits)
	if r.used(bucket/64)>>(bucket%64)&1 == 0 {
		return false
	}
	want := x & (1<<(p.low&31) - 1)
	s := p.span(r)
	i := p.firstOf(s, r.rank(bucket))
	for range 16 {
		if got := p.lowAt(s, i); got >= want {
			return got == want
		}
		i++
		if i == s.n || bitsAt(p.buf, s.at+i)&1 != 0 {
			return false
		}
	}
	return p.containsFrom(s, i, want)
}

// firstOf returns the number in its block of the first entry of the bucket that
// has rank used ones before it.
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

// containsFrom searches the bucket of entry i, from there to its end. It is for
// buckets that are much longer than usual.
func (p *blocks) containsFrom(s span, i uint64, want uint32) bool {
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
	return found < count && p.lowAt(s, i+uint64(found)) == want
}
