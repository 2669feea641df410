package updater

import (
	"context"
	"io"
	"time"
)

// What a server must be able to do, in words that hold for every protocol. Entries are streams,
// because a router has memory for the lists, but not for an answer with all entries as well.

// Source fetches lists from a server.
type Source interface {
	// Fetch asks for the wanted lists, in one request if the server can. While it reads the answer it
	// calls take with each update and its index in wanted, once for each list and in
	// any order. A Source that asks several servers, one after the other, may call it again
	// for a list: the last call counts.
	//
	// minimumWait applies to all lists; it is 0 if the server gives a wait for each
	// list, or none. It is valid even if err is not nil. An error means that the whole
	// request failed, whatever take has received. An error of one list is in its
	// update.
	Fetch(ctx context.Context, wanted []Want, take func(i int, u *Update)) (minimumWait time.Duration, err error)
}

// OneByOne is a Source whose server answers about one list a request. The updater asks
// it for each list that is due in a call of Fetch of its own: the lists that have been
// answered count, whatever comes later, and the first failure starts the back-off.
type OneByOne interface {
	Source
	OneByOne() // does nothing
}

// Advised is a Source that is told whose words its lists are, in a text that is saved with the
// schedule: lists serve before the next contact, and what names their verdicts must know it then.
type Advised interface {
	Source
	// Advisory returns the text of the last answer, or "". known is false before the first one.
	Advisory() (text string, known bool)
}

// Reacher is a Source, or a lookup.Searcher, that can find out without a request whether its
// server can be reached.
type Reacher interface {
	// Reach makes a connection and closes it. The error is a *NotSentError. It is safe for
	// concurrent use.
	Reach(ctx context.Context) error
}

// Want names a list to fetch.
type Want struct {
	List    string
	Version []byte // of the content in memory, as the server sent it; nil: ask for a full update
}

// Update is a server's answer for one list. Its readers are read once, removals and
// additions in step, and never after take has returned.
type Update struct {
	Err     error // this list's part of the answer is malformed; the other fields are then undefined
	Version []byte
	Partial bool // it changes the old list; else it replaces that

	// Removals are indices into the old list, ascending, each as four bytes big-endian.
	Removals Entries
	// Additions are new entries, in one or more streams, each in ascending order.
	// Streams may have different widths.
	Additions []Entries

	// The following may come last in an answer. They are valid once all additions are
	// read.

	Checksum    []byte        // SHA-256 of all entries of the new list; nil: absent
	MinimumWait time.Duration // of this list; 0: none given
}

// Entries is a stream of entries of one width, without separators, in ascending byte
// order. The zero Entries is empty.
type Entries struct {
	Width  int // bytes of an entry
	Count  int // of entries that Reader yields
	Reader io.Reader
}

// added returns the number of additions.
func (u *Update) added() (n int) {
	for _, e := range u.Additions {
		n += e.Count
	}
	return n
}

// changes reports whether there is anything to apply.
func (u *Update) changes() bool { return u.Removals.Count+u.added() > 0 }
