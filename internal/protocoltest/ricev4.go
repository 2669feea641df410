package protocoltest

import (
	"encoding/binary"
	"maps"
	"slices"
	"strings"

	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol/pb/sbv4"
)

// EncodeRiceV4 is EncodeRice32 for the Update API v4, whose parameter is 2 to 28.
func EncodeRiceV4(values []uint32) *sbv4.RiceDeltaEncoding {
	if len(values) == 0 {
		return nil
	}
	m := &sbv4.RiceDeltaEncoding{FirstValue: int64(values[0])}
	m.RiceParameter, m.NumEntries, m.EncodedData = encodeGaps32(values, minParameterV4, maxParameterV4)
	return m
}

// The Rice parameters that v4 allows (page "Compression").
const (
	minParameterV4 = 2
	maxParameterV4 = 28
)

// EncodeAdditionsV4 returns entries, in any order and of any lengths, as sets of
// additions: one for each length, prefixes of 4 bytes in Rice coding.
func EncodeAdditionsV4(entries [][]byte) []*sbv4.ThreatEntrySet {
	return entrySets(sorted(entries), true)
}

// entrySets is EncodeAdditionsV4 for entries in order. Without rice all are raw.
func entrySets(entries []string, rice bool) []*sbv4.ThreatEntrySet {
	byWidth := map[int][]string{}
	for _, e := range entries {
		byWidth[len(e)] = append(byWidth[len(e)], e)
	}
	var sets []*sbv4.ThreatEntrySet
	for _, width := range slices.Sorted(maps.Keys(byWidth)) {
		if width == 4 && rice {
			sets = append(sets, riceSet(byWidth[width]))
		} else {
			sets = append(sets, rawSet(width, byWidth[width]))
		}
	}
	return sets
}

// riceSet codes prefixes of 4 bytes. As numbers they are little-endian, and ordered
// as such, in v4 (page "Compression").
func riceSet(prefixes []string) *sbv4.ThreatEntrySet {
	rice := EncodeRiceV4(riceNumbers(prefixes))
	return &sbv4.ThreatEntrySet{CompressionType: sbv4.CompressionType_RICE, RiceHashes: rice}
}

// riceNumbers returns the entries of 4 bytes among some as the numbers that are coded.
func riceNumbers(entries []string) (values []uint32) {
	for _, e := range entries {
		if len(e) == 4 {
			values = append(values, binary.LittleEndian.Uint32([]byte(e)))
		}
	}
	slices.Sort(values)
	return values
}

func rawSet(width int, entries []string) *sbv4.ThreatEntrySet {
	return &sbv4.ThreatEntrySet{
		CompressionType: sbv4.CompressionType_RAW,
		RawHashes:       &sbv4.RawHashes{PrefixSize: int32(width), RawHashes: []byte(strings.Join(entries, ""))},
	}
}

// removalSets returns removals, which are indices into the old list, as one set.
func removalSets(indices []uint32, rice bool) []*sbv4.ThreatEntrySet {
	if len(indices) == 0 {
		return nil
	}
	if rice {
		return []*sbv4.ThreatEntrySet{{CompressionType: sbv4.CompressionType_RICE, RiceIndices: EncodeRiceV4(indices)}}
	}
	raw := &sbv4.RawIndices{}
	for _, i := range indices {
		raw.Indices = append(raw.Indices, int32(i))
	}
	return []*sbv4.ThreatEntrySet{{CompressionType: sbv4.CompressionType_RAW, RawIndices: raw}}
}
