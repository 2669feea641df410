package protocoltest

import (
	"crypto/sha256"
	"encoding/binary"
	"slices"
	"strings"
)

// Entries of a list are a []string: sorted bytewise, a shorter one before a longer
// one that it begins, no duplicates. They share one string, so that seven million
// prefixes are two blocks of memory.

const (
	minEntryBytes = 4  // the shortest prefix
	maxEntryBytes = 32 // a whole hash
)

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

// sorted returns entries of any lengths as a list holds them.
func sorted(raw [][]byte) []string {
	if !slices.ContainsFunc(raw, func(e []byte) bool { return len(e) != 4 }) {
		return sortedNumbers(raw)
	}
	var all strings.Builder
	for _, e := range raw {
		all.Write(e)
	}
	entries, text := make([]string, 0, len(raw)), all.String()
	for _, e := range raw {
		entries = append(entries, text[:len(e)])
		text = text[len(e):]
	}
	slices.Sort(entries)
	return slices.Compact(entries)
}

// sortedNumbers is sorted for 4 bytes, by way of numbers: several times faster.
func sortedNumbers(raw [][]byte) []string {
	values := make([]uint32, len(raw))
	for i, e := range raw {
		values[i] = binary.BigEndian.Uint32(e)
	}
	slices.Sort(values)
	values = slices.Compact(values)
	all := make([]byte, 0, 4*len(values))
	for _, v := range values {
		all = binary.BigEndian.AppendUint32(all, v)
	}
	entries, text := make([]string, len(values)), string(all)
	for i := range entries {
		entries[i] = text[4*i : 4*i+4]
	}
	return entries
}

// commonWidth returns the length that all entries have, 0 if they differ or there
// are none.
func commonWidth(entries []string) int {
	if len(entries) == 0 {
		return 0
	}
	width := len(entries[0])
	if slices.ContainsFunc(entries, func(e string) bool { return len(e) != width }) {
		return 0
	}
	return width
}

// diff returns what turns base into target: indices into base, and additions.
func diff(base, target []string) (removals []uint32, additions []string) {
	i, j := 0, 0
	for i < len(base) || j < len(target) {
		switch order(base[i:], target[j:]) {
		case -1:
			removals = append(removals, uint32(i))
			i++
		case 1:
			additions = append(additions, target[j])
			j++
		default:
			i++
			j++
		}
	}
	return removals, additions
}

// patch is the reverse of diff: base without the removals, with the additions.
func patch(base []string, removals []uint32, additions []string) []string {
	kept := make([]string, 0, len(base))
	for i, e := range base {
		if len(removals) > 0 && removals[0] == uint32(i) {
			removals = removals[1:]
			continue
		}
		kept = append(kept, e)
	}
	return merge(kept, additions)
}

// merge returns all entries of two lists in order; an entry of both comes twice.
func merge(a, b []string) []string {
	merged := make([]string, 0, len(a)+len(b))
	for len(a) > 0 || len(b) > 0 {
		from := &a
		if order(a, b) > 0 {
			from = &b
		}
		merged = append(merged, (*from)[0])
		*from = (*from)[1:]
	}
	return merged
}

// order compares the first entries of two lists. The end of a list comes after
// every entry.
func order(a, b []string) int {
	switch {
	case len(a) == 0:
		return 1
	case len(b) == 0:
		return -1
	}
	return strings.Compare(a[0], b[0])
}

// contains reports whether a list holds entry.
func contains(entries []string, entry string) bool {
	_, found := slices.BinarySearch(entries, entry)
	return found
}

// checksum is the SHA-256 over all entries in order (page "Local Database").
func checksum(entries []string) []byte { return digest([]byte(strings.Join(entries, ""))) }

// digest is the SHA-256 of some bytes as a slice.
func digest(b []byte) []byte {
	sum := sha256.Sum256(b)
	return sum[:]
}
