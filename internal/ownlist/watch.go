package ownlist

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"
)

// Event is something that a caller may want to log: Loaded or Failed.
type Event interface{ event() }

// Loaded says that a file has been read and is in force.
type Loaded struct {
	State
	Again bool // it could not be used before
}

// Failed says that a file cannot be used, as State.Err says, and that what was read
// of it before stays in force. It comes once for each change of what is wrong; that
// all is well again is said by Loaded.
type Failed struct{ State }

func (Loaded) event() {}
func (Failed) event() {}

// ErrEmpty says that a file of which entries are in force lists nothing any more.
// That is more often an accident than a wish: a download that failed, a write that
// is under way.
var ErrEmpty = errors.New("nothing in it can be used any more")

// maxTorn is how often in a row a file that changes while it is read is left
// alone. Some files never stop.
const maxTorn = 3

// watch looks at the file at each interval until ctx ends.
func (s *source) watch(ctx context.Context, interval time.Duration) {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			s.poll()
		}
	}
}

// poll loads the file if it is not the version that was read last.
func (s *source) poll() {
	version, err := os.Stat(s.key.Path)
	if err == nil && s.version != nil && sameVersion(version, s.version) {
		return
	}
	s.version = nil
	if err != nil {
		s.fail(err)
		return
	}
	c, version, steady, err := load(s.key)
	if err != nil {
		s.fail(err)
		return
	}
	s.take(c, version, steady)
}

// take puts what was read in force, unless the old is better.
func (s *source) take(c *content, version fs.FileInfo, steady bool) {
	if steady {
		s.version, s.torn = version, 0
	} else if s.torn++; s.torn < maxTorn {
		return // half of a list is worse than the old one
	}
	if c.summary.Entries == 0 && s.content.Load().summary.Entries > 0 {
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

// loaded reports that the content is in force.
func (s *source) loaded(again bool) { s.report(Loaded{s.state(), again}) }

// fail reports an error, unless it is the one that was reported last.
func (s *source) fail(err error) {
	s.mu.Lock()
	same := s.err != nil && (s.err.Error() == err.Error() || errors.Is(s.err, ErrEmpty) && errors.Is(err, ErrEmpty))
	s.err = err
	s.mu.Unlock()
	if !same {
		s.report(Failed{s.state()})
	}
}

// report tells the first of those who have the file open.
func (s *source) report(e Event) {
	s.mu.Lock()
	report := func(Event) {}
	if len(s.openers) > 0 {
		report = s.openers[0].report
	}
	s.mu.Unlock()
	report(e)
}
