package relay

import (
	"encoding/binary"
	"errors"
	"fmt"

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
