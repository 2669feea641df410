package lookup

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// PrefixSet is an immutable, exact set of hash prefixes of one width. The
// leading bytes of an entry are its place in an index; only the bytes that
// follow are stored: 2 bytes for an entry of 4, and 256 KiB for the index of a
// large set. The zero PrefixSet contains nothing. Safe for concurrent use.
type PrefixSet struct {
	width  int      // bytes of an entry: 4 to 32
	lead   int      // leading bytes that the index stands for: 1 or 2
	index  []uint32 // entries that begin with b are numbers index[b] to index[b+1]-1
	suffix []byte   // width-lead bytes of each entry, ascending within its index slot
}

// Len returns the number of entries.
func (s *PrefixSet) Len() int {
	if len(s.index) == 0 {
		return 0
	}
	return int(s.index[len(s.index)-1])
}

// Width returns the bytes of an entry, or 0 for the zero PrefixSet.
func (s *PrefixSet) Width() int { return s.width }

// Bytes returns the memory that the set holds, in bytes.
func (s *PrefixSet) Bytes() int { return 4*len(s.index) + len(s.suffix) }

// Contains reports whether the set holds the prefix of hash. It does not
// allocate.
func (s *PrefixSet) Contains(hash *FullHash) bool {
	if len(s.index) == 0 {
		return false
	}
	slot := int(hash[0])
	if s.lead == 2 {
		slot = slot<<8 | int(hash[1])
	}
	low, high := s.index[slot], s.index[slot+1]
	if s.width == 4 && s.lead == 2 {
		return contains16(s.suffix[2*low:2*high], binary.BigEndian.Uint16(hash[2:]))
	}
	return s.containsTail(int(low), int(high), hash[s.lead:s.width])
}

// contains16 searches ascending big-endian 16-bit numbers.
func contains16(sorted []byte, want uint16) bool {
	low, high := 0, len(sorted)/2
	for low < high {
		middle := int(uint(low+high) >> 1)
		switch got := binary.BigEndian.Uint16(sorted[2*middle:]); {
		case got == want:
			return true
		case got < want:
			low = middle + 1
		default:
			high = middle
		}
	}
	return false
}

func (s *PrefixSet) containsTail(low, high int, tail []byte) bool {
	for size := len(tail); low < high; {
		middle := (low + high) / 2
		switch c := bytes.Compare(s.suffix[middle*size:(middle+1)*size], tail); {
		case c == 0:
			return true
		case c < 0:
			low = middle + 1
		default:
			high = middle
		}
	}
	return false
}

// Reader returns all entries, ascending bytewise, one after the other without
// a separator. The reader is not safe for concurrent use; several readers are.
func (s *PrefixSet) Reader() io.Reader { return &setReader{set: s} }

type setReader struct {
	set  *PrefixSet
	next int    // number of the entry to begin next
	slot int    // index slot of that entry, or one before it
	part []byte // what did not fit into the last Read
	last [32]byte
}

// Read implements io.Reader.
func (r *setReader) Read(p []byte) (n int, err error) {
	for n < len(p) {
		if len(r.part) > 0 {
			c := copy(p[n:], r.part)
			r.part, n = r.part[c:], n+c
			continue
		}
		if r.next >= r.set.Len() {
			if n == 0 && len(p) > 0 {
				return 0, io.EOF
			}
			return n, nil
		}
		r.part = r.entry()
	}
	return n, nil
}

// entry assembles the next entry in r.last.
func (r *setReader) entry() []byte {
	s := r.set
	for int(s.index[r.slot+1]) <= r.next {
		r.slot++
	}
	e := r.last[:s.width]
	if s.lead == 2 {
		e[0], e[1] = byte(r.slot>>8), byte(r.slot)
	} else {
		e[0] = byte(r.slot)
	}
	size := s.width - s.lead
	copy(e[s.lead:], s.suffix[r.next*size:(r.next+1)*size])
	r.next++
	return e
}

// ErrOrder says that entries did not come in ascending order, each once.
var ErrOrder = errors.New("entries are not in ascending order, each once")

// Builder makes a PrefixSet from entries in ascending order. It is not safe for
// concurrent use.
type Builder struct {
	set  PrefixSet
	slot int // the slot of the last entry
	last [32]byte
	n    uint32
}

