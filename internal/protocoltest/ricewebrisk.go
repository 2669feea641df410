package protocoltest

import (
	"encoding/binary"
	"maps"
	"slices"
	"strings"

	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol/pb/wrv1"
)

// EncodeRiceWebRisk is EncodeRice32 for Web Risk, whose parameter is 2 to 28.
func EncodeRiceWebRisk(values []uint32) *wrv1.RiceDeltaEncoding {
	if len(values) == 0 {
		return nil
	}
	m := &wrv1.RiceDeltaEncoding{FirstValue: int64(values[0])}
	m.RiceParameter, m.EntryCount, m.EncodedData = encodeGaps32(values, minParameter, maxParameter)
	return m
}

// The Rice parameters that Web Risk allows (Web Risk, "Compression").
const (
	minParameter = 2
	maxParameter = 28
)

// additionsOf returns entries in order and of any lengths as additions, nil for none:
// prefixes of 4 bytes in Rice coding, unless that is not wanted, and of each other
// length raw.
func additionsOf(entries []string, rice bool) *wrv1.ThreatEntryAdditions {
	if len(entries) == 0 {
		return nil
	}
	byWidth := map[int][]string{}
	for _, e := range entries {
		byWidth[len(e)] = append(byWidth[len(e)], e)
	}
	m := &wrv1.ThreatEntryAdditions{}
	for _, width := range slices.Sorted(maps.Keys(byWidth)) {
		if width == 4 && rice {
			m.RiceHashes = EncodeRiceWebRisk(riceNumbers(byWidth[width]))
			continue
		}
		m.RawHashes = append(m.RawHashes, &wrv1.RawHashes{PrefixSize: int32(width), RawHashes: []byte(strings.Join(byWidth[width], ""))})
	}
	return m
}

// riceNumbers returns the entries of 4 bytes among some as the numbers that are coded.
// They are little-endian, and ordered as such (Web Risk, "Compression").
func riceNumbers(entries []string) (values []uint32) {
	for _, e := range entries {
		if len(e) == 4 {
			values = append(values, binary.LittleEndian.Uint32([]byte(e)))
		}
	}
	slices.Sort(values)
	return values
}

// removalsOf returns removals, which are indices into the old list, nil for none.
func removalsOf(indices []uint32, rice bool) *wrv1.ThreatEntryRemovals {
	if len(indices) == 0 {
		return nil
	}
	if rice {
		return &wrv1.ThreatEntryRemovals{RiceIndices: EncodeRiceWebRisk(indices)}
	}
	raw := &wrv1.RawIndices{}
	for _, i := range indices {
		raw.Indices = append(raw.Indices, int32(i))
	}
	return &wrv1.ThreatEntryRemovals{RawIndices: raw}
}
