package lookup

import (
	"math/bits"
	"unique"
)

// hostForm says what kind of name a Host has. The bits below isTruncated are for the bytes of
// the name, the lowest for the first: they are set for dots. None is set if the name has
// more bytes than there are bits, if it is an IP literal, or if scanName does not know it. It
// is one word, see Host.
type hostForm uint

const (
	isIP        hostForm = 1 << (bits.UintSize - 1) // an IP literal: it has no parent
	isTruncated hostForm = 1 << (bits.UintSize - 2) // only the end of what was asked: the labels before it cannot be part of a URL

	maxDotted = bits.UintSize - 2 // bytes
)

// formOf returns the form of a name that is no IP literal.
func formOf(name string) hostForm {
	dots, _, ok := scanName(name)
	if !ok || len(name) > maxDotted {
		return 0
	}
	return hostForm(dots)
}

func (h Host) ip() bool        { return h.form&isIP != 0 }
func (h Host) truncated() bool { return h.form&isTruncated != 0 }

// dots returns which bytes of the name are dots: bit i is for name[i]. It returns 0 if
// that is not known.
func (h Host) dots() uint64 { return uint64(h.form &^ (isIP | isTruncated)) }

// by returns the host in the canonical form of the protocol version of r. The versions
// differ only in IPv6 literals: version 4 turns them into lower case and leaves an
// embedded IPv4 address as it is.
func (h Host) by(r Rule) Host {
	if r == RuleV4 && h.ipv6 != (unique.Handle[string]{}) {
		return Host{name: h.ipv6.Value(), form: isIP}
	}
	return h
}
