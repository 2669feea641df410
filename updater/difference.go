package updater

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/coredns-safebrowsing/safebrowsing/internal/prefixset"
)

// The difference between two contents of a list, as bytes: the width of an entry, the number of
// removals and of additions, each in four bytes big-endian, then removals and additions as an
// Update has them.

const differenceHead = 12

// difference returns the bytes that lead from one content to another, nil if they would be more
// than limit or the contents have entries of several widths.
func difference(from, to *prefixset.Set, limit int) []byte {
	width := slices.Concat(from.Widths(), to.Widths())
	if len(width) == 0 || slices.Max(width) != slices.Min(width) {
		return nil
	}
	w := width[0]
	old, next := &cursor{next: from.Runs().Next}, &cursor{next: to.Runs().Next}
	var removals, additions []byte
	for index := 0; old.ok() || next.ok(); {
		if len(removals)+len(additions) > limit {
			return nil
		}
		switch order := compareAt(old, next); {
		case order == 0:
			old.take(1)
			next.take(1)
			index++
		case order < 0:
			removals = binary.BigEndian.AppendUint32(removals, uint32(index))
			old.take(1)
			index++
		default:
			entry, _ := next.take(1)
			additions = append(additions, entry...)
		}
	}
	raw := binary.BigEndian.AppendUint32(nil, uint32(w))
	raw = binary.BigEndian.AppendUint32(raw, uint32(len(removals)/4))
	raw = binary.BigEndian.AppendUint32(raw, uint32(len(additions)/w))
	return slices.Concat(raw, removals, additions)
}

// compareAt compares the entries at hand. One that has ended is greater than any entry.
func compareAt(a, b *cursor) int {
	switch {
	case !a.ok():
		return 1
	case !b.ok():
		return -1
	}
	return bytes.Compare(a.entry(0), b.entry(0))
}

// parseDifference returns the update that difference described. It leads to the version and the
// checksum of h.
func parseDifference(raw []byte, h Head) (*Update, error) {
	if len(raw) < differenceHead {
		return nil, errors.New("a difference without its head")
	}
	n := func(i int) uint64 { return uint64(binary.BigEndian.Uint32(raw[4*i:])) } // an int of 32 bits may not hold them
	width, removals, additions, rest := n(0), n(1), n(2), raw[differenceHead:]
	if width < 4 || width > 32 || 4*removals+width*additions != uint64(len(rest)) {
		return nil, fmt.Errorf("a difference of %d bytes with %d removals and %d additions of %d bytes", len(raw), removals, additions, width)
	}
	u := &Update{Version: h.Version, Partial: true, Checksum: h.Checksum}
	u.Removals = Entries{Width: 4, Count: int(removals), Reader: bytes.NewReader(rest[:4*removals])}
	if additions > 0 {
		u.Additions = []Entries{{Width: int(width), Count: int(additions), Reader: bytes.NewReader(rest[4*removals:])}}
	}
	return u, nil
}
