package protocol

import (
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"math"
	"math/bits"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol/pb/sbv5"
)

// errOrder says that entries are not in ascending order or not distinct.
var errOrder = errors.New("entries are not in ascending order, each once")

// RicePlan says how ascending entries of one width become a message of version 5 in
// Rice-delta coding ("Local Database"). It knows the exact size before a byte is written,
// so that millions of entries are encoded into one buffer of that size. A RicePlan is a
// value; the zero RicePlan stands for no entries, which have no message.
type RicePlan struct {
	width       int
	n           int // entries
	first, last wide
	k           uint // the Rice parameter
	data        int  // bytes of coded data
}

// PlanRice plans the coding of entries: runs of whole entries, big-endian, width bytes each
// (4, 8, 16 or 32). It reads runs twice and keeps nothing of them. It returns
// errOrder if the entries are not in ascending order, each once.
func PlanRice(width int, runs iter.Seq[[]byte]) (RicePlan, error) {
	if _, ok := fieldOfData[width]; !ok {
		return RicePlan{}, fmt.Errorf("entries of %d bytes, must be 4, 8, 16 or 32", width)
	}
	p := RicePlan{width: width}
	for run := range runs {
		if len(run)%width != 0 {
			return RicePlan{}, errors.New("a run ends inside an entry")
		}
		if len(run) == 0 {
			continue
		}
		if p.n == 0 {
			p.first = wideOf(run[:width])
		}
		p.last = wideOf(run[len(run)-width:])
		p.n += len(run) / width
	}
	if p.n < 2 {
		return p, nil
	}
	p.k = riceParameter(p.last.minus(p.first), p.n-1, width)
	quotients, err := p.quotients(runs)
	p.data = int((uint64(p.n-1)*uint64(p.k+1) + quotients + 7) / 8)
	return p, err
}

// riceParameter returns the parameter for n differences that add up to span. A. Kiely,
// "Selecting the Golomb Parameter in Rice Coding" (IPN Progress Report 42-159, 2004): for a
// large mean m the best parameter is the logarithm of 0.9624 m, rounded down; 0.9624 is twice
// the logarithm of the golden ratio. The bounds come from version 5 ("Local Database").
func riceParameter(span wide, n, width int) uint {
	bounds := parametersV5(width)
	best := math.Ilogb(0.9624 * span.float() / float64(n))
	return uint(min(max(best, int(bounds.least)), int(bounds.greatest)))
}

// quotients returns the sum of the quotients of all differences: the number of ones in
// unary coding.
func (p RicePlan) quotients(runs iter.Seq[[]byte]) (sum uint64, err error) {
	before, begun := p.first, false
	for run := range runs {
		if !begun && len(run) > 0 {
			run, begun = run[p.width:], true
		}
		if p.width == 4 {
			value := uint32(before[0])
			for ; len(run) >= 4; run = run[4:] {
				next := binary.BigEndian.Uint32(run)
				if next <= value {
					return 0, errOrder
				}
				sum += uint64((next - value) >> (p.k & 31))
				value = next
			}
			before[0] = uint64(value)
			continue
		}
		for ; len(run) > 0; run = run[p.width:] {
			next := wideOf(run[:p.width])
			if !before.less(next) {
				return 0, errOrder
			}
			sum += next.minus(before).above(p.k)
			before = next
		}
	}
	return sum, nil
}

// Size returns the number of bytes that AppendField appends.
func (p RicePlan) Size(field protowire.Number) int {
	if p.n == 0 {
		return 0
	}
	return protowire.SizeTag(field) + protowire.SizeBytes(p.messageSize(len(p.head())))
}

// messageSize returns the bytes of the message. head are those before the coded data.
func (p RicePlan) messageSize(head int) int {
	if p.n < 2 { // a single value has no parameter, no count and no data
		return head
	}
	return head + protowire.SizeTag(fieldOfData[p.width]) + protowire.SizeBytes(p.data)
}

// head returns the message without the coded data.
func (p RicePlan) head() []byte {
	k, count, v := int32(p.k), int32(max(p.n-1, 0)), p.first
	var m proto.Message
	switch p.width {
	case 4:
		m = &sbv5.RiceDeltaEncoded32Bit{FirstValue: uint32(v[0]), RiceParameter: k, EntriesCount: count}
	case 8:
		m = &sbv5.RiceDeltaEncoded64Bit{FirstValue: v[0], RiceParameter: k, EntriesCount: count}
	case 16:
		m = &sbv5.RiceDeltaEncoded128Bit{FirstValueHi: v[1], FirstValueLo: v[0], RiceParameter: k, EntriesCount: count}
	case 32:
		m = &sbv5.RiceDeltaEncoded256Bit{FirstValueFirstPart: v[3], FirstValueSecondPart: v[2], FirstValueThirdPart: v[1],
			FirstValueFourthPart: v[0], RiceParameter: k, EntriesCount: count}
	}
	head, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		panic(err) // a message of numbers can always be written
	}
	return head
}

