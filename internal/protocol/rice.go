package protocol

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"math/bits"

	"github.com/coredns-safebrowsing/safebrowsing/updater"
)

// rice is a list of ascending integers in Rice-delta coding ("Local Database"). It has the
// content of any of the four messages of the protocol.
type rice struct {
	width     int       // bytes of an integer: 4, 8, 16 or 32
	first     [4]uint64 // the first integer, least significant limb first
	parameter int32
	count     int32 // differences; there is one more integer
	data      []byte
	size      int64 // bytes of data that have not come yet
}

// coded has the methods that the messages of all widths share.
type coded interface {
	GetRiceParameter() int32
	GetEntriesCount() int32
	GetEncodedData() []byte
}

func newRice(width int, first [4]uint64, m coded) rice {
	return rice{width: width, first: first, parameter: m.GetRiceParameter(), count: m.GetEntriesCount(), data: m.GetEncodedData()}
}

// parameters are the least and the greatest allowed Rice parameter.
type parameters struct{ least, greatest int32 }

// parametersV5 returns the parameters of version 5 for a width: 3 to 30, 35 to 62, 99 to 126 or 227 to
// 254 (schema of version 5, RiceDeltaEncoded32Bit to RiceDeltaEncoded256Bit).
func parametersV5(width int) parameters {
	return parameters{int32(8*width) - 29, int32(8*width) - 2}
}

// check returns an error if the numbers of r contradict each other. It comes first: no
// memory is allocated for a false count.
func (r rice) check(p parameters) error {
	if r.count < 0 || r.count == math.MaxInt32 { // int(r.count)+1 must not overflow an int of 32 bits
		return fmt.Errorf("%w: Rice coding of %d differences", updater.ErrMalformed, r.count)
	}
	if r.count == 0 {
		return nil // a single integer: parameter and data have no meaning
	}
	if r.parameter < p.least || r.parameter > p.greatest {
		return fmt.Errorf("%w: Rice parameter %d, must be %d to %d", updater.ErrMalformed, r.parameter, p.least, p.greatest)
	}
	if size := int64(len(r.data)) + r.size; int64(r.count)*(int64(r.parameter)+1) > 8*size {
		return fmt.Errorf("%w: %d differences do not fit into %d bytes of Rice coding", updater.ErrMalformed, r.count, size)
	}
	return nil
}

// entries returns the integers as a stream that fails once ctx has ended. The caller must
// have called check.
func (r rice) entries(ctx context.Context) updater.Entries {
	return updater.Entries{Width: r.width, Count: int(r.count) + 1, Reader: during(ctx, r.reader())}
}

// reader returns a reader of the integers, big-endian, width bytes each. Surplus bits at the
// end of the data are padding. The caller must have called check.
func (r rice) reader() *riceReader {
	return &riceReader{rice: r, value: r.first, left: int(r.count) + 1}
}

// riceReader decodes integers as they are read. It is not safe for concurrent use.
type riceReader struct {
	rice
	value  [4]uint64 // the last integer, least significant limb first; at first rice.first
	begun  bool      // the first integer has been written
	left   int       // integers not written yet
	window uint64    // bits not used yet, the next one lowest
	filled uint      // the number of bits in window; all bits above are zero

	source io.Reader    // of the data that has not come yet; nil: all data has come
	buf    []byte       // backs data if there is a source
	end    func() error // called after the last integer; may be nil
}

// Read implements io.Reader. It writes whole integers only.
func (r *riceReader) Read(p []byte) (n int, err error) {
	if r.left == 0 {
		return 0, io.EOF
	}
	if len(p) < r.width {
		return 0, io.ErrShortBuffer
	}
	if r.width == 4 {
		n = r.readQuick(p)
	}
	for ; r.left > 0 && len(p)-n >= r.width; r.left-- {
		if err := r.advance(); err != nil {
			return n, err
		}
		if r.width == 4 {
			binary.BigEndian.PutUint32(p[n:], uint32(r.value[0]))
		} else {
			r.put(p[n:])
		}
		n += r.width
	}
	if r.left == 0 && r.end != nil {
		return n, r.end()
	}
	return n, nil
}

