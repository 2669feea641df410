package ownlist

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/files"
)

// Event is a change that a caller may want to log: Loaded or Failed.
type Event interface{ event() }

// Loaded says that a file has been read and that queries use its content.
type Loaded struct {
	State
	Again bool // the file could not be used before
}

// Failed says that a file cannot be used, for the reason in State.Err. Queries still use
// the content before. It is reported once for each new reason; Loaded reports the end of
// the trouble.
type Failed struct{ State }

func (Loaded) event() {}
func (Failed) event() {}

// ErrEmpty says that a file has no usable entry any more, and had some before. The reason
// is more often an accident than an intention: a failed download, or a writer that has
// not finished.
var ErrEmpty = errors.New("it has no usable entry any more")

// maxTorn is how many reads in a row may be torn, because the file changed meanwhile. The
// last of them is used nevertheless: some files never stop changing.
const maxTorn = 3

// bigFile is the size, in bytes, from which a file is polled less often: people edit small
// files, and programs write big ones, for seconds.
const bigFile = 1 << 20

// watch polls the file at each interval, a big file at each tenth, and when Changed says
// so, until ctx ends.
func (s *source) watch(ctx context.Context, interval time.Duration) {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for n := 1; ; n++ {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			if n%10 == 0 || !s.big {
				s.poll()
			}
		case <-s.changed:
			s.poll()
		}
	}
}

// poll loads the file if its version has changed.
func (s *source) poll() {
	version, err := os.Stat(s.key.Path)
	if err == nil && files.Same(version, s.version) {
		return
	}
	if errors.Is(err, fs.ErrNotExist) && s.missing() {
		return
	}
	s.big = err == nil && version.Size() >= bigFile
	s.version = nil
	if err != nil {
		s.fail(err)
		return
	}
	if s.big && !reading.take(time.Now()) {
		return // the next poll tries again
	}
	c, version, steady, err := load(s.key)
	if s.big {
		reading.give()
	}
	if err != nil {
		s.fail(err)
		return
	}
	s.take(c, version, steady)
}

// reading lets one big list be read again at a time: each takes the memory of its content in
// addition to the one before, and several lists by URL may come together.
var reading turn

// turn is taken by one at a time. One that has had it for longTurn, as when a disk hangs, does
// not keep it from others. The zero value is free. It is safe for concurrent use.
type turn struct {
	mu    sync.Mutex
	since time.Time // zero: free; guarded by mu
}

const longTurn = time.Minute

// take reports whether the caller has the turn now.
func (t *turn) take(now time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.since.IsZero() && now.Sub(t.since) < longTurn {
		return false
	}
	t.since = now
	return true
}

// give ends a turn.
func (t *turn) give() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.since = time.Time{}
}

// missing reports whether the list has not been fetched yet.
func (s *source) missing() bool { return s.key.Fetched && s.content.Load().summary.Modified.IsZero() }

// take publishes new content, unless the old content is better.
func (s *source) take(c *content, version fs.FileInfo, steady bool) {
	if steady {
		s.version, s.torn = version, 0
	} else if s.torn++; s.torn < maxTorn {
		return // half of a new list is worse than the whole old one
	}
	if !s.key.Fetched && c.summary.Entries == 0 && !c.summary.onPurpose && s.content.Load().summary.Entries > 0 {
		s.fail(fmt.Errorf("%w: it %s", ErrEmpty, c.summary.Nothing()))
		return
	}
	s.content.Store(c)
	s.mu.Lock()
	again := s.err != nil
	s.err = nil
	s.mu.Unlock()
	s.loaded(again)
}

// reportFirst reports the result of the first load. A file that is not there yet is no
// event.
func (s *source) reportFirst() {
	switch st := s.state(); {
	case st.Err != nil:
		s.report(Failed{st})
	case !s.missing():
		s.report(Loaded{st, false})
	}
}

// loaded reports that queries use the content.
func (s *source) loaded(again bool) { s.report(Loaded{s.state(), again}) }

// fail reports an error, unless the last report had the same one.
func (s *source) fail(err error) {
	s.mu.Lock()
	same := s.err != nil && (s.err.Error() == err.Error() || errors.Is(s.err, ErrEmpty) && errors.Is(err, ErrEmpty))
	s.err = err
	s.mu.Unlock()
	if !same {
		s.report(Failed{s.state()})
	}
}

// report passes an event to the oldest opener.
func (s *source) report(e Event) {
	s.mu.Lock()
	report := func(Event) {}
	if len(s.openers) > 0 {
		report = s.openers[0].report
	}
	s.mu.Unlock()
	report(e)
}
