package updater

import (
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// slowSearches returns a schedule whose file of searches is not written before write is closed.
func slowSearches(t *testing.T, dir string) (s *Schedule, write chan struct{}) {
	s, write = ownedSchedule(t, dir, 0), make(chan struct{})
	s.store.disk.SyncFile = func(f *os.File) error {
		if strings.Contains(f.Name(), "search") {
			<-write
		}
		return nil
	}
	return s, write
}

// A folder changes hands while a back-off of searches is on its way to the disk.
func TestABackoffOutlastsAReloadWhileItIsSaved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, write := slowSearches(t, t.TempDir())
		now := time.Now()
		s.mu.Lock()
		s.state.Others = map[string]clockSet{"other": {Search: asked{Clock: Clock{NotBefore: now.Add(2 * time.Hour)}}}}
		s.mu.Unlock()
		s.changeSearch(func(c *asked) { c.Clock = c.failed(now, time.Hour, 0) }, func(err error) { t.Error(err) })
		synctest.Wait()
		must(t, s.load(true))
		if left := s.SearchHold().Until.Sub(now); left != time.Hour {
			t.Errorf("searches pause for %s, want an hour", left)
		}
		s.mu.Lock()
		other := s.state.Others["other"].Search.NotBefore
		s.mu.Unlock()
		if left := other.Sub(now); left != 2*time.Hour {
			t.Errorf("those of another key pause for %s, want two hours", left)
		}
		close(write)
		s.Flush()
		again, err := NewSchedule(s.store)
		must(t, err)
		if left := again.SearchHold().Until.Sub(now); left != time.Hour {
			t.Errorf("after a restart searches pause for %s, want an hour", left)
		}
	})
}

// While a wait is saved, another one comes from an earlier schedule, and is not in the file.
func TestTheEndOfASaveShortensNoWait(t *testing.T) {
	for name, test := range map[string]struct{ other, want time.Duration }{
		"no other process":              {0, 2 * time.Hour},
		"another process waits less":    {time.Hour, 2 * time.Hour},
		"another process waits longest": {3 * time.Hour, 3 * time.Hour},
	} {
		inBubble(t, name, func(t *testing.T) {
			dir, now := t.TempDir(), time.Now()
			s, write := slowSearches(t, dir)
			if test.other > 0 {
				other, err := NewSchedule(openStore(t, dir))
				must(t, err)
				other.changeSearch(func(c *asked) { c.Clock = c.failed(now, test.other, 0) }, func(err error) { t.Error(err) })
				other.Flush()
			}
			s.changeSearch(func(c *asked) { c.Failures++ }, func(err error) { t.Error(err) })
			synctest.Wait()
			last := newSchedule(nil)
			last.state.Search.NotBefore = now.Add(2 * time.Hour)
			s.meetLast(last)
			close(write)
			s.Flush()
			if left := s.SearchHold().Until.Sub(now); left != test.want {
				t.Errorf("searches pause for %s, want %s", left, test.want)
			}
		})
	}
}
