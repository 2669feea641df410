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

// rice is a list of ascending integers in Rice-delta coding ("Local Database"),
// as the four messages of the protocol hold it.
type rice struct {
	width     int       // bytes of an integer: 4, 8, 16 or 32
	first     [4]uint64 // the first integer, least significant limb first
	parameter int32
	count     int32 // of differences: one less than there are integers
	data      []byte
	size      int64 // bytes of data that are still to come; 0: all of it is in data
}

// coded is what the messages of all widths have.
type coded interface {
	GetRiceParameter() int32
	GetEntriesCount() int32
	GetEncodedData() []byte
}

func newRice(width int, first [4]uint64, m coded) rice {
	return rice{width: width, first: first, parameter: m.GetRiceParameter(), count: m.GetEntriesCount(), data: m.GetEncodedData()}
}

// parameters are the least and the greatest Rice parameter.
type parameters struct{ least, greatest int32 }

// parametersV5 are those of version 5 at each width.
func parametersV5(width int) parameters {
	switch width {
	case 4:
		return parameters{3, 30}
	case 8:
		return parameters{35, 62}
	case 16:
		return parameters{99, 126}
	}
	return parameters{227, 254}
}

// check finds what is wrong with the numbers around the data, before anything
// is allocated or decoded for them.
func (r rice) check(p parameters) error {
	if r.count < 0 || r.count == math.MaxInt32 { // there is one integer more, and int may have 32 bits
		return fmt.Errorf("%w: Rice coding of %d differences", updater.ErrMalformed, r.count)
	}
	if r.count == 0 {
		return nil // one integer: parameter and data are not looked at
	}
	if r.parameter < p.least || r.parameter > p.greatest {
		return fmt.Errorf("%w: Rice parameter %d, must be %d to %d", updater.ErrMalformed, r.parameter, p.least, p.greatest)
	}
	if size := int64(len(r.data)) + r.size; int64(r.count)*(int64(r.parameter)+1) > 8*size {
		return fmt.Errorf("%w: %d differences cannot be in %d bytes of Rice coding", updater.ErrMalformed, r.count, size)
	}
	return nil
}

// entries returns the integers as a stream that fails once ctx has ended. The
// caller has checked r.
func (r rice) entries(ctx context.Context) updater.Entries {
	return updater.Entries{Width: r.width, Count: int(r.count) + 1, Reader: during(ctx, r.reader())}
}

// reader returns the integers, big-endian, width bytes each. Bits left over at
// the end are padding. The caller has checked r.
func (r rice) reader() *riceReader {
	return &riceReader{rice: r, value: r.first, left: int(r.count) + 1}
}

// riceReader decodes while it is read.
type riceReader struct {
	rice
	value  [4]uint64 // the integer to write next, least significant limb first
	begun  bool      // value is the result of a difference or has been written
	left   int       // integers not yet written
	window uint64    // bits of data not yet used, the next one lowest
	filled uint      // how many bits are in window; those above are zero

	source io.Reader    // of data that is still to come; nil: none is
	buf    []byte       // that data is in, if there is a source
	end    func() error // called when the last integer has been decoded; nil: nobody wants to know
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

func (r *riceReader) put(p []byte) {
	limbs := r.width / 8
	for i := range limbs {
		binary.BigEndian.PutUint64(p[8*i:], r.value[limbs-1-i])
	}
}

// advance adds the next difference to value.
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

func (r *riceReader) advanceWide(quotient uint64, k uint) error {
	var delta [4]uint64
	for at := uint(0); at < k; at += 32 {
		part, err := r.take(min(32, k-at))
		if err != nil {
			return err
		}
		delta[at/64] |= part << (at % 64)
	}
	delta[k/64] |= quotient << (k % 64)
	if high := quotient >> (64 - k%64); high != 0 { // unary keeps this within the width
		delta[k/64+1] |= high
	}
	var carry uint64
	for i := range r.width / 8 {
		r.value[i], carry = bits.Add64(r.value[i], delta[i], carry)
	}
	if carry != 0 {
		return fmt.Errorf("%w: Rice-coded value exceeds %d bits", updater.ErrMalformed, 8*r.width)
	}
	return nil
}

// unary reads a number written as so many ones and a zero. The greatest that
// makes sense is checked while counting, so that a run of ones ends soon.
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

// take reads the next n bits, at most 32, the least significant first.
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

func (r *riceReader) cut() error {
	return fmt.Errorf("%w: Rice coding ends with %d values to come", updater.ErrMalformed, r.left)
}

// fill tops the window up to more than 56 bits, or to all that is left. Bits
// are taken from each byte from the lowest up.
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

// more reads more data, so much that there are eight bytes or no source any more.
func (r *riceReader) more() {
	if r.buf == nil {
		r.buf = make([]byte, 1<<15)
	}
	n := copy(r.buf, r.data)
	read, err := io.ReadAtLeast(r.source, r.buf[n:], 8)
	if r.data = r.buf[:n+read]; err != nil { // what is missing will be missed
		r.source = nil
	}
}

// readQuick writes integers of four bytes as long as none needs a second look: the
// whole difference is in the window, and the sum fits.
func (r *riceReader) readQuick(p []byte) (n int) {
	if !r.begun {
		return 0
	}
	k, window, filled, data, value := uint(r.parameter)&31, r.window, r.filled, r.data, r.value[0]
	for ; r.left > 0 && len(p) >= 4 && len(data) >= 8; r.left-- {
		more := window | binary.LittleEndian.Uint64(data)<<(filled&63)
		taken := (63 - filled) / 8
		quotient := uint(bits.TrailingZeros64(^more))
		used := quotient + 1 + k
		next := value + uint64(quotient)<<k + more>>((quotient+1)&63)&(1<<k-1)
		if used > filled+8*taken || next>>32 != 0 {
			break
		}
		data = data[taken:]
		window, filled, value = more>>used, filled+8*taken-used, next
		binary.BigEndian.PutUint32(p, uint32(value))
		p, n = p[4:], n+4
	}
	r.window, r.filled, r.data, r.value[0] = window&(1<<filled-1), filled, data, value
	return n
}
