package protocoltest

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol/pb/sbv5"
)

// maxSteps bounds the half-way versions kept for one list, since each holds a
// whole copy. A client that comes back with an older one gets a full update.
const maxSteps = 8

// list is one hash list with its history. The server's lock guards it.
type list struct {
	name     string
	versions []version // published, oldest first; empty: the list is unknown
	steps    []version // half-way contents served because of maxUpdateEntries
	made     uint64    // versions made so far
	wait     time.Duration
}

// version is one immutable content of a list.
type version struct {
	id      []byte   // opaque to the client
	entries []string // sorted
	width   int      // of all entries, 0 if they differ or there are none
}

// newVersion returns the next version of l with these entries. The identifier
// depends on the content too, so that it never names other content after the
// server was restarted, and it holds bytes that base64 and strings stumble on.
func (l *list) newVersion(entries []string) version {
	l.made++
	h := sha256.New()
	h.Write([]byte(l.name))
	h.Write(binary.BigEndian.AppendUint64([]byte{0}, l.made))
	h.Write(checksum(entries))
	id := append([]byte{0xfb, 0xff, 0x00}, h.Sum(nil)[:9]...)
	return version{id: id, entries: entries, width: commonWidth(entries)}
}

// newest returns the last published version. The list must be known.
func (l *list) newest() version { return l.versions[len(l.versions)-1] }

// find returns the version with this identifier.
func (l *list) find(id []byte) (version, bool) {
	for _, v := range slices.Concat(l.versions, l.steps) {
		if len(id) > 0 && bytes.Equal(v.id, id) {
			return v, true
		}
	}
	return version{}, false
}

// halfway returns the version for a half-way content, the same one for the same
// content.
func (l *list) halfway(entries []string) version {
	for _, v := range l.steps {
		if slices.Equal(v.entries, entries) {
			return v
		}
	}
	v := l.newVersion(entries)
	l.steps = append(l.steps, v)
	if len(l.steps) > maxSteps {
		l.steps = slices.Clone(l.steps[1:])
	}
	return v
}

// update is an answer for one list before it is written as a message.
type update struct {
	list      *list
	sent      []byte   // version the client sent, nil if none
	base      []string // entries that the update builds on; empty if full
	target    version
	partial   bool
	removals  []uint32
	additions []string
	checksum  []byte
	wait      time.Duration // minimum wait, absent if 0
	halfway   bool          // the rest may be fetched at once

	// How it is written where there is a choice: prefixes of 4 bytes, and removals, in Rice coding or raw.
	rice, riceRemovals bool
}

// changes reports whether the update holds anything for the client to apply.
func (u *update) changes() bool { return len(u.removals)+len(u.additions) > 0 }

// limited returns the newest version, or with maxEntries above 0 one with the first maxEntries
// of its entries.
func (l *list) limited(maxEntries int) version {
	v := l.newest()
	if maxEntries > 0 && len(v.entries) > maxEntries {
		return l.halfway(v.entries[:maxEntries])
	}
	return v
}

// updateTo returns the update for a client that sent this version, full if the
// server does not know it. With maxEntries above 0 an update holds at most so
// many removals and additions, and one that is cut short leads to a half-way
// version and carries no minimum wait: the rest may be fetched at once.
func (l *list) updateTo(target version, sent []byte, maxEntries int) update {
	known, partial := l.find(sent)
	u := update{list: l, sent: sent, base: known.entries, target: target, partial: partial, wait: l.wait}
	u.removals, u.additions = diff(u.base, u.target.entries)
	if partial && !u.changes() {
		return u // "Local Database": no checksum when there is nothing new
	}
	if maxEntries > 0 && len(u.removals)+len(u.additions) > maxEntries {
		u.removals = u.removals[:min(len(u.removals), maxEntries)]
		u.additions = u.additions[:maxEntries-len(u.removals)]
		u.target = l.halfway(patch(u.base, u.removals, u.additions))
		u.wait, u.halfway = 0, true
	}
	u.checksum = checksum(u.target.entries)
	return u
}

// message returns the update as it is sent.
func (u *update) message() *sbv5.HashList {
	m := &sbv5.HashList{
		Name:               u.list.name,
		Version:            u.target.id,
		PartialUpdate:      u.partial,
		CompressedRemovals: EncodeRice32(u.removals),
		Sha256Checksum:     u.checksum,
	}
	setAdditions(m, listWidth(u.list.name), u.additions)
	if u.wait > 0 {
		m.MinimumWaitDuration = durationpb.New(u.wait)
	}
	return m
}

