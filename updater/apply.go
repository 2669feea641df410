package updater

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"regexp"
	"strconv"

	"github.com/coredns-safebrowsing/safebrowsing/internal/prefixset"
)

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

// held reports whether there is content that a partial update could change.
func (l List) held() bool { return l.Set != nil }

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
