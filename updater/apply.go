package updater

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"regexp"
	"strconv"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/prefixset"
)

// This file decides whether an update may be applied. merge.go does the work on the
// entries. Nothing after Apply checks a list again: what it returns is saved and published.

// List is the content of one list, in memory and on disk. It is immutable. A List with
// only a name has no content.
type List struct {
	Name     string
	Version  []byte            // as the server sent it; opaque
	Checksum [sha256.Size]byte // SHA-256 of all entries, in order
	Set      *prefixset.Set    // nil: no content

	// TakenOver says that the list came from the predecessor of the server, see Origin.
	// It has no version if the server does not know that version.
	TakenOver bool

	unsaved time.Time // when the content was sent, if it could not be saved: the folder has an older one, or none
}

// held reports whether there is content, which a partial update could change.
func (l List) held() bool { return l.Set != nil }

var listName = regexp.MustCompile(`^[a-z0-9]+(?:[-_.][a-z0-9]+)*-(4|8|16|32)b$`)

// Width returns the bytes of an entry of a list, from the suffix of its name: "-4b",
// "-8b", "-16b" or "-32b" (names of lists, version 5). Version 4 of the
// protocol may mix other widths into a list.
func Width(name string) (int, error) {
	m := listName.FindStringSubmatch(name)
	if m == nil {
		return 0, fmt.Errorf("%q is not the name of a list: it must end in -4b, -8b, -16b or -32b", name)
	}
	return strconv.Atoi(m[1])
}

// Apply returns the list that results from an update of old, and whether its content
// changed ("Local Database"). It returns ErrMalformed or ErrChecksum, wrapped, for an
// update that must not be applied, or the Err of u. It never changes old. A list has
// at most maxEntries entries. Apply is pure, but for reading the streams of u.
func Apply(old List, u *Update, maxEntries int) (l List, changed bool, err error) {
	if err := checkShape(old, u, maxEntries); err != nil {
		return List{}, false, err
	}
	// An update without changes may lack a checksum. The new list shares the old set: an
	// equal copy would only cost memory.
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
	// A full update may bring the entries that are there already. The schedule must know:
	// after an answer without a change it waits longer, see ListClock.next.
	changed = !old.held() || sum != old.Checksum
	return List{Name: old.Name, Version: u.Version, Checksum: sum, Set: set}, changed, nil
}

// checkShape checks an update before any of its entries is read. The counts come from the
// server, and merge allocates memory by them, so they are limited first.
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
		return fmt.Errorf("%w: partial, but there is no content to change", ErrMalformed)
	case u.Removals.Count > base:
		return fmt.Errorf("%w: %d removals from %d entries", ErrMalformed, u.Removals.Count, base)
	case u.added() > maxEntries-(base-u.Removals.Count):
		return fmt.Errorf("%w: %d additions, at most %d entries are allowed", ErrMalformed, u.added(), maxEntries)
	}
	return nil
}

// checkEnd checks the fields that may come after the additions, the checksum included. It
// asks for Err once more: a Source may find the end of an answer malformed.
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
