package protocol

import (
	"encoding/binary"
	"math/bits"
)

// The fast way to decode integers of four bytes. Most lists consist of these.

// readQuick is the fast loop for integers of four bytes. It stops at the first integer that
// needs advance: its difference is not wholly in the window, or the sum exceeds 32 bits.
func (r *riceReader) readQuick(p []byte) (n int) {
	if !r.begun {
		return 0
	}
	for more := 4; more > 0; n += more {
		n += r.readFours(p[n:])
		more = r.readOne(p[n:])
	}
	return n
}

// readFours reads four integers of four bytes at a time. It stops at the first four whose
// differences are not wholly in the window, or whose sum exceeds 32 bits.
func (r *riceReader) readFours(p []byte) (n int) {
	k, filled, data, value := uint(r.parameter)&31, r.filled, r.data, r.value[0]
	window := ^r.window & (1<<filled - 1)
	for ; r.left >= 4 && len(p)-n >= 16 && len(data) >= 8; r.left -= 4 {
		taken := (63 - filled) / 8
		first, rest, used1 := difference(window|^binary.LittleEndian.Uint64(data)<<(filled&63), k)
		second, rest, used2 := difference(rest, k)
		third, rest, used3 := difference(rest, k)
		fourth, rest, used4 := difference(rest, k)
		used := used1 + used2 + used3 + used4
		first += value
		second += first
		third += second
		fourth += third
		if used > filled+8*taken || fourth>>32 != 0 {
			break
		}
		data = data[taken:]
		window, filled, value = rest, filled+8*taken-used, fourth
		binary.BigEndian.PutUint64(p[n:], first<<32|second)
		binary.BigEndian.PutUint64(p[n+8:], third<<32|fourth)
		n += 16
	}
	r.window, r.filled, r.data, r.value[0] = ^window&(1<<filled-1), filled, data, value
	return n
}

// readOne is readFours for one integer.
func (r *riceReader) readOne(p []byte) (n int) {
	if r.left == 0 || len(p) < 4 || len(r.data) < 8 {
		return 0
	}
	r.fill()
	delta, _, used := difference(^r.window, uint(r.parameter)&31)
	value := r.value[0] + delta
	if used > r.filled || value>>32 != 0 {
		return 0
	}
	r.window, r.filled, r.value[0] = r.window>>used, r.filled-used, value
	r.left--
	binary.BigEndian.PutUint32(p, uint32(value))
	return 4
}

// difference returns the difference at the beginning of the complement of a window, the bits
// after it, and how many bits it takes. If it takes more than the window has, the rest is
// without meaning.
func difference(window uint64, k uint) (delta, rest uint64, used uint) {
	quotient := uint(bits.TrailingZeros64(window))
	used = quotient + (k + 1)
	return uint64(quotient)<<k | ^(window>>((quotient+1)&63))&(1<<k-1), window >> (used & 63), used
}
