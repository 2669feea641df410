package protocoltest

import (
	"encoding/binary"
	"math/bits"

	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol/pb/sbv5"
)

// EncodeRice32 returns the Rice-delta coding of values, which must be ascending.
// No values give nil (no message); one value gives a message without parameter,
// count and data (page "Local Database").
func EncodeRice32(values []uint32) *sbv5.RiceDeltaEncoded32Bit {
	if len(values) == 0 {
		return nil
	}
	m := &sbv5.RiceDeltaEncoded32Bit{FirstValue: values[0]}
	m.RiceParameter, m.EntriesCount, m.EncodedData = encodeGaps32(values, 3, 30)
	return m
}

// encodeGaps32 codes the differences between ascending values with a parameter
// between least and most. For a single value all results are zero.
func encodeGaps32(values []uint32, least, most int) (parameter, entries int32, data []byte) {
	count := len(values) - 1
	if count < 1 {
		return 0, 0, nil
	}
	mean := uint64(values[count]-values[0]) / uint64(count)
	k := min(max(bits.Len64(mean)-1, least), most)
	return int32(k), int32(count), gaps32(values, k)
}

// gaps32 codes the differences between values with the parameter k.
func gaps32(values []uint32, k int) []byte {
	w := newBitWriter(len(values)-1, k)
	low := uint64(1)<<k - 1
	for i := 1; i < len(values); i++ {
		gap := uint64(values[i] - values[i-1])
		w.unary(gap >> k)
		w.bits(gap&low, uint(k))
	}
	return w.finish()
}

// EncodeAdditions puts entries, in any order and each width bytes long, into the
// additions field of that width. Without entries the field stays absent.
func EncodeAdditions(width int, entries [][]byte, into *sbv5.HashList) {
	setAdditions(into, width, sorted(entries))
}

// setAdditions is EncodeAdditions for entries in order.
// Equal neighbours are coded as they are, which the fault Duplicate needs.
func setAdditions(into *sbv5.HashList, width int, entries []string) {
	into.CompressedAdditions = nil
	if len(entries) == 0 {
		return
	}
	n := len(entries)
	at := func(i int) wide { return wideOf([]byte(entries[i])) }
	switch width {
	case 4:
		values := make([]uint32, n)
		for i := range values {
			values[i] = binary.BigEndian.Uint32([]byte(entries[i]))
		}
		into.CompressedAdditions = &sbv5.HashList_AdditionsFourBytes{AdditionsFourBytes: EncodeRice32(values)}
	case 8:
		into.CompressedAdditions = &sbv5.HashList_AdditionsEightBytes{AdditionsEightBytes: encode64(n, at)}
	case 16:
		into.CompressedAdditions = &sbv5.HashList_AdditionsSixteenBytes{AdditionsSixteenBytes: encode128(n, at)}
	case 32:
		into.CompressedAdditions = &sbv5.HashList_AdditionsThirtyTwoBytes{AdditionsThirtyTwoBytes: encode256(n, at)}
	}
}

// legalParameter moves k into the range that the coding of that many bits
// allows: 35..62, 99..126, 227..254 (page "Local Database").
func legalParameter(k, width int) int {
	return min(max(k, width-29), width-2)
}

// bitWriter writes bits from the least significant bit of each byte upwards, as
// Rice-delta coding and DEFLATE do.
type bitWriter struct {
	out     []byte
	pending uint64 // the low n bits wait to be written
	n       uint   // always below 32 between calls
}

// newBitWriter returns a writer with room for count values of parameter k: near
// the best parameter the quotient takes about two bits.
func newBitWriter(count, k int) *bitWriter {
	return &bitWriter{out: make([]byte, 0, count*(k+3)/8+8)}
}

// bits writes the low n bits of v, n at most 32; the higher bits must be zero.
func (w *bitWriter) bits(v uint64, n uint) {
	w.pending |= v << w.n
	w.n += n
	if w.n < 32 {
		return
	}
	w.out = binary.LittleEndian.AppendUint32(w.out, uint32(w.pending))
	w.pending >>= 32
	w.n -= 32
}

// unary writes q ones and a zero.
func (w *bitWriter) unary(q uint64) {
	for ; q >= 31; q -= 31 {
		w.bits(1<<31-1, 31)
	}
	w.bits(1<<q-1, uint(q)+1)
}

// finish pads the last byte with zeros and returns all bytes.
func (w *bitWriter) finish() []byte {
	for written := uint(0); written < w.n; written += 8 {
		w.out = append(w.out, byte(w.pending>>written))
	}
	return w.out
}

// encode64 is EncodeRice32 for n values of 64 bits, at least one.
func encode64(n int, at func(int) wide) *sbv5.RiceDeltaEncoded64Bit {
	m := &sbv5.RiceDeltaEncoded64Bit{FirstValue: at(0)[0]}
	m.RiceParameter, m.EntriesCount, m.EncodedData = encodeGaps(64, n, at)
	return m
}

func encode128(n int, at func(int) wide) *sbv5.RiceDeltaEncoded128Bit {
	first := at(0)
	m := &sbv5.RiceDeltaEncoded128Bit{FirstValueHi: first[1], FirstValueLo: first[0]}
	m.RiceParameter, m.EntriesCount, m.EncodedData = encodeGaps(128, n, at)
	return m
}

func encode256(n int, at func(int) wide) *sbv5.RiceDeltaEncoded256Bit {
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
