package protocoltest

import (
	"encoding/binary"
	"math/bits"

	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol/pb/sbv5"
)

// EncodeRice64 is EncodeRice32 for values of 64 bits.
func EncodeRice64(values []uint64) *sbv5.RiceDeltaEncoded64Bit {
	return encode64(len(values), func(i int) wide { return wide{values[i]} })
}

// EncodeRice128 is EncodeRice32 for values of 128 bits, high part first.
func EncodeRice128(values [][2]uint64) *sbv5.RiceDeltaEncoded128Bit {
	return encode128(len(values), func(i int) wide { return wide{values[i][1], values[i][0]} })
}

// EncodeRice256 is EncodeRice32 for values of 256 bits, most significant part first.
func EncodeRice256(values [][4]uint64) *sbv5.RiceDeltaEncoded256Bit {
	return encode256(len(values), func(i int) wide {
		v := values[i]
		return wide{v[3], v[2], v[1], v[0]}
	})
}

func encode64(n int, at func(int) wide) *sbv5.RiceDeltaEncoded64Bit {
	if n == 0 {
		return nil
	}
	m := &sbv5.RiceDeltaEncoded64Bit{FirstValue: at(0)[0]}
	m.RiceParameter, m.EntriesCount, m.EncodedData = encodeGaps(64, n, at)
	return m
}

func encode128(n int, at func(int) wide) *sbv5.RiceDeltaEncoded128Bit {
	if n == 0 {
		return nil
	}
	first := at(0)
	m := &sbv5.RiceDeltaEncoded128Bit{FirstValueHi: first[1], FirstValueLo: first[0]}
	m.RiceParameter, m.EntriesCount, m.EncodedData = encodeGaps(128, n, at)
	return m
}

func encode256(n int, at func(int) wide) *sbv5.RiceDeltaEncoded256Bit {
	if n == 0 {
		return nil
	}
	first := at(0)
	m := &sbv5.RiceDeltaEncoded256Bit{
		FirstValueFirstPart: first[3], FirstValueSecondPart: first[2],
		FirstValueThirdPart: first[1], FirstValueFourthPart: first[0],
	}
	m.RiceParameter, m.EntriesCount, m.EncodedData = encodeGaps(256, n, at)
	return m
}

// encodeGaps codes the differences between n ascending values of width bits. For
// a single value all results are zero.
func encodeGaps(width, n int, at func(int) wide) (parameter, count int32, data []byte) {
	if n < 2 {
		return 0, 0, nil
	}
	span := at(n - 1).minus(at(0))
	k := legalParameter(span.bitLen()-bits.Len(uint(n-1)), width)
	w := newBitWriter(n-1, k)
	for i := 1; i < n; i++ {
		gap := at(i).minus(at(i - 1))
		w.unary(gap.above(k))
		for rest, word := k, 0; rest > 0; rest, word = rest-64, word+1 {
			w.word(gap[word], uint(min(rest, 64)))
		}
	}
	return int32(k), int32(n - 1), w.finish()
}

// word writes the low n bits of v, n at most 64.
func (w *bitWriter) word(v uint64, n uint) {
	first := min(n, 32)
	w.bits(v&(1<<first-1), first)
	if n > 32 {
		w.bits(v>>32&(1<<(n-32)-1), n-32)
	}
}

// wide is an unsigned number of up to 256 bits, least significant word first.
type wide [4]uint64

// wideOf reads a big-endian number of 8, 16 or 32 bytes, the byte order of v5 at
// every width.
func wideOf(b []byte) (v wide) {
	for i := 0; len(b) > 0; i++ {
		v[i] = binary.BigEndian.Uint64(b[len(b)-8:])
		b = b[:len(b)-8]
	}
	return v
}

func (a wide) minus(b wide) (d wide) {
	var borrow uint64
	for i := range a {
		d[i], borrow = bits.Sub64(a[i], b[i], borrow)
	}
	return d
}

func (a wide) bitLen() int {
	for i := len(a) - 1; i >= 0; i-- {
		if a[i] != 0 {
			return 64*i + bits.Len64(a[i])
		}
	}
	return 0
}

// above returns a >> k, which fits one word because a legal k leaves at most 29
// bits above it.
func (a wide) above(k int) uint64 {
	word, shift := k/64, uint(k%64)
	v := a[word] >> shift
	if word+1 < len(a) {
		v |= a[word+1] << (64 - shift) // a shift by 64 gives 0
	}
	return v
}
