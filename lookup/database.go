package lookup

import (
	"math/bits"
	"slices"
	"sync/atomic"

	"github.com/coredns-safebrowsing/safebrowsing/internal/prefixset"
)

// List is a named set of prefixes. It is immutable.
type List struct {
	Name    string
	Version []byte // opaque, given by the server; searches may have to tell it
	Set     *prefixset.Set
	// LikelySafe says that it holds hosts that are likely safe, as Google's
	// global cache does, and not ones that may be unsafe.
	LikelySafe bool
}

// Database is the lists in force. One goroutine publishes, any number read:
// readers load one pointer, keep what they got, and never wait. The zero
// Database holds no list and finds every host Safe.
type Database struct {
	current atomic.Pointer[snapshot]
}

// snapshot is lists and what finds out fast that none of them holds a hash.
type snapshot struct {
	lists  []List
	filter *prefixset.Filter // of all entries of lists that are not likely safe
}

// Publish puts lists in force, in place of those before. The caller must not
// change the slice afterwards. It takes a few nanoseconds an entry, but nothing
// where all sets are those in force.
func (d *Database) Publish(lists []List) {
	before := d.snapshot()
	next := &snapshot{lists: lists, filter: before.filter}
	if !slices.EqualFunc(before.lists, lists, func(a, b List) bool { return a.Set == b.Set && a.LikelySafe == b.LikelySafe }) {
		var pause *prefixset.Pause
		if len(before.lists) > 0 { // else nobody is served by them yet
			pause = new(prefixset.Pause)
		}
		next.filter = filterOver(lists, pause)
	}
	d.current.Store(next)
}

// filterOver returns a filter of all lists that are not likely safe.
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

// snapshot returns what is in force, never nil.
func (d *Database) snapshot() *snapshot {
	if s := d.current.Load(); s != nil {
		return s
	}
	return noLists
}

// Lists returns the lists in force. The caller must not change them.
func (d *Database) Lists() []List { return d.snapshot().lists }

// Versions returns the versions of the lists in force that have one.
func (d *Database) Versions() (all [][]byte) {
	for _, l := range d.Lists() {
		if len(l.Version) > 0 {
			all = append(all, l.Version)
		}
	}
	return all
}

// One call of the filter is enough for all suffixes of a host.
const _ = uint(prefixset.AtOnce - maxUnasked)

// holdsAny reports whether a list that is not likely safe holds one of the hashes,
// of which there are at most maxUnasked.
func (s *snapshot) holdsAny(hashes []FullHash) bool {
	for found := prefixset.Suspects(s.filter, hashes); found != 0; found &= found - 1 {
		if match(s.lists, &hashes[bits.TrailingZeros(found)], false) != nil {
			return true
		}
	}
	return false
}

// match returns the first list that holds the prefix of hash, of those that are
// likely safe or of the others, or nil.
func match(lists []List, hash *FullHash, likelySafe bool) *List {
	for i := range lists {
		if lists[i].LikelySafe == likelySafe && lists[i].Set.Contains((*[32]byte)(hash)) {
			return &lists[i]
		}
	}
	return nil
}
