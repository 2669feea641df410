package updater

import (
	"bytes"
	"context"
	"errors"
	"io"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/files"
)

// Shared is what the Stores of several machines have in common, in addition to the folder of
// each: the right to fetch lists, documents with clocks and counts, and lists. The folder stays
// the second memory of all of it. A Shared is safe for concurrent use.
type Shared interface {
	// TryLock asks for the right to fetch lists, and reports whether this process has it. It
	// may wait for the first answer of the medium, for a few seconds at most. Unlock returns
	// the right.
	TryLock() bool
	Unlock()
	// Held returns a context that ends with ctx, or before the right can have passed to
	// another process. Nothing may be sent before settled: until then other processes may
	// report later clocks.
	Held(ctx context.Context) (held context.Context, cancel context.CancelFunc, settled time.Time)

	// Now is the wall clock that all processes agree on: the latest time that it may show now, and by
	// how much less it may show. Who writes a time takes the latest, and who reads one the earliest: no
	// wait ends early.
	Now() (latest time.Time, within time.Duration)
	// A Shared is the Medium of documents that all processes write. Its Read never waits, and its
	// Swap for a second at most.
	Medium
	// Leased returns the Medium of the process that has the right to fetch: the medium itself
	// refuses the Swap of others, even if they still believe that they have the right. The error
	// is ErrAlone if this process may fetch without the medium.
	Leased() Medium

	// Head returns the newest content of a list that others have published. It never waits.
	Head(list string) (h Head, ok bool)
	// Publish makes a content of a list known, if this process has the right to fetch. file
	// writes the content and is called twice. change is nil or leads from h.From to h.
	Publish(h Head, file func(io.Writer) error, change []byte) error
	// File and Change return what Publish got, after a check of its SHA-256.
	File(h Head) ([]byte, error)
	Change(h Head) ([]byte, error)

	// Rekey continues with another asker, see Origin.
	Rekey(asker string)
}

// ErrAlone says that a process may fetch lists although the medium of a Shared has been away
// for long: it had the right last.
var ErrAlone = errors.New("the shared store has been away for long")

// errNotHeld says that a request was not sent: the shared store does not confirm that this
// process may send it now.
var errNotHeld = errors.New("the shared store does not confirm the right to fetch lists")

// A Head describes the content of a list in a Shared. It is a value.
type Head struct {
	List     string    `json:"list"`
	Version  []byte    `json:"version"`  // as the server sent it
	Checksum []byte    `json:"checksum"` // SHA-256 of all entries
	Entries  int       `json:"entries"`
	Received time.Time `json:"received"` // when the server sent the content
	From     []byte    `json:"from"`     // checksum of the content that the change leads from; nil: there is no change
}

// same reports whether l is the content that h describes.
func (h Head) same(l List) bool {
	return l.held() && bytes.Equal(h.Checksum, l.Checksum[:]) && bytes.Equal(h.Version, l.Version)
}

// Share makes the store share the right to fetch, clocks, counts and lists. Call it before the
// store is used.
func (s *Store) Share(shared Shared) { s.shared = shared }

// tryLock takes the lock of the folder, then the shared right to fetch. It keeps the first one
// while it waits for the second. An error says that the folder has no locks.
func (s *Store) tryLock() (locked bool, err error) {
	if s.shared == nil {
		return files.TryLock(s.lock)
	}
	if locked, err = files.TryLock(s.lock); temporary(err) || err == nil && !locked {
		return false, err
	}
	s.alone.Store(true)
	return s.shared.TryLock(), nil
}

// locked reports whether this process is the only one with the folder, so that it may write
// lists and the schedule there.
func (s *Store) locked() bool { return s.alone.Load() }

// busy returns why tryLock has failed.
func (s *Store) busy() Kind {
	if s.locked() {
		return LeaseBusy
	}
	return LockBusy
}

// unlock ends what tryLock began.
func (s *Store) unlock() {
	if s.shared != nil {
		s.shared.Unlock()
	}
	s.lock.Close()
	s.alone.Store(false)
}

// held returns a context that ends before another process may fetch, and the time before which
// nothing may be sent.
func (s *Store) held(ctx context.Context) (context.Context, context.CancelFunc, time.Time) {
	if s == nil || s.shared == nil {
		return ctx, func() {}, time.Time{}
	}
	return s.shared.Held(ctx)
}

// Documents returns the names of the documents that a Shared has for the origin: the schedule,
// the clock of searches, and the count of searches.
func (o Origin) Documents() []string {
	return []string{o.scheduleFile(), o.searchFile(), o.budgetFile()}
}
