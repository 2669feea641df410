package lookup

import (
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
	current atomic.Pointer[snapshot]
}

// snapshot is an immutable set of lists with a filter, which finds quickly that no
// list holds a hash.
type snapshot struct {
	lists  []List
	filter *prefixset.Filter // over the lists that are not LikelySafe
}

// Publish replaces all published lists. The caller must not change the slice
// afterwards, and must not call Publish from two goroutines at once. It builds a new
// filter, which takes a few nanoseconds an entry. If no Set has changed it keeps the
// filter.
func (d *Database) Publish(lists []List) {
	before := d.snapshot()
	next := &snapshot{lists: lists, filter: before.filter}
	if !slices.EqualFunc(before.lists, lists, func(a, b List) bool { return a.Set == b.Set && a.LikelySafe == b.LikelySafe }) {
		var pause *prefixset.Pause
		if len(before.lists) > 0 { // queries are being served: leave them the processor
			pause = new(prefixset.Pause)
		}
		next.filter = filterOver(lists, pause)
	}
	d.current.Store(next)
}

// filterOver returns a filter over the lists that are not LikelySafe. A nil pause
// builds it without pauses.
func filterOver(lists []List, pause *prefixset.Pause) *prefixset.Filter {
	entries := 0
	for _, l := range lists {
		if !l.LikelySafe {
			entries += l.Set.Len()
		}
	}
	f := prefixset.NewFilter(entries)
	for _, l := range lists {
		if !l.LikelySafe {
			f.Add(l.Set, pause)
		}
	}
	return f
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

// holdsAny calls the filter once, which must be enough for all suffixes of a host:
// this constant does not compile if it is negative.
const _ = uint(prefixset.AtOnce - maxLabelsWithoutPSL)

// holdsAny reports whether a list that is not LikelySafe holds one of the hashes.
// There are at most maxLabelsWithoutPSL of them.
func (s *snapshot) holdsAny(hashes []FullHash) bool {
	for found := prefixset.Suspects(s.filter, hashes); found != 0; found &= found - 1 {
		if match(s.lists, &hashes[bits.TrailingZeros(found)], false) != nil {
			return true
		}
	}
	return false
}

// match returns the first list that holds a prefix of hash, or nil. It looks only at
// lists whose LikelySafe is likelySafe.
func match(lists []List, hash *FullHash, likelySafe bool) *List {
	for i := range lists {
		if lists[i].LikelySafe == likelySafe && lists[i].Set.Contains((*[32]byte)(hash)) {
			return &lists[i]
		}
	}
	return nil
}
