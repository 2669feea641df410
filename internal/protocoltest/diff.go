package protocoltest

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"slices"
	"strings"
)

// A packed list is one []byte: entries of the list's width, sorted bytewise, no
// duplicates, nothing between them. Seven million prefixes take 28 MB so.

// listWidth returns the bytes per entry that a list name promises by its suffix,
// 0 if it promises none.
func listWidth(name string) int {
	for suffix, width := range map[string]int{"-4b": 4, "-8b": 8, "-16b": 16, "-32b": 32} {
		if strings.HasSuffix(name, suffix) {
			return width
		}
	}
	return 0
}

// pack returns entries, each width bytes, as a packed list.
func pack(width int, entries [][]byte) []byte {
	if width == 4 {
		return packNumbers(entries)
	}
	sorted := slices.Clone(entries)
	slices.SortFunc(sorted, bytes.Compare)
	sorted = slices.CompactFunc(sorted, bytes.Equal)
	return bytes.Join(sorted, nil)
}

// packNumbers is pack for 4 bytes, by way of numbers: several times faster.
func packNumbers(entries [][]byte) []byte {
	values := make([]uint32, len(entries))
	for i, e := range entries {
		values[i] = binary.BigEndian.Uint32(e)
	}
	slices.Sort(values)
	values = slices.Compact(values)
	packed := make([]byte, 0, 4*len(values))
	for _, v := range values {
		packed = binary.BigEndian.AppendUint32(packed, v)
	}
	return packed
}

// diff returns what turns the packed list base into target: indices into base
// and packed additions.
func diff(base, target []byte, width int) (removals []uint32, additions []byte) {
	i, j := 0, 0
	for i < len(base) || j < len(target) {
		switch order(base, i, target, j, width) {
		case -1:
			removals = append(removals, uint32(i/width))
			i += width
		case 1:
			additions = append(additions, target[j:j+width]...)
			j += width
		default:
			i += width
			j += width
		}
	}
	return removals, additions
}

// patch is the reverse of diff: base without the removals, with the additions.
func patch(base []byte, removals []uint32, additions []byte, width int) []byte {
	kept := make([]byte, 0, len(base))
	for i := 0; i < len(base); i += width {
		if len(removals) > 0 && removals[0] == uint32(i/width) {
			removals = removals[1:]
			continue
		}
		kept = append(kept, base[i:i+width]...)
	}
	return merge(kept, additions, width)
}

// merge returns all entries of two sorted lists in order; an entry of both comes
// twice.
func merge(a, b []byte, width int) []byte {
	merged := make([]byte, 0, len(a)+len(b))
	i, j := 0, 0
	for i < len(a) || j < len(b) {
		if order(a, i, b, j, width) <= 0 {
			merged = append(merged, a[i:i+width]...)
			i += width
			continue
		}
		merged = append(merged, b[j:j+width]...)
		j += width
	}
	return merged
}

// order compares the entry of a at byte i with the entry of b at byte j. The end
// of a list comes after every entry.
func order(a []byte, i int, b []byte, j, width int) int {
	switch {
	case i >= len(a):
		return 1
	case j >= len(b):
		return -1
	}
	return bytes.Compare(a[i:i+width], b[j:j+width])
}

// contains reports whether a packed list holds entry.
func contains(packed, entry []byte) bool {
	width := len(entry)
	for i := 0; i < len(packed); i += width {
		if bytes.Equal(packed[i:i+width], entry) {
			return true
		}
	}
	return false
}

// checksum is the SHA-256 over all entries in order (page "Local Database").
func checksum(packed []byte) []byte {
	sum := sha256.Sum256(packed)
	return sum[:]
}