// Entries of a list are a []string: sorted bytewise, a shorter one before a longer
// one that it begins, no duplicates. They share one string, so that seven million
// prefixes are two blocks of memory.

const (
	minEntryBytes = 4  // the shortest prefix
	maxEntryBytes = 32 // a whole hash
)

// listWidth returns the bytes per entry that a list name promises by its suffix,
// 0 if it promises none.
func listWidth(name string) int {
	for suffix, width := range map[string]int{"-4b": 4, "-8b": 8, "-16b": 16, "-32b": 32} {
		if strings.HasSuffix(name, suffix) {
			return width
		}
	}
	return 0
}

// sorted returns entries of any lengths as a list holds them.
func sorted(raw [][]byte) []string {
	if !slices.ContainsFunc(raw, func(e []byte) bool { return len(e) != 4 }) {
		return sortedNumbers(raw)
	}
	var all strings.Builder
	for _, e := range raw {
		all.Write(e)
	}
	entries, text := make([]string, 0, len(raw)), all.String()
	for _, e := range raw {
		entries = append(entries, text[:len(e)])
		text = text[len(e):]
	}
	slices.Sort(entries)
	return slices.Compact(entries)
}

// sortedNumbers is sorted for 4 bytes, by way of numbers: several times faster.
func sortedNumbers(raw [][]byte) []string {
	values := make([]uint32, len(raw))
	for i, e := range raw {
		values[i] = binary.BigEndian.Uint32(e)
	}
	slices.Sort(values)
	values = slices.Compact(values)
	all := make([]byte, 0, 4*len(values))
	for _, v := range values {
		all = binary.BigEndian.AppendUint32(all, v)
	}
	entries, text := make([]string, len(values)), string(all)
	for i := range entries {
		entries[i] = text[4*i : 4*i+4]
	}
	return entries
}

// commonWidth returns the length that all entries have, 0 if they differ or there
// are none.
func commonWidth(entries []string) int {
	if len(entries) == 0 {
		return 0
	}
	width := len(entries[0])
	if slices.ContainsFunc(entries, func(e string) bool { return len(e) != width }) {
		return 0
	}
	return width
}

// diff returns what turns base into target: indices into base, and additions.
func diff(base, target []string) (removals []uint32, additions []string) {
	i, j := 0, 0
	for i < len(base) || j < len(target) {
		switch order(base[i:], target[j:]) {
		case -1:
			removals = append(removals, uint32(i))
			i++
		case 1:
			additions = append(additions, target[j])
			j++
		default:
			i++
			j++
		}
	}
	return removals, additions
}

// patch is the reverse of diff: base without the removals, with the additions.
func patch(base []string, removals []uint32, additions []string) []string {
	kept := make([]string, 0, len(base))
	for i, e := range base {
		if len(removals) > 0 && removals[0] == uint32(i) {
			removals = removals[1:]
			continue
		}
		kept = append(kept, e)
	}
	return merge(kept, additions)
}

// merge returns all entries of two lists in order; an entry of both comes twice.
func merge(a, b []string) []string {
	merged := make([]string, 0, len(a)+len(b))
	for len(a) > 0 || len(b) > 0 {
		from := &a
		if order(a, b) > 0 {
			from = &b
		}
		merged = append(merged, (*from)[0])
		*from = (*from)[1:]
	}
	return merged
}

// order compares the first entries of two lists. The end of a list comes after
// every entry.
func order(a, b []string) int {
	switch {
	case len(a) == 0:
		return 1
	case len(b) == 0:
		return -1
	}
	return strings.Compare(a[0], b[0])
}

// contains reports whether a list holds entry.
func contains(entries []string, entry string) bool {
	_, found := slices.BinarySearch(entries, entry)
	return found
}

// checksum is the SHA-256 over all entries in order (page "Local Database").
func checksum(entries []string) []byte { return digest([]byte(strings.Join(entries, ""))) }

// digest is the SHA-256 of some bytes as a slice.
func digest(b []byte) []byte {
	sum := sha256.Sum256(b)
	return sum[:]
}
