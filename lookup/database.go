package lookup

import "sync/atomic"

// List is a named set of prefixes of hosts that may be unsafe. It is
// immutable.
type List struct {
	Name string
	Set  *PrefixSet
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

// match returns the first list that holds the prefix of hash, or nil.
func match(lists []List, hash *FullHash) *List {
	for i := range lists {
		if lists[i].Set.Contains(hash) {
			return &lists[i]
		}
	}
	return nil
}