// put writes value, big-endian, for widths of 8 bytes and more.
func (r *riceReader) put(p []byte) {
	limbs := r.width / 8
	for i := range limbs {
		binary.BigEndian.PutUint64(p[8*i:], r.value[limbs-1-i])
	}
}

// advance adds the next difference to value. The first call leaves value as it is.
func (r *riceReader) advance() error {
	if !r.begun {
		r.begun = true
		return nil
	}
	quotient, err := r.unary()
	if err != nil {
		return err
	}
	k := uint(r.parameter)
	if r.width > 4 {
		return r.advanceWide(quotient, k)
	}
	remainder, err := r.take(k)
	if err != nil {
		return err
	}
	r.value[0] += quotient<<k | remainder
	if r.value[0]>>32 != 0 {
		return fmt.Errorf("%w: Rice-coded value exceeds 32 bits", updater.ErrMalformed)
	}
	return nil
}

// advanceWide is advance for widths of 8 bytes and more, with a quotient already read.
func (r *riceReader) advanceWide(quotient uint64, k uint) error {
	var delta [4]uint64
	for at := uint(0); at < k; at += 32 {
		part, err := r.take(min(32, k-at))
		if err != nil {
			return err
		}
		delta[at/64] |= part << (at % 64)
	}
	delta[k/64] |= quotient << (k % 64) // the highest limb: unary keeps the quotient within the width
	var carry uint64
	for i := range r.width / 8 {
		r.value[i], carry = bits.Add64(r.value[i], delta[i], carry)
	}
	if carry != 0 {
		return fmt.Errorf("%w: Rice-coded value exceeds %d bits", updater.ErrMalformed, 8*r.width)
	}
	return nil
}

// unary reads a number in unary coding: as many ones, then a zero. It stops at the greatest
// number that fits into the width, so a hostile run of ones takes no time.
func (r *riceReader) unary() (uint64, error) {
	greatest := uint64(1)<<(8*r.width-int(r.parameter)) - 1
	var n uint64
	for {
		r.fill()
		if r.filled == 0 {
			return 0, r.cut()
		}
		ones := uint(bits.TrailingZeros64(^r.window))
		if n += uint64(min(ones, r.filled)); n > greatest {
			return 0, fmt.Errorf("%w: Rice quotient exceeds %d", updater.ErrMalformed, greatest)
		}
		if ones < r.filled {
			r.window >>= ones + 1
			r.filled -= ones + 1
			return n, nil
		}
		r.window, r.filled = 0, 0
	}
}

// take reads the next n bits, at most 32; the first bit is the lowest.
func (r *riceReader) take(n uint) (uint64, error) {
	if r.filled < n {
		if r.fill(); r.filled < n {
			return 0, r.cut()
		}
	}
	v := r.window & (1<<n - 1)
	r.window >>= n
	r.filled -= n
	return v, nil
}

// cut returns the error for data that ends too early.
func (r *riceReader) cut() error {
	return fmt.Errorf("%w: Rice coding ends %d values too early", updater.ErrMalformed, r.left)
}

// fill fills the window to more than 56 bits, or with all bits that are left. The lowest bit
// of a byte comes first.
func (r *riceReader) fill() {
	if len(r.data) >= 8 {
		taken := (63 - r.filled) / 8
		r.window |= binary.LittleEndian.Uint64(r.data) << r.filled
		r.data = r.data[taken:]
		r.filled += 8 * taken
		r.window &= 1<<r.filled - 1
		return
	}
	if r.source != nil {
		r.more()
		r.fill()
		return
	}
	for r.filled <= 56 && len(r.data) > 0 {
		r.window |= uint64(r.data[0]) << r.filled
		r.data = r.data[1:]
		r.filled += 8
	}
}

// more reads from source until data has eight bytes or more, or source has ended.
func (r *riceReader) more() {
	if r.buf == nil {
		r.buf = make([]byte, 1<<15)
	}
	n := copy(r.buf, r.data)
	read, err := io.ReadAtLeast(r.source, r.buf[n:], 8)
	if r.data = r.buf[:n+read]; err != nil { // take and unary then fail with cut if they need more
		r.source = nil
	}
}

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
