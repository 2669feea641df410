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
	k, filled, data, value := r.quickParameter(), r.filled, r.data, r.value[0]
	window := ^r.window & (1<<filled - 1)
	at := 0 // in data
	for ; r.left >= 4 && len(p)-n >= 16 && len(data)-at >= 8; r.left -= 4 {
		taken := (63 - filled) / 8
		first, rest, used1 := difference(window|^binary.LittleEndian.Uint64(data[at:])<<(filled&63), k)
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
		at += int(taken)
		window, filled, value = rest, filled+8*taken-used, fourth
		binary.BigEndian.PutUint64(p[n:], first<<32|second)
		binary.BigEndian.PutUint64(p[n+8:], third<<32|fourth)
		n += 16
	}
	r.window, r.filled, r.data, r.value[0] = ^window&(1<<filled-1), filled, data[at:], value
	return n
}

// readOne is readFours for one integer.
func (r *riceReader) readOne(p []byte) (n int) {
	if r.left == 0 || len(p) < 4 || len(r.data) < 8 {
		return 0
	}
	r.fill()
	delta, _, used := difference(^r.window, r.quickParameter())
	value := r.value[0] + delta
	if used > r.filled || value>>32 != 0 {
		return 0
	}
	r.window, r.filled, r.value[0] = r.window>>used, r.filled-used, value
	r.left--
	binary.BigEndian.PutUint32(p, uint32(value))
	return 4
}

// quickParameter is the Rice parameter in the forms that difference needs.
type quickParameter struct {
	fixed uint   // bits of a difference without the ones of its quotient
	one   uint64 // the difference that a quotient of one stands for
}

func (r *riceReader) quickParameter() quickParameter {
	return quickParameter{fixed: uint(r.parameter+1) & 31, one: 1 << (uint(r.parameter) & 31)}
}

// difference returns the difference at the beginning of the complement of a window, the bits
// after it, and how many bits it takes. If it takes more than the window has, the rest is
// without meaning.
func difference(window uint64, k quickParameter) (delta, rest uint64, used uint) {
	if window == 0 {
		return 0, 0, 64
	}
	quotient := uint(bits.TrailingZeros64(window))
	used = quotient + k.fixed
	return uint64(quotient)*k.one + ^(window>>quotient>>1)&(k.one-1), window >> (used & 63), used
}
