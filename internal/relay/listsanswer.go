package relay

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
	"net"
	"net/netip"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
)

// Answer is what a client gets about one list.
type Answer struct {
	// Message is a HashList without minimum_wait_duration, which differs from answer to
	// answer. Its bytes are shared: do not change them.
	Message []byte
	// NotModified says that the client has this content already.
	NotModified bool
	// Partial says that the update changes what the client has; else it replaces that.
	Partial bool
}

// ErrUnknownList says that there is no list of this name.
var ErrUnknownList = errors.New("no such list")

// Get returns what brings a client from its version of a list to the one in force. version is
// what the client sent, nil if it sent none. A version that is unknown, or too old, or of
// another list, gives a full update.
//
// An update leaves the client with at most maxEntries entries: those that come first. 0 means no
// limit; it is not negative. So that few different updates are made, the limit is rounded down to five significant bits.
//
// Clients with equal arguments share the bytes of the answer, also while it is being made. One
// answer is made at a time, for the clients in turn: client is the address of the one that asks,
// the zero Addr if that is unknown. A client with stored takes entries as long as they are stored, see
// protocol.AsStoredHeader; a version of one form is unknown to the other. The error is ErrUnknownList,
// wrapped, or ctx's: nothing is made for clients that have all gone away.
func (l *Lists) Get(ctx context.Context, client netip.Addr, name string, stored bool, version []byte, maxEntries int) (Answer, error) {
	current := *l.current.Load()
	s := current[name]
	if stored {
		s = cmp.Or(current[formOf(name, true)], s)
	}
	if s == nil {
		return Answer{}, fmt.Errorf("%w: %q", ErrUnknownList, name)
	}
	u := request{state: s, have: parseVersion(version, s.tag), want: s.view(maxEntries)}
	if u.have == u.want {
		return unchanged(s.name, version), nil
	}
	if s.knows(u.have) {
		a, err := l.get(ctx, client, u)
		if !errors.Is(err, errHistory) {
			return a, err
		}
	}
	u.have = view{}
	return l.get(ctx, client, u)
}

// roundDown returns n with only its significant highest bits.
func roundDown(n, significant int) int {
	below := max(bits.Len(uint(n))-significant, 0)
	return n >> below << below
}

// The bounds of a minimum wait. A client that asks again a minute after its last answer at
// the latest, the time of the answer included, is never further behind the relay.
const (
	leastWait    = 10 * time.Second
	greatestWait = 55 * time.Second
)

// MinimumWait returns the minimum wait of an answer; r is uniform in [0, 1). It differs from
// answer to answer so that clients that start together do not ask together. Give all lists of
// one answer the same wait: the client then asks for them together again.
func MinimumWait(r float64) time.Duration {
	return leastWait + time.Duration(r*float64(greatestWait-leastWait))
}

// The fields of version 5 that are written here (schema of version 5, HashList and
// BatchGetHashListsResponse).
const (
	fieldName      protowire.Number = 1
	fieldVersion   protowire.Number = 2
	fieldPartial   protowire.Number = 3
	fieldFour      protowire.Number = 4
	fieldRemovals  protowire.Number = 5
	fieldWait      protowire.Number = 6
	fieldChecksum  protowire.Number = 7
	fieldHashLists protowire.Number = 1
)

// Body returns the body of an answer to hashList.get. All but the last few bytes are shared
// with other answers: do not change them.
func (a Answer) Body(wait time.Duration) net.Buffers {
	return net.Buffers{a.Message, a.tail(wait)}
}

// BatchBody returns the body of an answer to hashLists.batchGet, with the lists in this order.
// It copies no list.
func BatchBody(answers []Answer, wait time.Duration) net.Buffers {
	body := make(net.Buffers, 0, 3*len(answers))
	for _, a := range answers {
		tail := a.tail(wait)
		head := protowire.AppendTag(nil, fieldHashLists, protowire.BytesType)
		head = protowire.AppendVarint(head, uint64(len(a.Message)+len(tail)))
		body = append(body, head, a.Message, tail)
	}
	return body
}

// tail returns the field minimum_wait_duration. An answer without it allows the next request
// at once.
func (a Answer) tail(wait time.Duration) []byte {
	if wait <= 0 {
		return nil
	}
	d := appendNumber(nil, 1, uint64(wait/time.Second))
	d = appendNumber(d, 2, uint64(wait%time.Second))
	return appendBytes(nil, fieldWait, d)
}

// appendNumber appends a field with a number, unless it is 0, the default.
func appendNumber(dst []byte, field protowire.Number, v uint64) []byte {
	if v == 0 {
		return dst
	}
	return protowire.AppendVarint(protowire.AppendTag(dst, field, protowire.VarintType), v)
}

// appendBytes appends a field with bytes.
func appendBytes(dst []byte, field protowire.Number, v []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(dst, field, protowire.BytesType), v)
}

// id names a content by the SHA-256 of its entries, cut. The zero id stands for no content:
// the client begins with nothing.
type id [16]byte

func idOf(sum [sha256.Size]byte) id { return id(sum[:16]) }

// view is a content as one client may hold it: all of it, or its first entries. The zero view is
// nothing.
//
// On the wire it is a version, which is opaque ("Local Database"). Ours have everything that is
// needed to find the content again, so relays with the same lists, or one that was restarted, agree
// on them:
//
//	tag (4 bytes: SHA-256 of the list's name, cut), kind (1), id (16), limit (4)
type view struct {
	id    id
	limit uint32 // entries; 0: all of them
}

const (
	tagBytes  = 4
	kindWhole = 1 // 2 was a step on the way from one content to another
)

// tagOf returns what all versions of a list begin with. A server of Safe Browsing finds the
// list from the version: in a batch their order means nothing (hashLists.batchGet).
func tagOf(name string) []byte {
	sum := sha256.Sum256([]byte("safebrowsing relay 1\n" + name))
	return sum[:tagBytes]
}

// versionOf returns the version of a view, of the list with the given tag.
func versionOf(tag []byte, v view) []byte {
	return v.append(append(bytes.Clone(tag), kindWhole))
}

func (v view) append(dst []byte) []byte {
	return binary.BigEndian.AppendUint32(append(dst, v.id[:]...), v.limit)
}

// parseVersion parses a version of the list with the given tag. It returns the zero view for
// anything else: such a client gets a full update.
func parseVersion(raw, tag []byte) view {
	rest, ok := bytes.CutPrefix(raw, append(bytes.Clone(tag), kindWhole))
	if !ok || len(rest) != len(id{})+4 || id(rest) == (id{}) {
		return view{}
	}
	return view{id: id(rest), limit: binary.BigEndian.Uint32(rest[len(id{}):])}
}
