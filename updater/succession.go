package updater

import (
	"net/http"
	"slices"
)

// This file takes lists over from a predecessor of a server, in a move from one
// protocol to another. When no server continues the versions of another protocol any more, see
// Dialect.Continues of internal/protocol, the following can be deleted: Predecessor.Continues, handover.continues
// and the parameter continues of Succeed. What stays is Updater.doubtful, with the parameter
// doubtful of attempt.failed and attempt.refused: it is also the cure for a version that another
// endpoint of the same service does not know, see Origin.Related.

// Succeed is Follow for a last schedule of the predecessor, see Origin. The lists
// of last are taken over, with their versions if continues is set. Its clocks are
// not: they are taken from own, the last schedule of this server, or from nothing
// if own is nil. Call Succeed before s is used.
func (s *Schedule) Succeed(last, own *Schedule, continues bool) {
	s.hand.follow(last)
	s.hand.succeeds, s.hand.continues = true, continues
	if own != nil {
		s.meetLast(own)
	}
}

// takenOver returns the list as the successor has it. It keeps its version only if
// the successor knows that, which holds for lists whose entries are all as wide as
// the name says.
func (l List) takenOver(continues bool) List {
	width, err := Width(l.Name)
	other := func(w int) bool { return w != width }
	if err != nil || !continues || slices.ContainsFunc(l.Set.Widths(), other) {
		l.Version = nil
	}
	l.TakenOver = true
	return l
}

// versionUnknown reports whether the server does not know the version of the content:
// no update can build on it, and the next one must be full.
func (l List) versionUnknown() bool { return l.TakenOver && l.Version == nil }

// doubtful returns the lists whose versions may be why the server refused
// a request: it may not know the versions of its predecessor. The next request asks
// for these lists in full.
func (u *Updater) doubtful(names []string, err error) (lists []string) {
	if status := statusOf(err); status.Code != http.StatusBadRequest || status.NoKey() {
		return nil
	}
	for _, name := range names {
		if u.base(name).TakenOver {
			lists = append(lists, name)
		}
	}
	return lists
}