// AppendField appends a field with the message of the entries that p was planned for, with
// its tag and its length. Without entries it appends nothing. It reads runs once. Give dst
// room for Size bytes: it then does not move.
func (p RicePlan) AppendField(dst []byte, field protowire.Number, runs iter.Seq[[]byte]) []byte {
	if p.n == 0 {
		return dst
	}
	head := p.head()
	dst = protowire.AppendTag(dst, field, protowire.BytesType)
	dst = protowire.AppendVarint(dst, uint64(p.messageSize(len(head))))
	dst = append(dst, head...)
	if p.n < 2 {
		return dst
	}
	dst = protowire.AppendTag(dst, fieldOfData[p.width], protowire.BytesType)
	dst = protowire.AppendVarint(dst, uint64(p.data))
	return p.appendData(dst, runs)
}

// appendData appends the coded differences.
func (p RicePlan) appendData(dst []byte, runs iter.Seq[[]byte]) []byte {
	w := riceWriter{out: dst}
	before, begun := p.first, false
	for run := range runs {
		if !begun && len(run) > 0 {
			run, begun = run[p.width:], true
		}
		if p.width == 4 {
			before[0] = uint64(w.gaps32(uint32(before[0]), run, p.k))
			continue
		}
		for ; len(run) > 0; run = run[p.width:] {
			next := wideOf(run[:p.width])
			w.gap(next.minus(before), p.k)
			before = next
		}
	}
	return w.finish()
}

// riceWriter writes bits from the least significant bit of each byte upwards.
type riceWriter struct {
	out     []byte
	pending uint64 // the low n bits are not in out yet; all bits above are zero
	n       uint   // below 32 between calls
}

// bits writes the low n bits of v, at most 32. The higher bits must be zero.
func (w *riceWriter) bits(v uint64, n uint) {
	w.pending |= v << w.n
	if w.n += n; w.n >= 32 {
		w.out = binary.LittleEndian.AppendUint32(w.out, uint32(w.pending))
		w.pending >>= 32
		w.n -= 32
	}
}

// unary writes q ones and a zero.
func (w *riceWriter) unary(q uint64) {
	for ; q >= 31; q -= 31 {
		w.bits(1<<31-1, 31)
	}
	w.bits(1<<q-1, uint(q)+1)
}

// gaps32 writes the differences between value and the entries of four bytes in run, one
// after the other, and returns the last entry.
func (w *riceWriter) gaps32(value uint32, run []byte, k uint) uint32 {
	for ; len(run) >= 4; run = run[4:] {
		next := binary.BigEndian.Uint32(run)
		gap := uint64(next - value)
		value = next
		q, low := gap>>(k&31), gap&(1<<(k&31)-1)
		if uint64(k)+q < 32 { // almost always: one write for both parts
			w.bits(1<<q-1|low<<(q+1), uint(q)+1+k)
			continue
		}
		w.unary(q)
		w.bits(low, k)
	}
	return value
}

// gap writes one difference of a width above four bytes.
func (w *riceWriter) gap(gap wide, k uint) {
	w.unary(gap.above(k))
	for at := uint(0); at < k; at += 32 {
		part := gap[at/64] >> (at % 64) & (1<<32 - 1)
		n := min(32, k-at)
		w.bits(part&(1<<n-1), n)
	}
}

// finish pads the last byte with zeros and returns all bytes.
func (w *riceWriter) finish() []byte {
	for written := uint(0); written < w.n; written += 8 {
		w.out = append(w.out, byte(w.pending>>written))
	}
	return w.out
}

// wide is an unsigned number of up to 256 bits, least significant limb first.
type wide [4]uint64

// wideOf reads a big-endian number of 4, 8, 16 or 32 bytes, the byte order of version 5.
func wideOf(b []byte) (v wide) {
	if len(b) == 4 {
		return wide{uint64(binary.BigEndian.Uint32(b))}
	}
	for i := 0; len(b) >= 8; i++ {
		v[i] = binary.BigEndian.Uint64(b[len(b)-8:])
		b = b[:len(b)-8]
	}
	return v
}

func (v wide) minus(u wide) (d wide) {
	var borrow uint64
	for i := range v {
		d[i], borrow = bits.Sub64(v[i], u[i], borrow)
	}
	return d
}

func (v wide) less(u wide) bool {
	var borrow uint64
	for i := range v {
		_, borrow = bits.Sub64(v[i], u[i], borrow)
	}
	return borrow != 0
}

// above returns v >> k. An allowed parameter leaves at most 29 bits above it.
func (v wide) above(k uint) uint64 {
	limb, shift := k/64, k%64
	high := v[limb] >> shift
	if limb+1 < uint(len(v)) {
		high |= v[limb+1] << (64 - shift) // a shift by 64 gives 0
	}
	return high
}

// float returns v, rounded.
func (v wide) float() (f float64) {
	for i := len(v) - 1; i >= 0; i-- {
		f = f*(1<<64) + float64(v[i])
	}
	return f
}
