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

// view is a content as one client may hold it: all of it, or its first entries.
type view struct {
	id    id
	limit uint32 // entries; 0: all of them
}

// version is what a client holds. It is either a view, or a mixture of two: a client that
// limits the size of an update comes from base to target in steps, and after some of them has
// the entries of target below boundary, and those of base from there on.
//
// On the wire a version is opaque ("Local Database"). Ours have everything that is needed to
// find the content again, so relays with the same lists, or one that was restarted, agree on
// them:
//
//	tag (4 bytes: SHA-256 of the list's name, cut), kind (1), target (20)
//	the same for a mixture, then base (20), boundary (one entry)
type version struct {
	target   view
	base     view   // of a mixture; a zero id: no entries
	boundary []byte // of a mixture; nil: not a mixture
}

const (
	tagBytes  = 4
	viewBytes = len(id{}) + 4

	kindWhole   = 1
	kindMixture = 2
)

// tagOf returns what all versions of a list begin with. A server of Safe Browsing finds the
// list from the version: in a batch their order means nothing (hashLists.batchGet).
func tagOf(name string) []byte {
	sum := sha256.Sum256([]byte("safebrowsing relay 1\n" + name))
	return sum[:tagBytes]
}

// append appends the version of the list with the given tag.
func (v version) append(dst, tag []byte) []byte {
	dst = append(dst, tag...)
	if v.boundary == nil {
		return v.target.append(append(dst, kindWhole))
	}
	dst = v.base.append(v.target.append(append(dst, kindMixture)))
	return append(dst, v.boundary...)
}

func (v view) append(dst []byte) []byte {
	return binary.BigEndian.AppendUint32(append(dst, v.id[:]...), v.limit)
}

func viewOf(raw []byte) view {
	return view{id: id(raw[:len(id{})]), limit: binary.BigEndian.Uint32(raw[len(id{}):])}
}

// parseVersion parses a version of the list with the given tag, whose entries are width bytes
// long. It returns the zero version for anything else: such a client gets a full update.
func parseVersion(raw, tag []byte, width int) version {
	rest, ok := bytes.CutPrefix(raw, tag)
	if !ok || len(rest) < 1+viewBytes {
		return version{}
	}
	kind, target, rest := rest[0], viewOf(rest[1:]), rest[1+viewBytes:]
	switch {
	case target.id == id{}:
		return version{}
	case kind == kindWhole && len(rest) == 0:
		return version{target: target}
	case kind == kindMixture && len(rest) == viewBytes+width:
		return version{target: target, base: viewOf(rest), boundary: bytes.Clone(rest[viewBytes:])}
	}
	return version{}
}
