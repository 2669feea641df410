package prefixset

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/bits"
	"runtime"
)

// The written form has the number of widths (one byte) and then a part for each width,
// ascending:
//
//	width (one byte), low or lead (one byte), number of entries (32 bits),
//	of blocks: the directory and the stream
//	of wide: the index (32 bits a number) and the tails
//
// Numbers are little-endian.
const partHead = 1 + 1 + 4

// WriteTo writes the set in a form for Read. The form has no checksum. WriteTo implements
// io.WriterTo.
func (s *Set) WriteTo(w io.Writer) (written int64, err error) {
	put := func(b []byte) {
		if err == nil {
			var n int
			n, err = w.Write(b)
			written += int64(n)
		}
	}
	put([]byte{byte(len(s.Widths()))})
	if f := s.four.Load(); f != nil {
		p := f.alone(new(Pause))
		put(appendPartHead(nil, 4, p.low, p.n))
		put(p.buf[:len(p.buf)-slack])
		runtime.KeepAlive(p)
	}
	for _, p := range s.wide {
		head := appendPartHead(nil, p.width, uint(p.lead), p.len())
		for _, n := range p.index {
			head = binary.LittleEndian.AppendUint32(head, n)
		}
		put(head)
		for _, c := range p.chunks {
			put(c.bytes)
		}
	}
	runtime.KeepAlive(s) // its parts use memory that the collector frees with s
	return written, err
}

// appendPartHead appends what comes before the content of a part.
func appendPartHead(dst []byte, width int, low uint, n int) []byte {
	return binary.LittleEndian.AppendUint32(append(dst, byte(width), byte(low)), uint32(n))
}

// Read reads a set that WriteTo wrote. It returns an error if there are more than maxEntries
// entries. The set is safe to use even if r is damaged, but may then have other entries: the
// caller must check its checksum.
func Read(r io.Reader, maxEntries int) (*Set, error) {
	var parts [1]byte
	if _, err := io.ReadFull(r, parts[:]); err != nil {
		return nil, fmt.Errorf("reading the head of a prefix set: %w", err)
	}
	s := new(Set)
	before := 0 // the previous width
	for range parts[0] {
		width, n, err := s.readPart(r, maxEntries)
		if err != nil {
			return nil, err
		}
		if width <= before {
			return nil, fmt.Errorf("width %d follows width %d in a prefix set", width, before)
		}
		before = width
		maxEntries -= n
	}
	return s, nil
}

// readPart reads the entries of one width. It returns the width and the number of entries.
func (s *Set) readPart(r io.Reader, maxEntries int) (width, n int, err error) {
	var head [partHead]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return 0, 0, fmt.Errorf("reading the head of a prefix set: %w", err)
	}
	width, n = int(head[0]), int(binary.LittleEndian.Uint32(head[2:]))
	if n < 1 || n > maxEntries {
		return 0, 0, fmt.Errorf("%d entries of one width, must be 1 to %d", n, maxEntries)
	}
	switch {
	case width < minWidth || width > maxWidth:
		return 0, 0, fmt.Errorf("entries of %d bytes, must be %d to %d", width, minWidth, maxWidth)
	case width == 4:
		var p *blocks
		if p, err = readBlocks(r, uint(head[1]), n); err == nil {
			s.four.Store(fourOf(p))
		}
	default:
		var p *wide
		p, err = readWide(r, width, int(head[1]), n)
		s.wide = append(s.wide, p)
	}
	if err != nil {
		return 0, 0, fmt.Errorf("reading %d entries of %d bytes: %w", n, width, err)
	}
	return width, n, nil
}

// errBlocks says that a directory and a stream contradict each other.
var errBlocks = errors.New("blocks do not fit their directory")

// readBlocks reads n entries of four bytes. It checks them: contains and the cursor use
// positions from the file without a further check, for speed.
func readBlocks(r io.Reader, low uint, n int) (*blocks, error) {
	if low > maxLow || !fits(low, n) {
		return nil, fmt.Errorf("%d low bits", low)
	}
	size := blocksBytes(low, n)
	mem := newMemory(size + slack)
	p := &blocks{low: low, n: n, buf: mem.bytes, mem: mem}
	_, err := io.ReadFull(r, p.buf[:size])
	if err == nil && !p.valid() {
		err = errBlocks
	}
	runtime.KeepAlive(mem)
	if err != nil {
		return nil, err
	}
	return p, nil
}

// valid reports whether contains and the cursor can use b without a fault: the blocks must
// follow each other in the stream, and each must mark as many first entries as it has used
// buckets.
func (p *blocks) valid() bool {
	count := blockCount(p.low)
	if binary.LittleEndian.Uint32(p.buf) != 0 || binary.LittleEndian.Uint32(p.buf[recordBytes*count:]) != uint32(p.n) {
		return false
	}
	before := 0
	for block := range count {
		r := p.record(block)
		s := p.span(r)
		if s.n > uint64(p.n-before) || p.begins(s) != bits.OnesCount64(r.used(0))+bits.OnesCount64(r.used(1)) {
			return false
		}
		before += int(s.n)
	}
	return true
}

// begins returns the number of marked first entries in a block, or -1 if its first entry is
// not marked.
func (p *blocks) begins(s span) (n int) {
	if s.n > 0 && bitsAt(p.buf, s.at)&1 == 0 {
		return -1
	}
	for i := uint64(0); i < s.n; i += 64 {
		n += bits.OnesCount64(wordAt(p.buf, s.at+i) << (64 - min(s.n-i, 64)))
	}
	return n
}

// readWide reads n entries of another width. It allocates memory chunk by chunk, as the
// entries come: a short file with a large n must not take all memory.
func readWide(r io.Reader, width, lead, n int) (*wide, error) {
	if lead < 1 || lead > 2 {
		return nil, fmt.Errorf("%d indexed bytes", lead)
	}
	p := &wide{width: width, lead: lead}
	if err := p.readIndex(r, uint32(n)); err != nil {
		return nil, err
	}
	for ; n > 0; n -= chunkEntries {
		chunk := newMemory(min(n, chunkEntries) * (width - lead))
		p.chunks = append(p.chunks, chunk)
		if _, err := io.ReadFull(r, chunk.bytes); err != nil {
			return nil, err
		}
		runtime.KeepAlive(chunk)
	}
	return p, nil
}

// readIndex reads the index of n entries.
func (p *wide) readIndex(r io.Reader, n uint32) error {
	raw := make([]byte, 4*(1<<(8*p.lead)+1))
	if _, err := io.ReadFull(r, raw); err != nil {
		return err
	}
	p.index = make([]uint32, len(raw)/4)
	last := uint32(0)
	for i := range p.index {
		first := binary.LittleEndian.Uint32(raw[4*i:])
		if first < last {
			return errors.New("the index runs backwards")
		}
		p.index[i], last = first, first
	}
	if p.index[0] != 0 || last != n {
		return errors.New("the index does not fit the entries")
	}
	return nil
}
