package protocoltest

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"slices"
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

// updateFrom returns the update to the newest version, see updateTo.
func (l *list) updateFrom(sent []byte, maxEntries int) update {
	return l.updateTo(l.newest(), sent, maxEntries)
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
