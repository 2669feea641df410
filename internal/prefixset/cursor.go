package prefixset

import (
	"bytes"
	"encoding/binary"
	"sort"
)

// Cursor reads entries in ascending order. It is not safe for concurrent use.
type Cursor struct {
	next  func() (entries []byte, width int)
	rest  []byte // the entries that are at hand
	width int
}

// NewCursor returns a cursor over what next returns: some entries of one width, valid until the next
// call, and none at the end, as Runs.Next does.
func NewCursor(next func() (entries []byte, width int)) *Cursor { return &Cursor{next: next} }

// OK reports whether there is an entry at hand, and reads on if need be. Call it before each use
// of the entries.
func (c *Cursor) OK() bool {
	if len(c.rest) == 0 {
		c.rest, c.width = c.next()
	}
	return len(c.rest) > 0
}

// Len returns how many entries are at hand. They have one width.
func (c *Cursor) Len() int { return len(c.rest) / c.width }

// Entry returns entry i of those at hand.
func (c *Cursor) Entry(i int) []byte { return c.rest[i*c.width : (i+1)*c.width] }

// Take returns the first n entries at hand and moves past them. They are valid until the next call of OK.
func (c *Cursor) Take(n int) (entries []byte, width int) {
	entries, c.rest = c.rest[:n*c.width], c.rest[n*c.width:]
	return entries, c.width
}

// Below returns how many of the first n entries at hand are less than bound. n is 1 or more.
func (c *Cursor) Below(n int, bound []byte) int {
	if bytes.Compare(c.Entry(n-1), bound) < 0 { // so it is most times
		return n
	}
	if c.width != 4 || len(bound) != 4 {
		return sort.Search(n-1, func(i int) bool { return bytes.Compare(c.Entry(i), bound) >= 0 })
	}
	// The same without branches: the processor could not predict them.
	found, most := 0, int64(binary.BigEndian.Uint32(bound))-1
	for n > 1 {
		half := n / 2
		notBelow := (most - int64(binary.BigEndian.Uint32(c.rest[4*(found+half-1):]))) >> 63 // 0 or -1
		found += half &^ int(notBelow)
		n -= half
	}
	return found
}

// Side says in which of two contents entries are.
type Side int

const (
	Ended      Side = iota // there are no more
	Both                   // some entries
	BaseOnly               // one entry
	TargetOnly             // one entry
)

// Differ compares two contents. It is not safe for concurrent use.
type Differ struct {
	base, target *Cursor
	index        int
}

// NewDiffer returns a Differ of what two functions return, see NewCursor.
func NewDiffer(base, target func() (entries []byte, width int)) *Differ {
	return &Differ{base: NewCursor(base), target: NewCursor(target)}
}

// Index returns the index in base of the entry that Next returned as BaseOnly.
func (d *Differ) Index() int { return d.index - 1 }

// Next returns the next entries and where they are. They are valid until the next call.
func (d *Differ) Next() (where Side, entries []byte, width int) {
	b, t := d.base, d.target
	inBase, inTarget := b.OK(), t.OK()
	if !inBase && !inTarget {
		return Ended, nil, 0
	}
	if inBase && inTarget && b.width == t.width {
		if n := equalEntries(b.rest, t.rest, b.width); n > 0 {
			d.index += n
			t.Take(n)
			entries, width = b.Take(n)
			return Both, entries, width
		}
	}
	if inBase && (!inTarget || bytes.Compare(b.Entry(0), t.Entry(0)) < 0) {
		d.index++
		entries, width = b.Take(1)
		return BaseOnly, entries, width
	}
	entries, width = t.Take(1)
	return TargetOnly, entries, width
}

// equalEntries returns with how many equal entries a and b begin.
func equalEntries(a, b []byte, width int) int {
	n := 0
	for n+8 <= len(a) && n+8 <= len(b) && binary.NativeEndian.Uint64(a[n:]) == binary.NativeEndian.Uint64(b[n:]) {
		n += 8
	}
	n -= n % width
	for n+width <= min(len(a), len(b)) && bytes.Equal(a[n:n+width], b[n:n+width]) {
		n += width
	}
	return n / width
}
