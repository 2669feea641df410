package relay

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"iter"

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
	key := append([]byte(u.form()), 0)
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

// unchanged returns an update that leaves a list as the client holds it: neither changes nor a
// checksum ("Local Database").
func unchanged(name string, version []byte) Answer {
	return Answer{Message: head(name, version, true), NotModified: true, Partial: true}
}

// head returns the fields before the additions.
func head(name string, version []byte, partial bool) []byte {
	dst := appendBytes(nil, fieldName, []byte(name))
	dst = appendBytes(dst, fieldVersion, version)
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
	c, err := changeBetween(base(), target(), true)
	if err != nil {
		return Answer{}, fmt.Errorf("%w: %w", errHistory, err)
	}
	m, err := e.message(true, contentOf(c.removed), contentOf(c.added), sum[:])
	return Answer{Message: m, Partial: true}, err
}

// fieldOfAdditions is the field with the additions, by width (schema of version 5, HashList).
var fieldOfAdditions = map[int]protowire.Number{4: fieldFour, 8: 9, 16: 10, 32: 11}

// message returns the encoded HashList, in memory of just its size. Fields are in the order of
// their numbers, except for the minimum wait, which is to follow, and longer entries, which come
// first: so a client can decode the additions while they come.
func (e *encoder) message(partial bool, removals, additions content, checksum []byte) ([]byte, error) {
	in, err := protocol.PlanRice(e.width, additions.seq(e.width))
	if err != nil {
		return nil, err
	}
	out := protocol.RicePlan{}
	if removals != nil {
		if out, err = protocol.PlanRice(4, removals.seq(4)); err != nil {
			return nil, err
		}
	}
	first := head(e.name, versionOf(e.tag, e.want), partial)
	if e.stored {
		first = protocol.AppendLonger(first, additions.longer(e.width))
	}
	field := fieldOfAdditions[e.width]
	m := make([]byte, 0, len(first)+in.Size(field)+out.Size(fieldRemovals)+protowire.SizeTag(fieldChecksum)+protowire.SizeBytes(len(checksum)))
	m = append(m, first...)
	if field < fieldRemovals {
		m = in.AppendField(m, field, additions.seq(e.width))
	}
	if removals != nil {
		m = out.AppendField(m, fieldRemovals, removals.seq(4))
	}
	m = appendBytes(m, fieldChecksum, checksum)
	if field > fieldRemovals {
		m = in.AppendField(m, field, additions.seq(e.width))
	}
	return m, nil
}

// runs reads entries in ascending order, bytewise. Each call returns the next of them that have one
// width, as whole entries without separators, valid until the next call. At the end it returns nil.
type runs func() (run []byte, width int)

// content makes a new reader of the same entries each time.
type content func() runs

// none reads nothing.
func none() runs { return func() ([]byte, int) { return nil, 0 } }

// setRuns reads a set.
func setRuns(s *prefixset.Set) runs {
	all, pause := s.Runs(), new(prefixset.Pause)
	return func() ([]byte, int) {
		run, width := all.Next()
		pause.After(len(run))
		return run, width
	}
}

// cutRuns reads the first width bytes of all entries of a set. Entries that begin alike
// become one.
func cutRuns(s *prefixset.Set, width int) runs {
	all, pause := s.Runs(), new(prefixset.Pause)
	var buf, last []byte
	return func() ([]byte, int) {
		for buf = buf[:0]; len(buf) == 0; {
			run, wide := all.Next()
			if len(run) == 0 {
				return nil, 0
			}
			pause.After(len(run))
			for ; len(run) > 0; run = run[wide:] {
				if entry := run[:width]; !bytes.Equal(entry, last) {
					buf = append(buf, entry...)
					last = append(last[:0], entry...)
				}
			}
		}
		return buf, width
	}
}

// firstRuns reads the first n entries, or all if there are fewer. A client may name more than
// an int of 32 bits has.
func firstRuns(from runs, n int64) runs {
	return func() ([]byte, int) {
		run, width := from()
		if len(run) == 0 || n == 0 {
			return nil, 0
		}
		taken := min(int64(len(run)/width), n)
		n -= taken
		return run[:int(taken)*width], width
	}
}

// changedRuns reads the entries of from that are not in without, and the entries of with. An entry
// that both from and with have is read twice: the caller finds it by its order or checksum.
func changedRuns(from, without, with runs) runs {
	f, out, in := prefixset.NewCursor(from), prefixset.NewCursor(without), prefixset.NewCursor(with)
	return func() ([]byte, int) {
		for f.OK() {
			n := f.Len()
			if out.OK() {
				switch bytes.Compare(out.Entry(0), f.Entry(0)) {
				case 0:
					f.Take(1)
					continue
				case -1:
					out.Take(1)
					continue
				}
				n = f.Below(n, out.Entry(0))
			}
			if in.OK() {
				n = f.Below(n, in.Entry(0))
			}
			if n == 0 {
				return in.Take(1)
			}
			return f.Take(n)
		}
		if in.OK() {
			return in.Take(in.Len())
		}
		return nil, 0
	}
}

// collect returns the set of all entries. It expects capacity of them.
func collect(all runs, capacity int) (*prefixset.Set, error) {
	b := prefixset.NewBuilder(capacity)
	for run, width := all(); len(run) > 0; run, width = all() {
		if err := b.Add(run, width); err != nil {
			return nil, err
		}
	}
	return b.Set(), nil
}

// sumOf returns the checksum of all entries.
func sumOf(all runs) [sha256.Size]byte {
	h := sha256.New()
	for run, _ := all(); len(run) > 0; run, _ = all() {
		h.Write(run)
	}
	return [sha256.Size]byte(h.Sum(nil))
}

// seq returns the entries of one width as an iterator.
func (c content) seq(width int) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		all := c()
		for run, of := all(); len(run) > 0; run, of = all() {
			if of == width && !yield(run) {
				return
			}
		}
	}
}

// longer returns the entries that are longer than width, by their width.
func (c content) longer(width int) map[int][]byte {
	longer := make(map[int][]byte)
	all := c()
	for run, of := all(); len(run) > 0; run, of = all() {
		if of > width {
			longer[of] = append(longer[of], run...)
		}
	}
	return longer
}

// contentOf returns the content of a set.
func contentOf(s *prefixset.Set) content { return func() runs { return setRuns(s) } }
