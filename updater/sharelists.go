package updater

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/prefixset"
)

// Lists on their way to and from a Shared. What is shared is the file of a list as it is in the
// folder, and the difference from the content before. The modification time of the file in the
// folder is when the server sent the content: a process never goes back to an older one.

// shareLists publishes those lists that the others do not have, as the process that may fetch.
func (u *Updater) shareLists() {
	shared := u.cfg.Schedule.sharer()
	if shared == nil {
		return
	}
	for _, name := range u.cfg.Lists {
		l := u.lists[name]
		head, ok := shared.Head(name)
		if !l.held() || l.TakenOver || ok && head.same(l) {
			continue
		}
		head = Head{List: name, Version: l.Version, Checksum: l.Checksum[:], Entries: l.Set.Len(), Received: u.received(name)}
		before := u.published[name]
		var change []byte
		if before.held() && before.Checksum != l.Checksum {
			change = difference(before.Set, l.Set, l.Set.Bytes()/4)
		}
		if change != nil {
			head.From = before.Checksum[:]
		}
		if shared.Publish(head, u.cfg.Store.listFile(l), change) == nil {
			u.published[name] = l
		}
	}
}

// received returns when the server sent the content of a list that is in memory.
func (u *Updater) received(name string) time.Time {
	if at := u.lists[name].unsaved; !at.IsZero() {
		return at
	}
	info, err := os.Stat(u.cfg.Store.listPath(name))
	if err != nil {
		return u.cfg.Schedule.list(name).Updated
	}
	return info.ModTime()
}

// date notes when the server sent a content, after an attempt to save it: the time of the file, unless that is from an
// older content.
func (u *Updater) date(name string, received time.Time, err error) error {
	l := u.lists[name]
	l.unsaved = time.Time{}
	if err == nil && u.cfg.Schedule.sharer() != nil {
		err = os.Chtimes(u.cfg.Store.listPath(name), time.Time{}, received)
	}
	if err != nil {
		l.unsaved = received
	}
	u.lists[name] = l
	return err
}

// outdated reports whether a head is older than the content that is in memory. A content that seems
// to come from the future was saved before it was shared, by a machine whose clock was wrong.
func (u *Updater) outdated(head Head, shared Shared) bool {
	received := u.received(head.List)
	now, _ := shared.Now()
	return head.Received.Before(received) && !received.After(now.Add(shareSlack))
}

// pull takes over the newer contents that others have published, and returns whether there
// were any. An error of one list does not delay the others. It is reported, once until another one comes.
func (u *Updater) pull() (changed bool) {
	shared := u.cfg.Schedule.sharer()
	if shared == nil {
		return false
	}
	var err error
	for _, name := range u.cfg.Lists {
		head, ok := shared.Head(name)
		have := u.lists[name]
		if !ok || head.same(have) || have.held() && u.outdated(head, shared) {
			continue
		}
		l, pullErr := u.pullList(shared, head, have)
		if pullErr == nil {
			pullErr = u.cfg.Store.SaveList(l)
			u.lists[name], changed = l, true
			u.published[name] = l
			_ = u.date(name, head.Received, pullErr)
			u.cfg.Schedule.hand.remember(u.lists[name])
		}
		if pullErr != nil {
			err = errors.Join(err, fmt.Errorf("list %s: %w", name, pullErr))
		}
	}
	if changed {
		u.publish()
	}
	text := ""
	if err != nil {
		text = err.Error()
	}
	if text != u.pullTrouble && err != nil {
		u.cfg.Report(Event{Kind: FollowFailed, Err: err})
	}
	u.pullTrouble = text
	return changed
}

// pullList returns the content that head describes: from the difference, if it leads from the
// content here, or else from the whole file.
func (u *Updater) pullList(shared Shared, head Head, have List) (List, error) {
	if have.held() && len(head.From) > 0 && bytes.Equal(head.From, have.Checksum[:]) {
		if l, err := u.pullChange(shared, head, have); err == nil {
			return l, nil
		}
	}
	raw, err := shared.File(head)
	if err != nil {
		return List{}, err
	}
	l, origin, err := readList(bufio.NewReader(bytes.NewReader(raw)), int64(len(raw)))
	switch {
	case err != nil:
		return List{}, fmt.Errorf("%w: %w", ErrDamaged, err)
	case l.Name != head.List || origin != u.cfg.Store.origin.Name || !head.same(l):
		return List{}, fmt.Errorf("%w: it is another list than its description says", ErrDamaged)
	case l.Set.Len() > u.cfg.MaxEntries:
		return List{}, fmt.Errorf("%w: %d entries, at most %d are allowed", ErrMalformed, l.Set.Len(), u.cfg.MaxEntries)
	}
	sum := sha256.New()
	if _, err := io.Copy(sum, l.Set.Reader()); err != nil || !bytes.Equal(sum.Sum(nil), head.Checksum) {
		return List{}, ErrChecksum
	}
	return l, nil
}

