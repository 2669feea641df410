package lookup

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// WriteTo writes the set in the form that ReadPrefixSet reads: the number of
// widths in one byte, then for each its width and lead in one byte each, the
// number of entries, the index and the suffixes, numbers little-endian. The form
// has no checksum of its own. It implements io.WriterTo.
func (s *PrefixSet) WriteTo(w io.Writer) (int64, error) {
	n, err := w.Write([]byte{byte(len(s.parts))})
	written := int64(n)
	for _, p := range s.parts {
		if err != nil {
			break
		}
		var m int64
		m, err = p.writeTo(w)
		written += m
	}
	return written, err
}

func (p *part) writeTo(w io.Writer) (int64, error) {
	head := []byte{byte(p.width), byte(p.lead)}
	head = binary.LittleEndian.AppendUint32(head, uint32(p.len()))
	for _, n := range p.index {
		head = binary.LittleEndian.AppendUint32(head, n)
	}
	n, err := w.Write(head)
	if err != nil {
		return int64(n), err
	}
	m, err := w.Write(p.suffix)
	return int64(n + m), err
}

// ReadPrefixSet reads what WriteTo wrote, at most maxEntries of it. What it
// returns is safe to search, whatever was read; that the content is the one
// written is for the caller to know.
func ReadPrefixSet(r io.Reader, maxEntries int) (*PrefixSet, error) {
	var parts [1]byte
	if _, err := io.ReadFull(r, parts[:]); err != nil {
		return nil, fmt.Errorf("reading the head of a prefix set: %w", err)
	}
	s := new(PrefixSet)
	width := 0
	for range parts[0] {
		p, err := readPart(r, maxEntries)
		if err != nil {
			return nil, err
		}
		if p.width <= width {
			return nil, fmt.Errorf("width %d follows width %d in a prefix set", p.width, width)
		}
		width = p.width
		maxEntries -= p.len()
		s.parts = append(s.parts, p)
	}
	return s, nil
}

func readPart(r io.Reader, maxEntries int) (*part, error) {
	var head [6]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, fmt.Errorf("reading the head of a prefix set: %w", err)
	}
	width, lead, size := int(head[0]), int(head[1]), binary.LittleEndian.Uint32(head[2:])
	if width < minWidth || width > maxWidth || lead < 1 || lead > 2 {
		return nil, fmt.Errorf("prefix set of width %d with %d indexed bytes", width, lead)
	}
	if size == 0 || int64(size) > int64(maxEntries) {
		return nil, fmt.Errorf("prefix set of %d entries of one width, want 1 to %d", size, maxEntries)
	}
	p := &part{width: width, lead: lead}
	if err := p.readIndex(r, size); err != nil {
		return nil, err
	}
	p.suffix = make([]byte, int(size)*(width-lead))
	if _, err := io.ReadFull(r, p.suffix); err != nil {
		return nil, fmt.Errorf("reading %d entries: %w", size, err)
	}
	return p, nil
}

func (p *part) readIndex(r io.Reader, size uint32) error {
	raw := make([]byte, 4*(1<<(8*p.lead)+1))
	if _, err := io.ReadFull(r, raw); err != nil {
		return fmt.Errorf("reading the index of a prefix set: %w", err)
	}
	p.index = make([]uint32, len(raw)/4)
	last := uint32(0)
	for i := range p.index {
		n := binary.LittleEndian.Uint32(raw[4*i:])
		if n < last {
			return errors.New("index of a prefix set runs backwards")
		}
		p.index[i], last = n, n
	}
	if p.index[0] != 0 || last != size {
		return errors.New("index of a prefix set does not fit its entries")
	}
	return nil
}
