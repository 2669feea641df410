package prefixset

import (
	"bytes"
	"fmt"
	"runtime"
)

// Builder makes a Set from entries in ascending order. It is not safe for
// concurrent use.
type Builder struct {
	capacity int                        // for four
	four     *blocksBuilder             // entries of four bytes; nil: none yet
	wide     [maxWidth + 1]*wideBuilder // the others by width; nil: none of this width yet
	last     [maxWidth]byte             // the last entry
	width    int                        // of last; 0: there is no entry yet
}

// NewBuilder returns a Builder that expects capacity entries of four bytes. It
// can hold more, and any number of wider ones.
func NewBuilder(capacity int) *Builder { return &Builder{capacity: max(capacity, 0)} }

// Add appends entries of width bytes each, one after the other without a separator. Each
// must be greater, bytewise, than all entries before it, of any width. At the first that is
// not, Add stops and returns ErrOrder. Add does not keep the slice.
func (b *Builder) Add(entries []byte, width int) error {
	if width < minWidth || width > maxWidth {
		return fmt.Errorf("entries of %d bytes, want %d to %d", width, minWidth, maxWidth)
	}
	if len(entries)%width != 0 {
		return fmt.Errorf("%d bytes are no whole number of entries of %d", len(entries), width)
	}
	if len(entries) == 0 {
		return nil
	}
	if bytes.Compare(b.last[:b.width], entries[:width]) >= 0 {
		return ErrOrder
	}
	return b.took(b.add(entries, width), entries, width)
}

// AddOf is Add for entries that equal old's, from number first on. It takes less time if
// all entries of old have four bytes and share no memory with other sets. It trusts
// that they ascend as in old. AddOf does not keep old.
func (b *Builder) AddOf(old *Set, first int, entries []byte, width int) error {
	p := old.four.Load()
	if b.four == nil || width != 4 || len(entries)%4 != 0 || len(entries) == 0 || p == nil || p.of != nil || len(old.wide) > 0 {
		return b.Add(entries, width)
	}
	if bytes.Compare(b.last[:b.width], entries[:4]) >= 0 {
		return ErrOrder
	}
	taken := b.four.addOf(p.blocks, first, entries)
	runtime.KeepAlive(p)
	return b.took(taken, entries, 4)
}

// took ends adding entries: this number of bytes was in order, at least one entry.
func (b *Builder) took(taken int, entries []byte, width int) error {
	runtime.KeepAlive(b) // its parts use memory that the collector frees with b
	b.width = copy(b.last[:], entries[taken-width:taken])
	if taken < len(entries) {
		return ErrOrder
	}
	return nil
}

// add adds entries up to the first that is out of order, and returns their bytes. The first
// entry must be in order.
func (b *Builder) add(entries []byte, width int) (taken int) {
	if width == 4 {
		if b.four == nil {
			b.four = newBlocksBuilder(b.capacity)
		}
		return b.four.add(entries)
	}
	if b.wide[width] == nil {
		b.wide[width] = newWideBuilder(width, 1)
	}
	last := entries[:0]
	for taken < len(entries) {
		entry := entries[taken : taken+width]
		if bytes.Compare(last, entry) >= 0 {
			break
		}
		b.wide[width].add(entry)
		last, taken = entry, taken+width
	}
	return taken
}

// Set returns the set of all entries. The Builder must not be used afterwards.
func (b *Builder) Set() *Set {
	s := new(Set)
	if b.four != nil {
		s.four.Store(fourOf(b.four.finish()))
	}
	for _, p := range b.wide {
		if p != nil {
			s.wide = append(s.wide, p.finish())
		}
	}
	return s
}
