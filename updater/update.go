package updater

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

// Source fetches lists from a server.
type Source interface {
	// Fetch asks for the wanted lists in one request and returns one update
	// for each, in the same order. An error means that the whole request
	// failed; what is wrong with one list only is in its update.
	Fetch(ctx context.Context, wanted []Want) ([]Update, error)
}

// Want is a list to fetch.
type Want struct {
	List    string
	Version []byte // of the list that is held, as the server sent it; nil: none
}

// Update is a server's answer about one list. Its readers are read once.
type Update struct {
	Err     error // this list's part of the answer is malformed; nothing else holds then
	Version []byte
	Partial bool // apply to the list that was held; else replace it

	// Removals yields indices into the list that was held, ascending, as four
	// bytes big-endian. Nil: none.
	Removals     io.Reader
	RemovalCount int

	// Additions yields entries of the list's width, ascending bytewise, one
	// after the other. Nil: none.
	Additions     io.Reader
	AdditionCount int

	Checksum    []byte        // SHA-256 of all entries of the new list; nil: absent
	MinimumWait time.Duration // before the list may be asked for again; 0: none given
}

// List is a list as it is held and stored. It is immutable. A zero List but for
// its name is a list of which nothing is held.
type List struct {
	Name     string
	Version  []byte // opaque, given by the server
	Checksum [sha256.Size]byte
	Set      *lookup.PrefixSet
}

// held reports whether there is content that a partial update could change.
func (l List) held() bool { return l.Set != nil }

// Errors of an update that must not be applied.
var (
	ErrChecksum  = errors.New("checksum does not match")
	ErrMalformed = errors.New("malformed update")
)

var listName = regexp.MustCompile(`^[a-z0-9]+(?:[-_.][a-z0-9]+)*-(4|8|16|32)b$`)

// Width returns the bytes of an entry of the list, which the suffix of its name
// tells: "-4b", "-8b", "-16b" or "-32b".
func Width(name string) (int, error) {
	m := listName.FindStringSubmatch(name)
	if m == nil {
		return 0, fmt.Errorf("%q is no name of a list: it must end in -4b, -8b, -16b or -32b", name)
	}
	return strconv.Atoi(m[1])
}

// Apply returns the list that results from an update of old, and whether its
// content changed ("Local Database"). It returns ErrMalformed or ErrChecksum,
// wrapped, for an update that must not be applied; old is never changed. A
// list may hold at most maxEntries.
func Apply(old List, u Update, maxEntries int) (l List, changed bool, err error) {
	if err := checkShape(old, u, maxEntries); err != nil {
		return List{}, false, err
	}
	if u.Partial && u.RemovalCount == 0 && u.AdditionCount == 0 && u.Checksum == nil {
		old.Version = u.Version
		return old, false, nil
	}
	width, err := Width(old.Name)
	if err != nil {
		return List{}, false, err
	}
	base := &lookup.PrefixSet{}
	if u.Partial {
		base = old.Set
	}
	set, sum, err := merge(base, u, width)
	if err != nil {
		return List{}, false, err
	}
	if !bytes.Equal(sum[:], u.Checksum) {
		return List{}, false, fmt.Errorf("%w: got %x, the server says %x", ErrChecksum, sum, u.Checksum)
	}
	changed = !old.held() || sum != old.Checksum
	return List{Name: old.Name, Version: u.Version, Checksum: sum, Set: set}, changed, nil
}

// checkShape finds what is wrong with an update before anything is decoded.
func checkShape(old List, u Update, maxEntries int) error {
	base := 0
	if u.Partial && old.held() {
		base = old.Set.Len()
	}
	switch {
	case u.Err != nil:
		return u.Err
	case len(u.Version) == 0:
		return fmt.Errorf("%w: no version", ErrMalformed)
	case u.Partial && !old.held():
		return fmt.Errorf("%w: partial, but nothing is held that it could change", ErrMalformed)
	case u.MinimumWait < 0:
		return fmt.Errorf("%w: negative minimum wait %s", ErrMalformed, u.MinimumWait)
	case u.RemovalCount > base:
		return fmt.Errorf("%w: %d removals from %d entries", ErrMalformed, u.RemovalCount, base)
	case u.AdditionCount > maxEntries-(base-u.RemovalCount):
		return fmt.Errorf("%w: %d additions, at most %d entries are allowed", ErrMalformed, u.AdditionCount, maxEntries)
	case u.Checksum != nil && len(u.Checksum) != sha256.Size:
		return fmt.Errorf("%w: checksum of %d bytes", ErrMalformed, len(u.Checksum))
	case u.Checksum == nil && !(u.Partial && u.RemovalCount == 0 && u.AdditionCount == 0):
		return fmt.Errorf("%w: changes without a checksum", ErrMalformed)
	}
	return nil
}

