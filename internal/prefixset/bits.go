package prefixset

import (
	"encoding/binary"
	"math/bits"
)

// uint32At returns the big-endian number at b[i]. It takes fewer instructions than a slice of b.
func uint32At(b []byte, i int) uint32 {
	return uint32(b[i+3]) | uint32(b[i+2])<<8 | uint32(b[i+1])<<16 | uint32(b[i])<<24
}

// putUint32At writes v, big-endian, at b[i].
func putUint32At(b []byte, i int, v uint32) {
	b[i+3], b[i+2], b[i+1], b[i] = byte(v), byte(v>>8), byte(v>>16), byte(v>>24)
}

// bitsAt returns at least 57 bits, from the given one on.
func bitsAt(buf []byte, at uint64) uint64 {
	return binary.LittleEndian.Uint64(buf[at>>3:]) >> (at & 7)
}

// wordAt returns 64 bits, from the given one on.
func wordAt(buf []byte, at uint64) uint64 {
	b := (*[9]byte)(buf[at>>3:])
	return binary.LittleEndian.Uint64(b[:])>>(at&7) | uint64(b[8])<<(64-at&7)
}

// select64 returns the position of the set bit of w with rank set bits below it. w must have
// more than rank set bits.
func select64(w uint64, rank int) int {
	const eachByte = 0x0101010101010101
	sums := w - w>>1&0x5555555555555555
	sums = sums&0x3333333333333333 + sums>>2&0x3333333333333333
	sums = (sums + sums>>4) & 0x0f0f0f0f0f0f0f0f * eachByte // ones up to the end of each byte
	more := (sums | eachByte<<7) - uint64(rank+1)*eachByte  // top bit: sum > rank
	place := 8 * uint(bits.OnesCount64(^more&(eachByte<<7)))
	before := int(sums << 8 >> (place & 63) & 0xff)
	return int(place) + int(selectInByte[(rank-before)&7][w>>(place&63)&0xff])
}

// selectInByte is select64 for a byte, by rank and byte.
var selectInByte = func() (places [8][256]uint8) {
	for b := range 256 {
		rank := 0
		for place := range 8 {
			if b>>place&1 != 0 {
				places[rank][b] = uint8(place)
				rank++
			}
		}
	}
	return places
}()

// bitWriter appends bits to a buffer. The buffer must have room for them and for 7 bytes
// more, because put writes whole words.
type bitWriter struct {
	buf  []byte
	at   int    // whole bytes written
	last uint64 // the bits after them
	n    uint   // how many: 0 to 7
}

// put appends the n low bits of v; all bits above must be zero. n is 0 to maxPut. It has no
// branches: the processor could not predict them.
func (w *bitWriter) put(v uint64, n uint) {
	w.last |= v << (w.n & 7)
	binary.LittleEndian.PutUint64(w.buf[w.at:], w.last)
	w.n += n
	w.at += int(w.n / 8)
	w.last >>= w.n &^ 7 & 63
	w.n %= 8
}

// maxPut is the most bits for put.
const maxPut = 56

// putLow appends the low bits of packed big-endian entries. low is 0 to 31.
func (w *bitWriter) putLow(entries []byte, low uint) {
	low &= 31
	if 4*low <= maxPut && len(entries) >= 16 {
		w.putFours(entries, low)
		return
	}
	for ; len(entries) >= 4; entries = entries[4:] {
		w.put(uint64(binary.BigEndian.Uint32(entries)&(1<<low-1)), low)
	}
}

// putFours is putLow for four entries or more. low is at most maxPut/4.
func (w *bitWriter) putFours(entries []byte, low uint) {
	buf, at, last, n := w.buf, w.at, w.last, w.n
	for i := 0; i <= len(entries)-16; i += 16 {
		last |= lowOfFour(entries[i:], low) << (n & 7)
		binary.LittleEndian.PutUint64(buf[at:], last)
		n += 4 * low
		at += int(n / 8)
		last >>= n &^ 7 & 63
		n %= 8
	}
	w.at, w.last, w.n = at, last, n
	rest := uint(len(entries)) / 4 % 4 // the last entries; those before them are shifted out
	w.put(lowOfFour(entries[len(entries)-16:], low)>>((4-rest)*low&63), rest*low)
}

// lowOfFour returns the low bits of the first four packed entries, the first entry's lowest.
func lowOfFour(entries []byte, low uint) uint64 {
	mask := uint64(1)<<(low&31) - 1
	both, join := mask<<32|mask, uint64(1)<<(32+low&63)+1
	// A product has, in its upper half, the low bits of one entry and above these the low bits
	// of the next.
	first := binary.BigEndian.Uint64(entries) & both * join >> 32
	second := binary.BigEndian.Uint64(entries[8:]) & both * join >> 32
	return first | second<<(2*low&63)
}

// flush writes the bits that do not fill a byte.
func (w *bitWriter) flush() { binary.LittleEndian.PutUint64(w.buf[w.at:], w.last) }
