package relay

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"sort"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/coredns-safebrowsing/safebrowsing/internal/prefixset"
	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol"
)

// request is what decides about the bytes of an answer.
type request struct {
	*state
	have, want view // have is the zero view: nothing
}

// key is equal for requests with the same answer.
func (u request) key() string {
	key := append([]byte(u.name), 0)
	return string(u.want.append(u.have.append(append(key, u.sum[:]...))))
}

// view returns the content in force with at most limit entries; 0: no limit.
func (s *state) view(limit int) view {
	if limit == 0 || limit >= s.set.Len() {
		return view{id: s.id}
	}
	return view{s.id, uint32(roundDown(limit, 5))}
}

// knows reports whether the history leads from a view to the content in force.
func (s *state) knows(v view) bool { return v.id == s.id || since(s.history, v.id) != nil }

// errHistory says that the history does not give the content that a version names.
var errHistory = errors.New("the history of the list does not lead to this version")

// notModified returns the answer to a client that has what it wants: neither changes nor a
// checksum ("Local Database").
func (u request) notModified() Answer {
	return Answer{Message: u.head(true), NotModified: true, Partial: true}
}

// head returns the fields before the additions.
func (u request) head(partial bool) []byte {
	dst := appendBytes(nil, fieldName, []byte(u.name))
	dst = appendBytes(dst, fieldVersion, versionOf(u.tag, u.want))
	if partial {
		dst = appendNumber(dst, fieldPartial, 1)
	}
	return dst
}

// encoder makes the answer to one request.
type encoder struct {
	request
	open func(*state, view) (content, error)
}

// encode makes the answer: an update that changes what the client has, or replaces it.
func (e *encoder) encode() (Answer, error) {
	target, err := e.open(e.state, e.want)
	if err != nil {
		return Answer{}, err
	}
	sum := e.sum
	if e.want.limit > 0 {
		sum = sumOf(target())
	}
	if e.have == (view{}) {
		m, err := e.message(false, nil, target, sum[:])
		return Answer{Message: m}, err
	}
	base, err := e.open(e.state, e.have)
	if err != nil {
		return Answer{}, err
	}
	removals, additions, err := indexedChange(base(), target(), e.width)
	if err != nil {
		return Answer{}, fmt.Errorf("%w: %w", errHistory, err)
	}
	m, err := e.message(true, contentOf(removals), contentOf(additions), sum[:])
	return Answer{Message: m, Partial: true}, err
}

// indexedChange is changeBetween as a partial update has it: removals are the indices in base, as
// four bytes, big-endian.
func indexedChange(base, target runs, width int) (removals, additions *prefixset.Set, err error) {
	gone, came := prefixset.NewBuilder(0), prefixset.NewBuilder(0)
	d := &differ{base: cursor{next: base}, target: cursor{next: target}, width: width}
	for err == nil {
		switch what, entry := d.next(); what {
		case ended:
			return gone.Set(), came.Set(), nil
		case removed:
			err = gone.Add(binary.BigEndian.AppendUint32(nil, uint32(d.index-1)), 4)
		case added:
			err = came.Add(entry, width)
		}
	}
	return nil, nil, err
}

// fieldOfAdditions is the field with the additions, by width (schema of version 5, HashList).
var fieldOfAdditions = map[int]protowire.Number{4: fieldFour, 8: 9, 16: 10, 32: 11}

// message returns the encoded HashList, in memory of just its size. Fields are in the order of
// their numbers, except for the minimum wait, which is to follow: so a client can decode the
// additions while they come.
func (e *encoder) message(partial bool, removals, additions content, checksum []byte) ([]byte, error) {
	in, err := protocol.PlanRice(e.width, additions.seq())
	if err != nil {
		return nil, err
	}
	out := protocol.RicePlan{}
	if removals != nil {
		if out, err = protocol.PlanRice(4, removals.seq()); err != nil {
			return nil, err
		}
	}
	head := e.head(partial)
	field := fieldOfAdditions[e.width]
	m := make([]byte, 0, len(head)+in.Size(field)+out.Size(fieldRemovals)+protowire.SizeTag(fieldChecksum)+protowire.SizeBytes(len(checksum)))
	m = append(m, head...)
	if field < fieldRemovals {
		m = in.AppendField(m, field, additions.seq())
	}
	if removals != nil {
		m = out.AppendField(m, fieldRemovals, removals.seq())
	}
	m = appendBytes(m, fieldChecksum, checksum)
	if field > fieldRemovals {
		m = in.AppendField(m, field, additions.seq())
	}
	return m, nil
}

// runs reads entries of one width in ascending order. Each call returns the next of them, as
// whole entries without separators, valid until the next call. At the end it returns nil.
type runs func() []byte

// content makes a new reader of the same entries each time.
type content func() runs

// none reads nothing.
func none() runs { return func() []byte { return nil } }

// setRuns reads a set whose entries all have one width.
func setRuns(s *prefixset.Set) runs {
	all, pause := s.Runs(), new(prefixset.Pause)
	return func() []byte {
		run, _ := all.Next()
		pause.After(len(run))
		return run
	}
}

