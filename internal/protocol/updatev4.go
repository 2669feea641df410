package protocol

import (
	"context"
	"fmt"

	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol/pb/sbv4"
	"github.com/coredns-safebrowsing/safebrowsing/updater"
)

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
		return rawEntries(ctx, set.GetRawHashes().GetPrefixSize(), set.GetRawHashes().GetRawHashes())
	case sbv4.CompressionType_RICE:
		r, err := riceV4(set.GetRiceHashes())
		if err != nil {
			return updater.Entries{}, err
		}
		return riceEntries(ctx, r), nil
	default:
		return updater.Entries{}, fmt.Errorf("%w: additions in compression type %d", updater.ErrMalformed, t)
	}
}

// indicesOf returns the indices of all sets of removals.
func indicesOf(ctx context.Context, sets []*sbv4.ThreatEntrySet) (updater.Entries, error) {
	var coded []rice
	var raw []int32
	for _, set := range sets {
		switch t := set.GetCompressionType(); t {
		case sbv4.CompressionType_RAW:
			raw = append(raw, set.GetRawIndices().GetIndices()...)
		case sbv4.CompressionType_RICE:
			r, err := riceV4(set.GetRiceIndices())
			if err != nil {
				return updater.Entries{}, err
			}
			coded = append(coded, r)
		default:
			return updater.Entries{}, fmt.Errorf("%w: removals in compression type %d", updater.ErrMalformed, t)
		}
	}
	return indexEntries(ctx, raw, coded), nil
}

// riceV4 returns a coding of version 4 that has been checked.
func riceV4(m *sbv4.RiceDeltaEncoding) (rice, error) {
	if m == nil {
		return rice{}, fmt.Errorf("%w: no data in Rice coding", updater.ErrMalformed)
	}
	return rice32(m.GetFirstValue(), m.GetRiceParameter(), m.GetNumEntries(), m.GetEncodedData())
}
