package lookup

import (
	"bytes"
	"crypto/sha256"
	"slices"
	"strings"
)

// Names is an immutable set of hosts of the operator's own, held as the first
// eight bytes of their hashes. The zero Names is empty. Safe for concurrent
// use.
type Names struct{ set *PrefixSet }

// nameBytes is long enough that two of a million names share their hash with a
// probability of 1 in 37 million.
const nameBytes = 8

// NewNames returns the set of the hosts.
func NewNames(hosts []Host) Names {
	hashes := make([][nameBytes]byte, 0, len(hosts))
	for _, h := range hosts {
		hash := hashName(h.name)
		hashes = append(hashes, [nameBytes]byte(hash[:nameBytes]))
	}
	slices.SortFunc(hashes, func(a, b [nameBytes]byte) int { return bytes.Compare(a[:], b[:]) })
	hashes = slices.Compact(hashes)
	b := NewBuilder(0)
	for i := range hashes {
		if err := b.Add(hashes[i][:], nameBytes); err != nil {
			panic("lookup: sorted and compacted hashes are not in order")
		}
	}
	return Names{set: b.Set()}
}

// Len returns the number of hosts.
func (n Names) Len() int {
	if n.set == nil {
		return 0
	}
	return n.set.Len()
}

// Contains reports whether h itself is in the set.
func (n Names) Contains(h Host) bool {
	return n.Len() > 0 && h.name != "" && !h.partly && n.has(h.name)
}

// Covers reports whether h, or a name that it is below, is in the set.
func (n Names) Covers(h Host) bool {
	if n.Len() == 0 || h.name == "" {
		return false
	}
	for name := h.name; ; {
		if n.has(name) {
			return true
		}
		dot := strings.IndexByte(name, '.')
		if dot < 0 || h.ip {
			return false
		}
		name = name[dot+1:]
	}
}

func (n Names) has(name string) bool {
	hash := hashName(name)
	return n.set.Contains(&hash)
}

// hashName hashes the expression of a host, without allocation for a name of
// usual length.
func hashName(name string) FullHash {
	var buf [maxHost + 1]byte
	return sha256.Sum256(append(append(buf[:0], name...), '/'))
}

// maxHost is the longest name of the DNS in presentation form without escapes
// (RFC 1035 section 2.3.4). Longer canonical hosts only come from escapes.
const maxHost = 253
