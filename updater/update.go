package updater

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/prefixset"
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

// List is a list as it is held and stored. It is immutable. A zero List but for
// its name is a list of which nothing is held.
type List struct {
	Name     string
	Version  []byte // opaque, given by the server
	Checksum [sha256.Size]byte
	Set      *prefixset.Set

	// TakenOver says that the list came from the predecessor of the server, see
	// Origin. It has no version if the server would not know that.
	TakenOver bool
}

// startsAnew reports whether the list is held, but no update can build upon it.
func (l List) startsAnew() bool { return l.TakenOver && l.Version == nil }

// held reports whether there is content that a partial update could change.
func (l List) held() bool { return l.Set != nil }

// Errors of an update that must not be applied.
var (
	ErrChecksum  = errors.New("checksum does not match")
	ErrMalformed = errors.New("malformed update")
)

var listName = regexp.MustCompile(`^[a-z0-9]+(?:[-_.][a-z0-9]+)*-(4|8|16|32)b$`)

// Width returns the bytes of an entry of a list, which the suffix of its name
// tells: "-4b", "-8b", "-16b" or "-32b". Version 4 of the protocol may mix others
// into a list.
func Width(name string) (int, error) {
	m := listName.FindStringSubmatch(name)
	if m == nil {
		return 0, fmt.Errorf("%q is no name of a list: it must end in -4b, -8b, -16b or -32b", name)
	}
	return strconv.Atoi(m[1])
}

// Apply returns the list that results from an update of old, and whether its
// content changed ("Local Database"). It returns ErrMalformed or ErrChecksum,
// wrapped, for an update that must not be applied; old is never changed. A
// list may hold at most maxEntries.
func Apply(old List, u *Update, maxEntries int) (l List, changed bool, err error) {
	if err := checkShape(old, u, maxEntries); err != nil {
		return List{}, false, err
	}
	if u.Partial && !u.changes() && (u.Checksum == nil || bytes.Equal(u.Checksum, old.Checksum[:])) {
		old.Version, old.TakenOver = u.Version, false
		return old, false, nil
	}
	base := &prefixset.Set{}
	if u.Partial {
		base = old.Set
	}
	set, sum, err := merge(base, u)
	if err == nil {
		err = checkEnd(u, sum)
	}
	if err != nil {
		return List{}, false, err
	}
	changed = !old.held() || sum != old.Checksum
	return List{Name: old.Name, Version: u.Version, Checksum: sum, Set: set}, changed, nil
}

// checkShape finds what is wrong with an update before anything is decoded.
func checkShape(old List, u *Update, maxEntries int) error {
	base := 0
	if u.Partial && old.held() {
		base = old.Set.Len()
	}
	switch {
	case u.Err != nil:
		return u.Err
	case len(u.Version) == 0:
		return fmt.Errorf("%w: no version", ErrMalformed)
	case u.Partial && !old.held():
		return fmt.Errorf("%w: partial, but nothing is held that it could change", ErrMalformed)
	case u.Removals.Count > base:
		return fmt.Errorf("%w: %d removals from %d entries", ErrMalformed, u.Removals.Count, base)
	case u.added() > maxEntries-(base-u.Removals.Count):
		return fmt.Errorf("%w: %d additions, at most %d entries are allowed", ErrMalformed, u.added(), maxEntries)
	}
	return nil
}

// checkEnd checks what may come after the additions, and the new list's checksum.
func checkEnd(u *Update, sum [sha256.Size]byte) error {
	switch {
	case u.Err != nil:
		return u.Err
	case u.MinimumWait < 0:
		return fmt.Errorf("%w: negative minimum wait %s", ErrMalformed, u.MinimumWait)
	case u.Checksum == nil:
		return fmt.Errorf("%w: changes without a checksum", ErrMalformed)
	case len(u.Checksum) != sha256.Size:
		return fmt.Errorf("%w: checksum of %d bytes", ErrMalformed, len(u.Checksum))
	case !bytes.Equal(sum[:], u.Checksum):
		return fmt.Errorf("%w: got %x, the server says %x", ErrChecksum, sum, u.Checksum)
	}
	return nil
}