// minIndexed is the size from which a set has an index of two bytes: below it
// the index would be larger than what it saves.
const minIndexed = 1 << 16

// NewBuilder returns a Builder of a set of prefixes of width bytes, 4 to 32.
// It reserves memory for capacity entries and can hold more.
func NewBuilder(width, capacity int) *Builder {
	lead := 1
	if capacity >= minIndexed {
		lead = 2
	}
	return &Builder{set: PrefixSet{
		width:  width,
		lead:   lead,
		index:  make([]uint32, 1<<(8*lead)+1),
		suffix: make([]byte, 0, capacity*(width-lead)),
	}}
}

// Add appends one entry of the set's width. It returns ErrOrder unless the
// entry is greater than the one before it.
func (b *Builder) Add(entry []byte) error {
	s := &b.set
	last := b.last[:s.width]
	if b.n > 0 && bytes.Compare(last, entry) >= 0 {
		return ErrOrder
	}
	copy(last, entry)
	slot := int(entry[0])
	if s.lead == 2 {
		slot = slot<<8 | int(entry[1])
	}
	for b.slot < slot {
		b.slot++
		s.index[b.slot] = b.n
	}
	s.suffix = append(s.suffix, entry[s.lead:s.width]...)
	b.n++
	return nil
}

// Set returns the set of all that was added. The Builder must not be used
// afterwards.
func (b *Builder) Set() *PrefixSet {
	for i := b.slot + 1; i < len(b.set.index); i++ {
		b.set.index[i] = b.n
	}
	return &b.set
}

// WriteTo writes the set in the form that ReadPrefixSet reads: width, lead,
// the index and the suffixes, numbers little-endian. The form has no checksum
// of its own. It implements io.WriterTo.
func (s *PrefixSet) WriteTo(w io.Writer) (int64, error) {
	head := []byte{byte(s.width), byte(s.lead)}
	head = binary.LittleEndian.AppendUint32(head, uint32(s.Len()))
	for _, n := range s.index {
		head = binary.LittleEndian.AppendUint32(head, n)
	}
	n, err := w.Write(head)
	if err != nil {
		return int64(n), err
	}
	m, err := w.Write(s.suffix)
	return int64(n + m), err
}

// ReadPrefixSet reads what WriteTo wrote, at most maxEntries of it. What it
// returns is safe to search, whatever was read; that the content is the one
// written is for the caller to know.
func ReadPrefixSet(r io.Reader, maxEntries int) (*PrefixSet, error) {
	var head [6]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, fmt.Errorf("reading the head of a prefix set: %w", err)
	}
	width, lead, size := int(head[0]), int(head[1]), binary.LittleEndian.Uint32(head[2:])
	if width == 0 && lead == 0 && size == 0 {
		return &PrefixSet{}, nil
	}
	if width < 4 || width > 32 || lead < 1 || lead > 2 {
		return nil, fmt.Errorf("prefix set of width %d with %d indexed bytes", width, lead)
	}
	if uint64(size) > uint64(maxEntries) {
		return nil, fmt.Errorf("prefix set of %d entries, at most %d are allowed", size, maxEntries)
	}
	s := &PrefixSet{width: width, lead: lead}
	if err := s.readIndex(r, size); err != nil {
		return nil, err
	}
	s.suffix = make([]byte, int(size)*(width-lead))
	if _, err := io.ReadFull(r, s.suffix); err != nil {
		return nil, fmt.Errorf("reading %d entries: %w", size, err)
	}
	return s, nil
}

func (s *PrefixSet) readIndex(r io.Reader, size uint32) error {
	raw := make([]byte, 4*(1<<(8*s.lead)+1))
	if _, err := io.ReadFull(r, raw); err != nil {
		return fmt.Errorf("reading the index of a prefix set: %w", err)
	}
	s.index = make([]uint32, len(raw)/4)
	last := uint32(0)
	for i := range s.index {
		n := binary.LittleEndian.Uint32(raw[4*i:])
		if n < last {
			return errors.New("index of a prefix set runs backwards")
		}
		s.index[i], last = n, n
	}
	if s.index[0] != 0 || last != size {
		return errors.New("index of a prefix set does not fit its entries")
	}
	return nil
}
