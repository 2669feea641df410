package prefixset

import (
	"encoding/binary"
	"math/bits"
)

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
	at   int    // bytes written
	last uint64 // bits that are not written yet
	n    uint   // how many: 0 to 63
}

// put appends the n low bits of v; all bits above must be zero. n is 0 to 64.
func (w *bitWriter) put(v uint64, n uint) {
	w.last |= v << (w.n & 63)
	w.n += n
	if w.n >= 64 {
		binary.LittleEndian.PutUint64(w.buf[w.at:], w.last)
		w.at += 8
		w.n -= 64
		w.last = v >> (n - w.n)
	}
}

// flush writes the bits that do not fill a word.
func (w *bitWriter) flush() { binary.LittleEndian.PutUint64(w.buf[w.at:], w.last) }
