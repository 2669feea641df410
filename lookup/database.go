package lookup

import (
	"cmp"
	"math/bits"
	"slices"
	"sync/atomic"

	"github.com/coredns-safebrowsing/safebrowsing/internal/prefixset"
)

// List is a named set of prefixes, as queries use it. It is immutable.
type List struct {
	Name    string
	Version []byte // from the server, opaque; a search of version 4 sends it back
	Set     *prefixset.Set
	// LikelySafe marks a list of hosts that are likely safe, such as Google's global
	// cache. All other lists hold hosts that may be unsafe.
	LikelySafe bool
}

// Database holds the published lists. One goroutine publishes while any number of
// goroutines read. A reader loads one pointer per query, keeps that snapshot and never
// waits. The zero Database holds no list and finds every host Safe.
type Database struct {
	// MaxFiltered is the most prefixes of four bytes that have a filter in front of them, which
	// takes six bits each. More are joined, see prefixset.Group: that takes less memory, but an
	// update takes longer. Zero: DefaultMaxFiltered; negative: none has a filter. It must not
	// be changed after the first Publish.
	MaxFiltered int

	current atomic.Pointer[snapshot]
}

// DefaultMaxFiltered is the limit of a filter unless Database sets another.
const DefaultMaxFiltered = 2_000_000

// snapshot is an immutable set of lists.
type snapshot struct {
	lists []List
	group *prefixset.Group // of the lists that are not LikelySafe
}

// Publish replaces all published lists, which are in force at once, and then calls Join.
// The caller must not change the slice afterwards, and must not call Publish, PublishApart
// or Join from two goroutines at once.
func (d *Database) Publish(lists []List) {
	if d.PublishApart(lists) && d.snapshot().group.Joins() {
		prefixset.GiveBack(d.snapshot().group.Bytes()) // before memory is needed for the joined sets
	}
	d.Join()
}

// PublishApart is Publish without Join, for a start, which must not wait. Until Join has been
// called a look-up in more than MaxFiltered entries takes longer, because it asks one list after
// the other. It reports whether lists were replaced by others with different sets.
func (d *Database) PublishApart(lists []List) (replaced bool) {
	before := d.snapshot()
	if slices.EqualFunc(before.lists, lists, func(a, b List) bool { return a.Set == b.Set && a.LikelySafe == b.LikelySafe }) {
		d.current.Store(&snapshot{lists: lists, group: before.group})
		return false
	}
	var pause *prefixset.Pause
	if len(before.lists) > 0 { // queries are being served: leave them the processor
		pause = new(prefixset.Pause)
	}
	d.current.Store(&snapshot{lists: lists, group: prefixset.NewGroup(setsOf(lists), cmp.Or(d.MaxFiltered, DefaultMaxFiltered), pause)})
	return len(before.lists) > 0
}

// Join joins the sets of the published lists, see prefixset.Group, which takes some
// nanoseconds an entry, unless they have a filter. It reports whether they are joined.
func (d *Database) Join() bool {
	now := d.snapshot()
	group := now.group.Join(new(prefixset.Pause))
	if group == now.group {
		return false
	}
	d.current.Store(&snapshot{lists: now.lists, group: group})
	return true
}

// setsOf returns the sets of the lists that are not LikelySafe.
func setsOf(lists []List) (sets []*prefixset.Set) {
	for _, l := range lists {
		if !l.LikelySafe {
			sets = append(sets, l.Set)
		}
	}
	return sets
}

var noLists = new(snapshot)

// snapshot returns the published snapshot, never nil.
func (d *Database) snapshot() *snapshot {
	if s := d.current.Load(); s != nil {
		return s
	}
	return noLists
}

// Lists returns the published lists. The caller must not change them. It is safe for
// concurrent use.
func (d *Database) Lists() []List { return d.snapshot().lists }

// Versions returns the versions of the published lists that have one. It is safe for
// concurrent use.
func (d *Database) Versions() (all [][]byte) {
	for _, l := range d.Lists() {
		if len(l.Version) > 0 {
			all = append(all, l.Version)
		}
	}
	return all
}

// holdsAny calls Suspects once, which must be enough for all suffixes of a host:
// this constant does not compile if it is negative.
const _ = uint(prefixset.AtOnce - maxLabelsWithoutPSL)

// holdsAny reports whether a list that is not LikelySafe holds one of the hashes.
// There are at most maxLabelsWithoutPSL of them.
func (s *snapshot) holdsAny(hashes []FullHash) bool {
	for found := prefixset.Suspects(s.group, hashes); found != 0; found &= found - 1 {
		if anyHolds(s.lists, &hashes[bits.TrailingZeros(found)], false) {
			return true
		}
	}
	return false
}

// anyHolds reports whether a list holds a prefix of hash. It looks only at lists whose
// LikelySafe is likelySafe.
func anyHolds(lists []List, hash *FullHash, likelySafe bool) bool {
	return slices.ContainsFunc(lists, func(l List) bool { return l.LikelySafe == likelySafe && l.Set.Contains((*[32]byte)(hash)) })
}
