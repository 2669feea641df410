package lookup

import (
	"bytes"
	"fmt"
)

// Builder makes a PrefixSet from entries in ascending order. It is not safe for
// concurrent use.
type Builder struct {
	capacity int
	parts    [maxWidth + 1]*partBuilder // by width; nil: none of this width yet
	last     [maxWidth]byte             // the entry that was added last
	width    int                        // of last; 0: nothing was added
}

// NewBuilder returns a Builder that expects capacity entries of four bytes. It
// can hold more, and any number of wider ones.
func NewBuilder(capacity int) *Builder { return &Builder{capacity: max(capacity, 0)} }

// Add appends entries of width bytes each, one after the other without a
// separator. They must ascend bytewise, and be greater than all that was added
// before, of whatever width: from the first that is not nothing is added, and
// ErrOrder is returned. Add keeps nothing of entries.
func (b *Builder) Add(entries []byte, width int) error {
	if width < minWidth || width > maxWidth {
		return fmt.Errorf("entries of %d bytes, want %d to %d", width, minWidth, maxWidth)
	}
	if len(entries)%width != 0 {
		return fmt.Errorf("%d bytes are no whole number of entries of %d", len(entries), width)
	}
	for ; len(entries) > 0; entries = entries[width:] {
		entry := entries[:width]
		if bytes.Compare(b.last[:b.width], entry) >= 0 {
			return ErrOrder
		}
		b.partOf(width).add(entry)
		b.width = copy(b.last[:], entry)
	}
	return nil
}

func (b *Builder) partOf(width int) *partBuilder {
	if b.parts[width] == nil {
		capacity := 0
		if width == 4 {
			capacity = b.capacity
		}
		b.parts[width] = newPartBuilder(width, capacity)
	}
	return b.parts[width]
}

// Set returns the set of all that was added. The Builder must not be used
// afterwards.
func (b *Builder) Set() *PrefixSet {
	s := new(PrefixSet)
	for _, p := range b.parts {
		if p != nil {
			s.parts = append(s.parts, p.finish())
		}
	}
	return s
}
