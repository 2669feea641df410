package relay

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
)

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
