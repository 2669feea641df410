package lookup

import "sync/atomic"

// List is a named set of prefixes. It is immutable.
type List struct {
	Name    string
	Version []byte // opaque, given by the server; searches may have to tell it
	Set     *PrefixSet
	// LikelySafe says that it holds hosts that are likely safe, as Google's
	// global cache does, and not ones that may be unsafe.
	LikelySafe bool
}

// Database is the lists in force. One goroutine publishes, any number read:
// readers load one pointer, keep what they got, and never wait. The zero
// Database holds no list and finds every host Safe.
type Database struct {
	snapshot atomic.Pointer[[]List]
}

// Publish puts lists in force, in place of those before. The caller must not
// change the slice afterwards.
func (d *Database) Publish(lists []List) { d.snapshot.Store(&lists) }

// Lists returns the lists in force. The caller must not change them.
func (d *Database) Lists() []List {
	if lists := d.snapshot.Load(); lists != nil {
		return *lists
	}
	return nil
}

// Versions returns the versions of the lists in force that have one.
func (d *Database) Versions() (all [][]byte) {
	for _, l := range d.Lists() {
		if len(l.Version) > 0 {
			all = append(all, l.Version)
		}
	}
	return all
}

// match returns the first list that holds the prefix of hash, of those that are
// likely safe or of the others, or nil.
func match(lists []List, hash *FullHash, likelySafe bool) *List {
	for i := range lists {
		if lists[i].LikelySafe == likelySafe && lists[i].Set.Contains(hash) {
			return &lists[i]
		}
	}
	return nil
}
