package ownlist

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"
)

// Event is something that a caller may want to log or count: Loaded or Failed.
type Event interface{ event() }

// Loaded says that a file has been read and is in force.
type Loaded struct {
	Path     string // absolute
	Allow    bool   // it is an allow list
	Entries  int    // distinct names
	Skipped  int    // lines that DNS cannot see or this package cannot express
	Bad      int    // lines in none of the formats, or too long
	BadLines []BadLine
}

// Failed says that a file cannot be used, and that what was read of it before
// stays in force. It comes once for each change of what is wrong; that all is
// well again is said by Loaded.
type Failed struct {
	Path  string // absolute
	Allow bool   // it is an allow list
	Err   error
}

func (Loaded) event() {}
func (Failed) event() {}

// ErrEmpty says that a file that had entries lists nothing any more. That is
// more often an accident than a wish: a download that failed, a write that is
// under way.
var ErrEmpty = errors.New("the file lists nothing any more")

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
	version, err := os.Stat(s.key.path)
	if err == nil && s.version != nil && sameVersion(version, s.version) {
		return
	}
	s.version = nil
	if err != nil {
		s.fail(err)
		return
	}
	c, sum, version, steady, err := load(s.key.path, s.key.allow)
	if err != nil {
		s.fail(err)
		return
	}
	s.take(c, sum, version, steady)
}

// take puts what was read in force, unless the old is better.
func (s *source) take(c *content, sum Loaded, version fs.FileInfo, steady bool) {
	if steady {
		s.version, s.torn = version, 0
	} else if s.torn++; s.torn < maxTorn {
		return // half of a list is worse than the old one
	}
	if c.entries == 0 && s.content.Load().entries > 0 {
		s.fail(fmt.Errorf("reading %s: %w", s.key.path, ErrEmpty))
		return
	}
	s.content.Store(c)
	s.failure = ""
	s.report(sum)
}

// fail reports an error, unless it is the one that was reported last.
func (s *source) fail(err error) {
	if err.Error() == s.failure {
		return
	}
	s.failure = err.Error()
	s.report(Failed{Path: s.key.path, Allow: s.key.allow, Err: err})
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
