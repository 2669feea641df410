package relay

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/coredns-safebrowsing/safebrowsing/internal/prefixset"
	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol"
)

// request is what decides about the bytes of an answer.
type request struct {
	*state
	have version // the zero version: nothing
	want view
	most int // removals and additions; 0: no limit
	room int // entries of the client's list; 0: no limit
}

// full returns the request of a client that has nothing.
func (u request) full() request {
	u.have = version{}
	if u.most >= u.length(u.want) {
		u.most = 0 // it makes no difference
	}
	return u
}

// key is equal for requests with the same answer.
func (u request) key() string {
	key := append([]byte(u.name), 0)
	key = u.have.append(append(key, u.sum[:]...), nil)
	key = u.want.append(key)
	key = binary.BigEndian.AppendUint32(key, uint32(u.most))
	if u.most > 0 { // only between two steps can a list be longer than both contents
		key = binary.BigEndian.AppendUint32(key, uint32(u.room))
	}
	return string(key)
}

// view returns the content in force with at most limit entries; 0: no limit.
func (s *state) view(limit int) view {
	if limit == 0 || limit >= s.set.Len() {
		return view{id: s.id}
	}
	return view{s.id, uint32(roundDown(limit, 5))}
}

// length returns the entries of a view of the content in force.
func (s *state) length(v view) int {
	if v.limit > 0 {
		return int(v.limit)
	}
	return s.set.Len()
}

// knows reports whether the history leads from a version to the content in force.
func (s *state) knows(v version) bool {
	return s.has(v.target.id) && (v.boundary == nil || v.base.id == id{} || s.has(v.base.id))
}

func (s *state) has(content id) bool {
	return content == s.id || since(s.history, content) != nil
}

// errHistory says that the history does not give the content that a version names.
var errHistory = errors.New("the history of the list does not lead to this version")

// notModified returns the answer to a client that has what it wants: neither changes nor a
// checksum ("Local Database").
func (u request) notModified() Answer {
	return Answer{Message: u.head(version{target: u.want}, true), NotModified: true, Partial: true}
}

// head returns the fields before the additions.
func (u request) head(v version, partial bool) []byte {
	dst := appendBytes(nil, fieldName, []byte(u.name))
	dst = appendBytes(dst, fieldVersion, v.append(nil, u.tag))
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

// encode makes the answer.
func (e *encoder) encode() (Answer, error) {
	if e.have.target.id == (id{}) {
		return e.encodeFull()
	}
	target := e.want
	if e.most > 0 && e.have.boundary != nil {
		target = e.have.target // first the rest of what the client has begun
	}
	base, err := e.base()
	if err != nil {
		return Answer{}, err
	}
	to, err := e.open(e.state, target)
	if err != nil {
		return Answer{}, err
	}
	return e.encodePartial(base, to, target)
}

// base returns the content that the client has.
func (e *encoder) base() (content, error) {
	low, err := e.open(e.state, e.have.target)
	if err != nil || e.have.boundary == nil {
		return low, err
	}
	high := content(none)
	if e.have.base.id != (id{}) {
		if high, err = e.open(e.state, e.have.base); err != nil {
			return nil, err
		}
	}
	return func() runs { return mixedRuns(low(), high(), e.have.boundary) }, nil
}

// encodeFull encodes an update that replaces whatever the client has. If the update is
// limited, the client gets the first entries.
func (e *encoder) encodeFull() (Answer, error) {
	n, v := e.length(e.want), version{target: e.want}
	all := contentOf(e.set)
	if e.most > 0 && e.most < n {
		n = e.most
		v.boundary = entryAt(all(), e.width, n)
	}
	whole, sum := all, e.sum
	if n < e.set.Len() {
		whole = func() runs { return firstRuns(all(), e.width, int64(n)) }
		sum = sumOf(whole())
	}
	m, err := e.message(v, false, nil, whole, sum[:])
	return Answer{Message: m, More: v.boundary != nil}, err
}

// entryAt returns entry i.
func entryAt(all runs, width, i int) []byte {
	for run := all(); len(run) > 0; run = all() {
		if i < len(run)/width {
			return bytes.Clone(run[i*width : (i+1)*width])
		}
		i -= len(run) / width
	}
	return nil
}

// changes are what a partial update says.
type changes struct {
	removals  *prefixset.Builder // indices as four bytes, big-endian
	additions *prefixset.Builder
	n         int
	sum       hash.Hash // of the content that they lead to; nil: it is known
	bytes     int       // of that content
	boundary  []byte    // from here on the base is left as it is; nil: nothing is left out
}

// encodePartial encodes an update that changes base.
func (e *encoder) encodePartial(base, to content, target view) (Answer, error) {
	c := &changes{removals: prefixset.NewBuilder(0), additions: prefixset.NewBuilder(0)}
	if e.most > 0 || target != (view{id: e.id}) {
		c.sum = sha256.New()
	}
	if err := c.find(&differ{base: cursor{next: base()}, target: cursor{next: to()}, width: e.width}, e.most); err != nil {
		return Answer{}, fmt.Errorf("%w: %w", errHistory, err)
	}
	if e.room > 0 && c.bytes/e.width > e.room { // a mixture: start again, which grows from nothing
		return Answer{}, errHistory
	}
	v := version{target: target}
	if c.boundary != nil {
		v.boundary, v.base = c.boundary, e.have.target
		if e.have.boundary != nil {
			v.base = e.have.base
		}
	}
	checksum := e.sum[:]
	if c.sum != nil {
		checksum = c.sum.Sum(nil)
	}
	m, err := e.message(v, true, contentOf(c.removals.Set()), contentOf(c.additions.Set()), checksum)
	return Answer{Message: m, Partial: true, More: v.boundary != nil || target != e.want}, err
}

// find notes what d finds, most changes at most; 0: no limit.
func (c *changes) find(d *differ, most int) error {
	for {
		what, run := d.next()
		switch {
		case what == ended:
			return nil
		case what == same:
			c.keep(run)
			continue
		case most > 0 && c.n == most:
			c.boundary = bytes.Clone(run)
			if what == removed {
				c.keep(run)
			}
			for d.base.ok() { // the rest stays as it is
				c.keep(d.base.take(len(d.base.rest)))
			}
			return nil
		}
		c.n++
		if err := c.note(what, d.index-1, run); err != nil {
			return err
		}
	}
}

// keep notes entries of the new content.
func (c *changes) keep(run []byte) {
	if c.sum != nil {
		c.sum.Write(run)
	}
	c.bytes += len(run)
}

// note notes one change.
func (c *changes) note(what difference, index int, entry []byte) error {
	if what == removed {
		return c.removals.Add(binary.BigEndian.AppendUint32(nil, uint32(index)), 4)
	}
	c.keep(entry)
	return c.additions.Add(entry, len(entry))
}

// fieldOfAdditions is the field with the additions, by width (schema of version 5, HashList).
var fieldOfAdditions = map[int]protowire.Number{4: fieldFour, 8: 9, 16: 10, 32: 11}

// message returns the encoded HashList, in memory of just its size. Fields are in the order of
// their numbers, except for the minimum wait, which is to follow: so a client can decode the
// additions while they come.
func (e *encoder) message(v version, partial bool, removals, additions content, checksum []byte) ([]byte, error) {
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
	head := e.head(v, partial)
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
