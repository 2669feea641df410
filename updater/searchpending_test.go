package updater

import (
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// slowSearches returns a schedule whose file of searches is not written before write is closed.
func slowSearches(t *testing.T) (s *Schedule, write chan struct{}) {
	s, write = ownedSchedule(t, t.TempDir(), 0), make(chan struct{})
	s.store.disk.syncFile = func(f *os.File) error {
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
		s, write := slowSearches(t)
		now := time.Now()
		s.mu.Lock()
		s.state.Others = map[string]clockSet{"other": {Search: Clock{NotBefore: now.Add(2 * time.Hour)}}}
		s.mu.Unlock()
		s.changeSearch(func(c *Clock) { *c = c.failed(now, time.Hour, 0) }, func(err error) { t.Error(err) })
		synctest.Wait()
		must(t, s.reload(true))
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

// What has come from an earlier schedule meanwhile is not in the file.
func TestTheEndOfASaveDoesNotShortenAWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, write := slowSearches(t)
		now := time.Now()
		s.changeSearch(func(c *Clock) { *c = c.failed(now, time.Hour, 0) }, func(err error) { t.Error(err) })
		synctest.Wait()
		must(t, s.change(func(state *scheduleState) {
			state.adopt(scheduleState{clockSet: clockSet{Search: Clock{NotBefore: now.Add(2 * time.Hour)}}})
		}))
		close(write)
		s.Flush()
		if left := s.SearchHold().Until.Sub(now); left != 2*time.Hour {
			t.Errorf("searches pause for %s, want two hours", left)
		}
	})
}
