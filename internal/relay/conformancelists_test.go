package relay

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol/pb/sbv5"
)

const (
	sourceGet   = "REST reference, hashList.get [G]"
	sourceLocal = "Local Database [G]"
	sourceList  = "schema, HashList [G]"
	sourceRice  = "schema, RiceDeltaEncoded [G]"
	sourceSizes = "schema, SizeConstraints [G]"
)

// changing are the lists that differ before and after.
var changing = []string{"se-4b", "mw-8b", "uws-16b", "pha-32b"}

// listRows are about hashList.get.
var listRows = []row{
	{"no version: a full update, with a version", sourceGet, func(s *subject) error {
		l, err := s.list("se-4b", nil)
		if err == nil && (l.Name != "se-4b" || l.PartialUpdate || len(l.Version) == 0) {
			err = fmt.Errorf("name %q, partial %t, version %x", l.Name, l.PartialUpdate, l.Version)
		}
		return errors.Join(err, leads(nil, l, contentsAfter["se-4b"]))
	}},
	{"an unknown version: a full update", sourceLocal, fullUpdate(func(*subject) []byte { return []byte("of another server") })},
	{"a version of another list: a full update", sourceLocal, fullUpdate(func(s *subject) []byte { return s.before["mw-8b"].Version })},
	{"the version in force: nothing changed, no checksum", sourceLocal, func(s *subject) error {
		l, err := s.list("se-4b", nil)
		if err != nil {
			return err
		}
		l, err = s.list("se-4b", l.Version)
		return errors.Join(err, unchangedList(l))
	}},
	{"an older version: a partial update to the list in force", sourceLocal, eachChange(func(name string, l *sbv5.HashList) error {
		if !l.PartialUpdate || l.CompressedRemovals == nil || l.CompressedAdditions == nil {
			return fmt.Errorf("partial %t", l.PartialUpdate)
		}
		return leads(contentsBefore[name], l, contentsAfter[name])
	})},
	{"entries of 4, 8, 16, 32 bytes: a field for each", sourceList, func(s *subject) error {
		for _, name := range changing {
			l, err := s.list(name, nil)
			if err != nil {
				return err
			}
			if err := leads(nil, l, contentsAfter[name]); err != nil {
				return fmt.Errorf("list %s: %w", name, err)
			}
		}
		return nil
	}},
	{"one entry, all zero: a present field, no difference", sourceRice, func(s *subject) error {
		l, err := s.list("pha-4b", nil)
		if a := l.GetAdditionsFourBytes(); err == nil && (a == nil || a.EntriesCount != 0 || len(a.EncodedData) > 0) {
			err = fmt.Errorf("additions %v", a)
		}
		return errors.Join(err, leads(nil, l, contentsAfter["pha-4b"]))
	}},
	{"an empty list: no additions, the checksum of nothing", sourceLocal, func(s *subject) error {
		l, err := s.list("uws-4b", nil)
		if err == nil && (l.CompressedAdditions != nil || l.PartialUpdate) {
			err = fmt.Errorf("%v", l)
		}
		return errors.Join(err, leads(nil, l, nil))
	}},
	{"maxUpdateEntries: the list, in steps of at most this number of changes or, as from a relay, at once", sourceSizes, func(s *subject) error {
		return errors.Join(s.inSteps("se-4b", nil, nil), s.inSteps("se-4b", s.before["se-4b"].Version, contentsBefore["se-4b"]))
	}},
	{"maxDatabaseEntries: at most this number of entries", sourceSizes, func(s *subject) error {
		l, err := s.list("se-4b", nil, "sizeConstraints.maxDatabaseEntries", "1500")
		if err != nil {
			return err
		}
		list, err := apply(nil, l)
		if err == nil && (list.Set.Len() > 1500 || list.Set.Len() < 1000) {
			err = fmt.Errorf("%d entries, want at most 1500 and not much less", list.Set.Len())
		}
		return err
	}},
	{"a constraint of 0 is no limit", sourceSizes, func(s *subject) error {
		l, err := s.list("se-4b", nil, "sizeConstraints.maxDatabaseEntries", "0", "sizeConstraints.maxUpdateEntries", "0")
		return errors.Join(err, leads(nil, l, contentsAfter["se-4b"]))
	}},
	{"a minimum wait, more than 0 and at most a day", sourceList, func(s *subject) error {
		l, err := s.list("se-4b", nil)
		if wait := l.GetMinimumWaitDuration(); err == nil && (wait.CheckValid() != nil || wait.AsDuration() <= 0 || wait.AsDuration() > 24*time.Hour) {
			err = fmt.Errorf("minimum wait %v", wait)
		}
		return err
	}},
	{"an unknown list: 400 or 404", "Chromium, v5_update_protocol_manager [g][J]", refusal([]int{400, 404}, "/v5/hashList/xy-4b")},
	{"two versions of one list: 400", sourceGet, func(s *subject) error {
		v := param64(s.before["se-4b"].Version)
		return refusal([]int{400}, "/v5/hashList/se-4b", "version", v, "version", v)(s)
	}},
	{"a version that is not base64: 400", sourceGet, refusal([]int{400}, "/v5/hashList/se-4b", "version", "!")},
	{"maxUpdateEntries below 1024: 400", sourceSizes, refusal([]int{400}, "/v5/hashList/se-4b", "sizeConstraints.maxUpdateEntries", "1023")},
	{"a negative maxUpdateEntries: 400", sourceSizes, refusal([]int{400}, "/v5/hashList/se-4b", "sizeConstraints.maxUpdateEntries", "-1")},
	{"a negative maxDatabaseEntries: 400", sourceSizes, refusal([]int{400}, "/v5/hashList/se-4b", "sizeConstraints.maxDatabaseEntries", "-1")},
}