// merge builds, in one pass and with bounded buffers, the set that results from
// removing and adding, and its checksum.
func merge(base *lookup.PrefixSet, u Update, width int) (*lookup.PrefixSet, [sha256.Size]byte, error) {
	removals := newCursor(u.Removals, 4, u.RemovalCount)
	additions := newCursor(u.Additions, width, u.AdditionCount)
	held := newCursor(base.Reader(), width, base.Len())
	out := newSum(width, base.Len()-u.RemovalCount+u.AdditionCount)

	removals.next()
	additions.next()
	held.next()
	for index := uint32(0); held.ok; index++ {
		if removals.ok && binary.BigEndian.Uint32(removals.entry) == index {
			removals.next()
			held.next()
			continue
		}
		for additions.ok && bytes.Compare(additions.entry, held.entry) < 0 {
			out.add(additions.entry)
			additions.next()
		}
		out.add(held.entry)
		held.next()
	}
	for additions.ok {
		out.add(additions.entry)
		additions.next()
	}
	if removals.ok {
		return nil, [sha256.Size]byte{}, fmt.Errorf("%w: removal of entry %d, which is not in ascending order or past the end of %d entries",
			ErrMalformed, binary.BigEndian.Uint32(removals.entry), base.Len())
	}
	if err := errors.Join(removals.err, additions.err, out.err); err != nil {
		return nil, [sha256.Size]byte{}, fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	set, sum := out.finish()
	return set, sum, nil
}

// cursor reads entries of one size. It is at an entry while ok.
type cursor struct {
	source io.Reader
	buf    []byte // a whole number of entries
	rest   []byte // of buf: read, not yet yielded
	left   int    // entries not yet read from source
	entry  []byte
	ok     bool
	err    error
}

// cursorEntries is how many entries are read at a time.
const cursorEntries = 1024

func newCursor(source io.Reader, width, count int) *cursor {
	c := &cursor{source: source, left: count}
	c.buf = make([]byte, width*min(cursorEntries, count))
	if count > 0 {
		c.entry = c.buf[:width]
	}
	return c
}

func (c *cursor) next() {
	width := len(c.entry)
	if len(c.rest) == 0 {
		n := min(c.left, cursorEntries)
		if n == 0 {
			c.ok = false
			return
		}
		c.rest = c.buf[:n*width]
		if _, err := io.ReadFull(c.source, c.rest); err != nil {
			c.ok, c.err, c.left, c.rest = false, err, 0, nil
			return
		}
		c.left -= n
	}
	c.entry, c.rest, c.ok = c.rest[:width], c.rest[width:], true
}

// sum collects the entries of a new list: its set and its checksum.
type sum struct {
	builder *lookup.Builder
	width   int
	buf     []byte // entries that hash has not seen yet
	hash    interface {
		io.Writer
		Sum([]byte) []byte
	}
	err error
}

func newSum(width, capacity int) *sum {
	return &sum{
		builder: lookup.NewBuilder(capacity),
		width:   width,
		buf:     make([]byte, 0, width*cursorEntries),
		hash:    sha256.New(),
	}
}

func (s *sum) add(entry []byte) {
	if s.err != nil {
		return
	}
	if s.err = s.builder.Add(entry, s.width); s.err != nil {
		return
	}
	if len(s.buf)+len(entry) > cap(s.buf) {
		s.hash.Write(s.buf)
		s.buf = s.buf[:0]
	}
	s.buf = append(s.buf, entry...)
}

func (s *sum) finish() (*lookup.PrefixSet, [sha256.Size]byte) {
	s.hash.Write(s.buf)
	return s.builder.Set(), [sha256.Size]byte(s.hash.Sum(nil))
}
