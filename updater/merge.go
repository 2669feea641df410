package updater

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"io"

	"github.com/coredns-safebrowsing/safebrowsing/internal/prefixset"
)

// One pass over the old entries and the update, which are both sorted. Beyond the new set it
// needs memory for about streamEntries of each stream, however long the list is. Nothing is
// sorted here: entries out of order are an error.

// merge returns the set that results from an update of base, and its checksum. It reads
// everything once and uses buffers of bounded size.
func merge(base *prefixset.Set, u *Update) (*prefixset.Set, [sha256.Size]byte, error) {
	m := &merger{
		base: base,
		held: prefixset.NewCursor(base.Runs().Next),
		out:  newCollector(expected(base, u)),
	}
	m.removals = newStream(u.Removals, &m.cut)
	for _, e := range u.Additions {
		m.additions = append(m.additions, newStream(e, &m.cut))
	}
	m.run()
	m.out.flush()
	if !m.cut && m.removals.OK() {
		return nil, [sha256.Size]byte{}, fmt.Errorf("%w: removal of entry %d, which is not in ascending order or past the end of %d entries",
			ErrMalformed, m.removal(), base.Len())
	}
	errs := []error{m.removals.err, m.out.err}
	for _, a := range m.additions {
		errs = append(errs, a.err)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, [sha256.Size]byte{}, fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	set, sum := m.out.finish()
	return set, sum, nil
}

// expected estimates how many entries of four bytes the new set will have. Without
// other widths the number is exact.
func expected(base *prefixset.Set, u *Update) (n int) {
	if widths := base.Widths(); len(widths) > 0 && widths[0] == 4 {
		n = base.Len() - u.Removals.Count
	}
	for _, e := range u.Additions {
		if e.Width == 4 {
			n += e.Count
		}
	}
	return n
}

// merger walks through the old entries, the removals and the additions in step.
type merger struct {
	base *prefixset.Set
	// Removals are indices into the old list: held alone advances index.
	held      *prefixset.Cursor
	removals  *stream
	additions []*stream
	index     int  // of the entry at hand of held
	cut       bool // a stream of the update ended with an error
	out       *collector
}

// run writes the entries of the new list to out, in ascending order.
func (m *merger) run() {
	// After either error there will be no list: stop early.
	for m.out.err == nil && !m.cut {
		addition := m.least()
		switch {
		case !m.held.OK() && addition == nil:
			return
		case !m.held.OK() && len(m.additions) == 1: // nothing left to compare with
			m.out.add(addition.Take(addition.Len()))
		case !m.held.OK():
			m.out.add(addition.Take(1))
		// Nothing is written for a removal, so it may come before a lesser addition.
		case m.removals.OK() && m.removal() == m.index:
			m.removals.Take(1)
			m.held.Take(1)
			m.index++
		default:
			if n := m.undisturbed(addition); n > 0 {
				entries, width := m.held.Take(n)
				m.out.addOf(m.base, m.index, entries, width)
				m.index += n
			} else {
				m.out.add(addition.Take(1))
			}
		}
	}
}

// removal returns the index of the next entry to remove.
func (m *merger) removal() int { return int(binary.BigEndian.Uint32(m.removals.Entry(0))) }

// least returns the stream of additions whose entry at hand is the least, or nil.
func (m *merger) least() (least *stream) {
	for _, a := range m.additions {
		if a.OK() && (least == nil || bytes.Compare(a.Entry(0), least.Entry(0)) < 0) {
			least = a
		}
	}
	return least
}

// undisturbed returns how many old entries at hand come before the next removal and the
// next addition.
func (m *merger) undisturbed(addition *stream) int {
	n := m.held.Len()
	if m.removals.OK() && m.removal() > m.index {
		n = min(n, m.removal()-m.index)
	}
	if addition == nil {
		return n
	}
	// An addition that equals an old entry comes before it. The builder refuses the
	// second of the two.
	return m.held.Below(n, addition.Entry(0))
}

// stream reads the entries of an update.
type stream struct {
	*prefixset.Cursor
	err error
}

// streamEntries is how many entries are read at a time.
const streamEntries = 1024

// newStream returns a reader of entries of an update. It sets *cut if they end with an error.
func newStream(e Entries, cut *bool) *stream {
	s := new(stream)
	buf := make([]byte, e.Width*min(streamEntries, e.Count))
	s.Cursor = prefixset.NewCursor(func() ([]byte, int) {
		n := min(e.Count, streamEntries)
		chunk := buf[:n*e.Width]
		if n == 0 || s.err != nil {
			return nil, 0
		}
		// A stream that ends early is an error too: Count has promised more.
		if _, s.err = io.ReadFull(e.Reader, chunk); s.err != nil {
			*cut = true
			return nil, 0
		}
		e.Count -= n
		return chunk, e.Width
	})
	return s
}

// collector builds the set and the checksum of a list from its entries. The checksum is
// over the entries in order, whatever their widths ("Local Database").
type collector struct {
	builder *prefixset.Builder
	hash    hash.Hash
	hashing *bufio.Writer // to hash
	buf     []byte        // entries of one width on their way to builder
	width   int
	pause   prefixset.Pause
	err     error
}

func newCollector(capacity int) *collector {
	c := &collector{builder: prefixset.NewBuilder(capacity), hash: sha256.New(), buf: make([]byte, 0, 4*manyBytes)}
	c.hashing = bufio.NewWriterSize(c.hash, 4*manyBytes)
	return c
}

// add appends entries. Small runs are buffered: both receivers are fast with large ones.
func (c *collector) add(entries []byte, width int) {
	if width != c.width || len(c.buf)+len(entries) > cap(c.buf) {
		c.flush()
	}
	if len(c.buf) == 0 && len(entries) >= manyBytes {
		c.pass(entries, width, nil, 0)
		return
	}
	c.width = width
	c.buf = append(c.buf, entries...)
}

// addOf is add for entries that equal old's, from number first on.
func (c *collector) addOf(old *prefixset.Set, first int, entries []byte, width int) {
	if len(entries) < manyBytes {
		c.add(entries, width)
		return
	}
	c.flush()
	c.pass(entries, width, old, first)
}

// manyBytes is the size from which entries bypass the buffer.
const manyBytes = 512

// flush passes the buffered entries on.
func (c *collector) flush() {
	if len(c.buf) > 0 {
		c.pass(c.buf, c.width, nil, 0)
		c.buf = c.buf[:0]
	}
}

// pass adds entries to the set and to the checksum. From number first on, they equal those in
// old, unless that is nil. After an error pass does nothing.
func (c *collector) pass(entries []byte, width int, old *prefixset.Set, first int) {
	if c.err != nil {
		return
	}
	if old == nil {
		c.err = c.builder.Add(entries, width)
	} else {
		c.err = c.builder.AddOf(old, first, entries, width)
	}
	c.hashing.Write(entries) // without an error: hashes have none
	c.pause.After(len(entries))
}

func (c *collector) finish() (*prefixset.Set, [sha256.Size]byte) {
	c.hashing.Flush()
	return c.builder.Set(), [sha256.Size]byte(c.hash.Sum(nil))
}