// list asks for a list by itself. A nil version is left out.
func (s *subject) list(name string, version []byte, pairs ...string) (*sbv5.HashList, error) {
	if version != nil {
		pairs = append(pairs, "version", param64(version))
	}
	l := new(sbv5.HashList)
	return l, s.read(l, "/v5/hashList/"+name, pairs...)
}

// leads reports an error unless an update leads from one content to another.
func leads(from []string, l *sbv5.HashList, to []string) error {
	got, err := apply(from, l)
	if err == nil && got.Checksum != sha256.Sum256([]byte(strings.Join(to, ""))) {
		err = fmt.Errorf("%d entries, want %d (or others)", got.Set.Len(), len(to))
	}
	return err
}

// unchangedList reports an error unless the answer says that nothing has changed.
func unchangedList(l *sbv5.HashList) error {
	if !l.PartialUpdate || l.CompressedAdditions != nil || l.CompressedRemovals != nil || len(l.Sha256Checksum) > 0 || len(l.Version) == 0 {
		return fmt.Errorf("list %s: partial %t, checksum %x, version %x", l.Name, l.PartialUpdate, l.Sha256Checksum, l.Version)
	}
	return nil
}

// fullUpdate wants a full update of se-4b for a version.
func fullUpdate(version func(s *subject) []byte) func(s *subject) error {
	return func(s *subject) error {
		l, err := s.list("se-4b", version(s))
		if err == nil && l.PartialUpdate {
			err = errors.New("a partial update")
		}
		return errors.Join(err, leads(nil, l, contentsAfter["se-4b"]))
	}
}

// eachChange checks the update from before to after of each list that changes.
func eachChange(check func(name string, l *sbv5.HashList) error) func(s *subject) error {
	return func(s *subject) error {
		for _, name := range changing {
			l, err := s.list(name, s.before[name].Version)
			if err == nil {
				err = check(name, l)
			}
			if err != nil {
				return fmt.Errorf("list %s: %w", name, err)
			}
		}
		return nil
	}
}

// inSteps fetches a list in steps of 1024 changes, or in one of any size. Each step has a version and a
// checksum, and all but the last let the client ask for the next at once.
func (s *subject) inSteps(name string, version []byte, held []string) error {
	for steps := 1; ; steps++ {
		l, err := s.list(name, version, "sizeConstraints.maxUpdateEntries", "1024")
		if err != nil {
			return err
		}
		list, err := apply(held, l)
		if err != nil {
			return err
		}
		more := l.GetMinimumWaitDuration().AsDuration() == 0
		if n := changes(l); n > 1024 && (more || steps > 1) || !l.PartialUpdate && len(held) > 0 {
			return fmt.Errorf("step %d has %d changes", steps, n)
		}
		switch {
		case !more:
			return leads(held, l, contentsAfter[name])
		case steps > 10:
			return fmt.Errorf("after %d steps the list has %d entries, want %d", steps, list.Set.Len(), len(contentsAfter[name]))
		}
		raw, err := io.ReadAll(list.Set.Reader())
		if err != nil {
			return err
		}
		held = nil
		for entry := range slices.Chunk(raw, 4) {
			held = append(held, string(entry))
		}
		version = l.Version
	}
}

// refusal wants an error object with one of the statuses.
func refusal(statuses []int, path string, pairs ...string) func(s *subject) error {
	return func(s *subject) error {
		p, err := s.get(path, append([]string{"alt", "proto"}, pairs...)...)
		if err != nil {
			return err
		}
		return p.refused(statuses...)
	}
}