// pullChange returns the content that the difference of head leads to. Apply checks it.
func (u *Updater) pullChange(shared Shared, head Head, have List) (List, error) {
	raw, err := shared.Change(head)
	if err != nil {
		return List{}, err
	}
	update, err := parseDifference(raw, head)
	if err != nil {
		return List{}, err
	}
	l, _, err := applyCaught(have, update, u.cfg.MaxEntries)
	return l, err
}

// listPath returns the path of the file of a list.
func (s *Store) listPath(name string) string { return filepath.Join(s.dir, name+listSuffix) }

// followShared takes over newer lists while another process has the right to fetch. Looked says
// that the schedule has changed.
func (u *Updater) followShared(looked bool) {
	before := maps.Clone(u.lists)
	if !u.pull() && !looked {
		return
	}
	for _, name := range u.cfg.Lists {
		kind := Followed
		if l := u.lists[name]; l.Set != before[name].Set {
			kind = Loaded
		}
		u.report(kind, name, nil)
	}
}

// takeOver begins to share as the process that may fetch: it takes over newer lists, and
// publishes those that the others do not have.
func (u *Updater) takeOver() {
	if u.cfg.Schedule.sharer() == nil {
		return
	}
	if u.pull() {
		for _, name := range u.cfg.Lists {
			u.report(Followed, name, nil)
		}
	}
	u.shareLists()
}

// complete reports whether all lists have content.
func (u *Updater) complete() bool {
	return !slices.ContainsFunc(u.cfg.Lists, func(name string) bool { return !u.lists[name].held() })
}

// contacted reports, once, that there is nothing more to wait for.
func (u *Updater) contacted() {
	if !u.contact {
		u.contact = true
		u.cfg.Report(Event{Kind: FirstContact})
	}
}

// The difference between two contents of a list, as bytes: the width of an entry, the number of
// removals and of additions, each in four bytes big-endian, then removals and additions as an
// Update has them.

const differenceHead = 12

// difference returns the bytes that lead from one content to another, nil if they would be more
// than limit or the contents have entries of several widths.
func difference(from, to *prefixset.Set, limit int) []byte {
	width := slices.Concat(from.Widths(), to.Widths())
	if len(width) == 0 || slices.Max(width) != slices.Min(width) {
		return nil
	}
	var removals, additions []byte
	d := prefixset.NewDiffer(from.Runs().Next, to.Runs().Next)
	for {
		switch where, entry, _ := d.Next(); {
		case where == prefixset.Ended:
			head := binary.BigEndian.AppendUint32(nil, uint32(width[0]))
			head = binary.BigEndian.AppendUint32(head, uint32(len(removals)/4))
			head = binary.BigEndian.AppendUint32(head, uint32(len(additions)/width[0]))
			return slices.Concat(head, removals, additions)
		case len(removals)+len(additions) > limit:
			return nil
		case where == prefixset.BaseOnly:
			removals = binary.BigEndian.AppendUint32(removals, uint32(d.Index()))
		case where == prefixset.TargetOnly:
			additions = append(additions, entry...)
		}
	}
}

// parseDifference returns the update that difference described. It leads to the version and the
// checksum of h.
func parseDifference(raw []byte, h Head) (*Update, error) {
	if len(raw) < differenceHead {
		return nil, errors.New("a difference without its head")
	}
	n := func(i int) uint64 { return uint64(binary.BigEndian.Uint32(raw[4*i:])) } // an int of 32 bits may not hold them
	width, removals, additions, rest := n(0), n(1), n(2), raw[differenceHead:]
	if width < 4 || width > 32 || 4*removals+width*additions != uint64(len(rest)) {
		return nil, fmt.Errorf("a difference of %d bytes with %d removals and %d additions of %d bytes", len(raw), removals, additions, width)
	}
	u := &Update{Version: h.Version, Partial: true, Checksum: h.Checksum}
	u.Removals = Entries{Width: 4, Count: int(removals), Reader: bytes.NewReader(rest[:4*removals])}
	if additions > 0 {
		u.Additions = []Entries{{Width: int(width), Count: int(additions), Reader: bytes.NewReader(rest[4*removals:])}}
	}
	return u, nil
}
