package protocol

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"math/bits"
	"slices"
	"sort"

	"github.com/coredns-safebrowsing/safebrowsing/updater"
)

// Web Risk codes entries and indices like this, as the Update API does: raw, or in Rice
// coding of 32-bit numbers. Prefixes in Rice coding are little-endian numbers, so they
// do not arrive in the order of their bytes.

// parameters32 are Web Risk's parameters.
var parameters32 = parameters{2, 28}

// rawEntries returns the prefixes in raw, each of size bytes. It sorts raw if it is not sorted, as
// Google's client for Web Risk does: the schemas promise the order, and the checksum judges the
// result.
func rawEntries(ctx context.Context, size int32, raw []byte) (updater.Entries, error) {
	if size < 4 || size > 32 || len(raw)%int(size) != 0 {
		return updater.Entries{}, fmt.Errorf("%w: %d bytes of raw prefixes of %d bytes, must be 4 to 32", updater.ErrMalformed, len(raw), size)
	}
	if all := (rows{raw: raw, size: int(size)}); !sort.IsSorted(&all) {
		sort.Sort(&all)
	}
	return updater.Entries{Width: int(size), Count: len(raw) / int(size), Reader: during(ctx, bytes.NewReader(raw))}, nil
}

// rows are the prefixes in raw, each of size bytes. They implement sort.Interface.
type rows struct {
	raw  []byte
	size int
	swap [32]byte
}

func (r *rows) row(i int) []byte { return r.raw[i*r.size : (i+1)*r.size] }

// Len implements sort.Interface.
func (r *rows) Len() int { return len(r.raw) / r.size }

// Less implements sort.Interface.
func (r *rows) Less(i, j int) bool { return bytes.Compare(r.row(i), r.row(j)) < 0 }

// Swap implements sort.Interface.
func (r *rows) Swap(i, j int) {
	copy(r.swap[:], r.row(i))
	copy(r.row(i), r.row(j))
	copy(r.row(j), r.swap[:r.size])
}

// riceEntries returns the prefixes in a coding that rice32 has checked.
func riceEntries(ctx context.Context, r rice) updater.Entries {
	// The numbers are ascending, the prefixes that they are little-endian are not.
	return ascending(ctx, int(r.count)+1, func(all []uint32) ([]uint32, error) {
		all, err := r.append(ctx, all)
		for i, n := range all {
			all[i] = bits.ReverseBytes32(n)
		}
		return all, err
	})
}

// indexEntries returns indices, some raw and some in codings that rice32
// has checked.
func indexEntries(ctx context.Context, raw []int32, coded []rice) updater.Entries {
	count := len(raw)
	for _, r := range coded {
		count += int(r.count) + 1
	}
	return ascending(ctx, count, func(all []uint32) (_ []uint32, err error) {
		for _, n := range raw {
			all = append(all, uint32(n)) // a negative one is past the end of any list
		}
		for _, r := range coded {
			if all, err = r.append(ctx, all); err != nil {
				return nil, err
			}
		}
		return all, nil
	})
}

// rice32 returns a coding of 32-bit numbers that has been checked.
func rice32(first int64, parameter, count int32, data []byte) (rice, error) {
	if first < 0 || first > math.MaxUint32 {
		return rice{}, fmt.Errorf("%w: Rice coding from %d", updater.ErrMalformed, first)
	}
	r := rice{width: 4, first: [4]uint64{uint64(first)}, parameter: parameter, count: count, data: data}
	return r, r.check(parameters32)
}

// append appends the integers, of four bytes, to dst, unless ctx ends before. The
// caller has checked r.
func (r rice) append(ctx context.Context, dst []uint32) ([]uint32, error) {
	reader := during(ctx, r.reader())
	var buf [1024]byte
	for {
		n, err := reader.Read(buf[:])
		for i := 0; i < n; i += 4 {
			dst = append(dst, binary.BigEndian.Uint32(buf[i:]))
		}
		if err == io.EOF {
			return dst, nil
		}
		if err != nil {
			return nil, err
		}
	}
}

// ascending returns a stream of count numbers, which are gathered, and sorted, when
// it is read first.
func ascending(ctx context.Context, count int, gather func(dst []uint32) ([]uint32, error)) updater.Entries {
	return updater.Entries{Width: 4, Count: count, Reader: during(ctx, &sortedReader{count: count, gather: gather})}
}

// sortedReader yields numbers big-endian, ascending.
type sortedReader struct {
	count  int
	gather func(dst []uint32) ([]uint32, error) // nil: gathered
	rest   []uint32
}

// Read implements io.Reader. It writes whole numbers only.
func (s *sortedReader) Read(p []byte) (n int, err error) {
	if s.gather != nil {
		if s.rest, err = s.gather(make([]uint32, 0, s.count)); err != nil {
			return 0, err
		}
		s.gather = nil
		radixSort(s.rest, 24)
	}
	if len(s.rest) == 0 {
		return 0, io.EOF
	}
	if len(p) < 4 {
		return 0, io.ErrShortBuffer
	}
	for ; len(s.rest) > 0 && len(p)-n >= 4; n += 4 {
		binary.BigEndian.PutUint32(p[n:], s.rest[0])
		s.rest = s.rest[1:]
	}
	return n, nil
}

// fewNumbers is how many numbers slices.Sort sorts faster than radixSort.
const fewNumbers = 128

// radixSort sorts numbers whose bits above shift+8 are equal: by the byte at shift in
// place, then each part by the bytes below it. For millions of numbers it is several
// times as fast as slices.Sort, and it needs no memory.
func radixSort(numbers []uint32, shift int) {
	if len(numbers) <= fewNumbers {
		slices.Sort(numbers)
		return
	}
	var next, end [256]int // of the part of each byte: the first place that is not final, and the end
	for _, n := range numbers {
		end[byte(n>>shift)]++
	}
	for b, at := 0, 0; b < 256; b++ {
		next[b] = at
		at += end[b]
		end[b] = at
	}
	for b := range 256 {
		for next[b] < end[b] {
			n := numbers[next[b]]
			for to := int(byte(n >> shift)); to != b; to = int(byte(n >> shift)) {
				n, numbers[next[to]] = numbers[next[to]], n
				next[to]++
			}
			numbers[next[b]] = n
			next[b]++
		}
	}
	if shift == 0 {
		return
	}
	from := 0
	for _, to := range end {
		radixSort(numbers[from:to], shift-8)
		from = to
	}
}