// cutRuns reads the first width bytes of all entries of a set. Entries that begin alike
// become one.
func cutRuns(s *prefixset.Set, width int) runs {
	all, pause := s.Runs(), new(prefixset.Pause)
	var buf, last []byte
	return func() []byte {
		for buf = buf[:0]; len(buf) == 0; {
			run, wide := all.Next()
			if len(run) == 0 {
				return nil
			}
			pause.After(len(run))
			for ; len(run) > 0; run = run[wide:] {
				if entry := run[:width]; !bytes.Equal(entry, last) {
					buf = append(buf, entry...)
					last = append(last[:0], entry...)
				}
			}
		}
		return buf
	}
}

// firstRuns reads the first n entries, or all if there are fewer. A client may name more than
// an int of 32 bits has bytes for.
func firstRuns(from runs, width int, n int64) runs {
	left := n * int64(width)
	return func() []byte {
		if left == 0 {
			return nil
		}
		run := from()
		run = run[:min(int64(len(run)), left)]
		left -= int64(len(run))
		return run
	}
}

// lower returns the bytes of the entries in run that are less than bound.
func lower(run []byte, width int, bound []byte) int {
	return width * sort.Search(len(run)/width, func(i int) bool {
		return bytes.Compare(run[i*width:(i+1)*width], bound) >= 0
	})
}

// cursor has the next entries of runs at hand.
type cursor struct {
	next runs
	rest []byte
}

// ok reports whether there is an entry at hand, and reads on if need be.
func (c *cursor) ok() bool {
	if len(c.rest) == 0 {
		c.rest = c.next()
	}
	return len(c.rest) > 0
}

// take returns the first n bytes at hand and moves past them.
func (c *cursor) take(n int) []byte {
	taken := c.rest[:n]
	c.rest = c.rest[n:]
	return taken
}

// changedRuns reads the entries of from that are not in without, and those of with. An entry
// that both from and with have is read twice: the caller finds it by its order or checksum.
func changedRuns(from, without, with runs, width int) runs {
	f, out, in := &cursor{next: from}, &cursor{next: without}, &cursor{next: with}
	return func() []byte {
		for f.ok() {
			n := len(f.rest)
			if out.ok() {
				switch bytes.Compare(out.rest[:width], f.rest[:width]) {
				case 0:
					f.take(width)
					continue
				case -1:
					out.take(width)
					continue
				}
				n = lower(f.rest, width, out.rest[:width])
			}
			if in.ok() {
				n = lower(f.rest[:n], width, in.rest[:width])
			}
			if n == 0 {
				return in.take(width)
			}
			return f.take(n)
		}
		if in.ok() {
			return in.take(len(in.rest))
		}
		return nil
	}
}

// difference is what differ found.
type difference int

const (
	ended   difference = iota
	same               // entries of both
	removed            // one entry of the base only
	added              // one entry of the target only
)

// differ compares two contents entry by entry.
type differ struct {
	base, target cursor
	width        int
	index        int // of the next entry of base
}

// next returns the next entries and where they are.
func (d *differ) next() (difference, []byte) {
	w := d.width
	switch inBase, inTarget := d.base.ok(), d.target.ok(); {
	case !inBase && !inTarget:
		return ended, nil
	case !inTarget:
		d.index++
		return removed, d.base.take(w)
	case !inBase:
		return added, d.target.take(w)
	}
	if n := equalEntries(d.base.rest, d.target.rest, w); n > 0 {
		d.index += n / w
		d.target.take(n)
		return same, d.base.take(n)
	}
	if bytes.Compare(d.base.rest[:w], d.target.rest[:w]) < 0 {
		d.index++
		return removed, d.base.take(w)
	}
	return added, d.target.take(w)
}

// equalEntries returns the bytes of the whole entries with which a and b both begin.
func equalEntries(a, b []byte, width int) int {
	n := 0
	for n+8 <= len(a) && n+8 <= len(b) && binary.NativeEndian.Uint64(a[n:]) == binary.NativeEndian.Uint64(b[n:]) {
		n += 8
	}
	n -= n % width
	for n+width <= min(len(a), len(b)) && bytes.Equal(a[n:n+width], b[n:n+width]) {
		n += width
	}
	return n
}

// collect returns the set of all entries. It expects capacity of them.
func collect(all runs, width, capacity int) (*prefixset.Set, error) {
	b := prefixset.NewBuilder(capacity)
	for run := all(); len(run) > 0; run = all() {
		if err := b.Add(run, width); err != nil {
			return nil, err
		}
	}
	return b.Set(), nil
}

// sumOf returns the checksum of all entries.
func sumOf(all runs) [sha256.Size]byte {
	h := sha256.New()
	for run := all(); len(run) > 0; run = all() {
		h.Write(run)
	}
	return [sha256.Size]byte(h.Sum(nil))
}

// seq returns the content as an iterator.
func (c content) seq() iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		all := c()
		for run := all(); len(run) > 0 && yield(run); run = all() {
		}
	}
}

// contentOf returns the content of a set whose entries all have one width.
func contentOf(s *prefixset.Set) content { return func() runs { return setRuns(s) } }
