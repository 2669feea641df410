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

	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol/pb/sbv4"
	"github.com/coredns-safebrowsing/safebrowsing/updater"
)

// parametersV4 are those of version 4, which codes 32 bits only.
var parametersV4 = parameters{2, 28}

// updateOfV4 checks the shape of a list's message and prepares its decoding, which
// fails once ctx has ended.
func updateOfV4(ctx context.Context, m *sbv4.FetchThreatListUpdatesResponse_ListUpdateResponse) *updater.Update {
	u := &updater.Update{Version: m.GetNewClientState(), Checksum: m.GetChecksum().GetSha256()}
	if len(u.Checksum) == 0 {
		u.Checksum = nil
	}
	if u.Err = checkVersion(u.Version); u.Err != nil {
		return u
	}
	switch t := m.GetResponseType(); t {
	case sbv4.FetchThreatListUpdatesResponse_ListUpdateResponse_PARTIAL_UPDATE:
		u.Partial = true
	case sbv4.FetchThreatListUpdatesResponse_ListUpdateResponse_FULL_UPDATE:
	default:
		u.Err = fmt.Errorf("%w: an update that is neither full nor partial (%d)", updater.ErrMalformed, t)
		return u
	}
	if n := max(len(m.Additions), len(m.Removals)); n > maxSets {
		u.Err = fmt.Errorf("%w: %d sets of additions or of removals, at most %d are allowed", updater.ErrMalformed, n, maxSets)
		return u
	}
	for _, set := range m.Additions {
		entries, err := hashesOf(ctx, set)
		if err != nil {
			u.Err = err
			return u
		}
		u.Additions = append(u.Additions, entries)
	}
	u.Removals, u.Err = indicesOf(ctx, m.Removals)
	return u
}

// hashesOf returns the entries of one set of additions.
func hashesOf(ctx context.Context, set *sbv4.ThreatEntrySet) (updater.Entries, error) {
	switch t := set.GetCompressionType(); t {
	case sbv4.CompressionType_RAW:
		size, raw := int(set.GetRawHashes().GetPrefixSize()), set.GetRawHashes().GetRawHashes()
		if size < 4 || size > 32 || len(raw)%size != 0 {
			return updater.Entries{}, fmt.Errorf("%w: %d bytes of raw prefixes of %d bytes, must be 4 to 32", updater.ErrMalformed, len(raw), size)
		}
		return updater.Entries{Width: size, Count: len(raw) / size, Reader: during(ctx, bytes.NewReader(raw))}, nil
	case sbv4.CompressionType_RICE:
		r, err := riceV4(set.GetRiceHashes())
		if err != nil {
			return updater.Entries{}, err
		}
		// The numbers are ascending, the prefixes that they are little-endian are not.
		return ascending(ctx, int(r.count)+1, func(all []uint32) ([]uint32, error) {
			all, err := r.append(ctx, all)
			for i, n := range all {
				all[i] = bits.ReverseBytes32(n)
			}
			return all, err
		}), nil
	default:
		return updater.Entries{}, fmt.Errorf("%w: additions in compression type %d", updater.ErrMalformed, t)
	}
}

// indicesOf returns the indices of all sets of removals.
func indicesOf(ctx context.Context, sets []*sbv4.ThreatEntrySet) (updater.Entries, error) {
	count := 0
	var coded []rice
	var raw []int32
	for _, set := range sets {
		switch t := set.GetCompressionType(); t {
		case sbv4.CompressionType_RAW:
			raw = append(raw, set.GetRawIndices().GetIndices()...)
			count += len(set.GetRawIndices().GetIndices())
		case sbv4.CompressionType_RICE:
			r, err := riceV4(set.GetRiceIndices())
			if err != nil {
				return updater.Entries{}, err
			}
			coded = append(coded, r)
			count += int(r.count) + 1
		default:
			return updater.Entries{}, fmt.Errorf("%w: removals in compression type %d", updater.ErrMalformed, t)
		}
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
	}), nil
}

// riceV4 returns a coding of version 4 that has been checked.
func riceV4(m *sbv4.RiceDeltaEncoding) (rice, error) {
	if m == nil {
		return rice{}, fmt.Errorf("%w: no data in Rice coding", updater.ErrMalformed)
	}
	first := m.GetFirstValue()
	if first < 0 || first > math.MaxUint32 {
		return rice{}, fmt.Errorf("%w: Rice coding from %d", updater.ErrMalformed, first)
	}
	r := rice{width: 4, first: [4]uint64{uint64(first)}, parameter: m.GetRiceParameter(), count: m.GetNumEntries(), data: m.GetEncodedData()}
	return r, r.check(parametersV4)
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
		slices.Sort(s.rest)
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
