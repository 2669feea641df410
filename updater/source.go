package updater

import (
	"context"
	"io"
	"time"
)

// Source fetches lists from a server.
type Source interface {
	// Fetch asks for the wanted lists in one request and hands the update of each
	// to take, with its number in wanted, once and in any order, while the answer is
	// being read. It returns how long no list at all may be asked for again, with an
	// error too, or 0 where the server gives that for each list by itself or not at
	// all. An error means that the whole request failed, whatever take has been
	// given; what is wrong with one list only is in its update.
	Fetch(ctx context.Context, wanted []Want, take func(i int, u *Update)) (minimumWait time.Duration, err error)
}

// Want is a list to fetch.
type Want struct {
	List    string
	Version []byte // of the list that is held, as the server sent it; nil: none
}

// Update is a server's answer about one list. Its readers are read once, the
// removals in step with the additions, and no more after take has returned.
type Update struct {
	Err     error // this list's part of the answer is malformed; nothing else holds then
	Version []byte
	Partial bool // apply to the list that was held; else replace it

	// Removals are indices into the list that was held, ascending, as four bytes
	// big-endian.
	Removals Entries
	// Additions are entries of the new list, in one or more streams that are each in
	// ascending order. Streams may have different widths.
	Additions []Entries

	// The rest may come last in an answer, and holds once all additions are read.

	Checksum    []byte        // SHA-256 of all entries of the new list; nil: absent
	MinimumWait time.Duration // before the list may be asked for again; 0: none given
}

// Entries is a stream of entries of one width, one after the other, ascending
// bytewise. The zero Entries is empty.
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
