package updater

import (
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// A disk that hangs keeps its reader waiting, and no search: those need the lock of the schedule.
func TestNoSearchWaitsWhileTheScheduleIsRead(t *testing.T) {
	for name, read := range map[string]func(s *Schedule){
		"by a follower":                     func(s *Schedule) { s.look() },
		"by one that may write from now on": func(s *Schedule) { _ = s.load(true) },
	} {
		inBubble(t, name, func(t *testing.T) {
			dir := t.TempDir()
			owner := ownedSchedule(t, dir, 0)
			must(t, owner.change(func(state *scheduleState) { state.Fetch.Failures = 3 }))
			owner.changeSearch(fail(time.Now().Add(time.Hour)), noError(t))
			owner.Flush()
			s := newSchedule(openStore(t, dir))
			reads := 0
			onRead(s.store, func(int) {
				reads++
				if !s.mu.TryLock() {
					t.Error("the lock is held while the disk is read")
					return
				}
				s.mu.Unlock()
			})
			if read(s); reads == 0 || s.state.Fetch.Failures != 3 {
				t.Errorf("%d reads, then %+v", reads, s.state.Fetch)
			}
		})
	}
}

// A back-off that is saved while the schedule is read is newer than what was read.
func TestABackoffThatIsSavedDuringAReadStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := searchesAfter(t, t.TempDir())
		s.changeSearch(fail(time.Now().Add(time.Minute)), noError(t))
		s.Flush()
		until := time.Now().Add(time.Hour)
		must(t, os.Chtimes(filepath.Join(s.store.dir, "searches.json"), until, until)) // another process has written it
		var begun atomic.Bool
		onRead(s.store, func(int) {
			if begun.Swap(true) || !s.mu.TryLock() { // it is held during the read: nothing is saved meanwhile
				return
			}
			s.mu.Unlock()
			s.changeSearch(fail(until), noError(t))
			s.Flush()
		})
		must(t, s.load(true))
		if hold := s.SearchHold(); hold.Until.Before(until) {
			t.Errorf("searches pause until %s, want %s", hold.Until, until)
		}
	})
}

// Flush may wait while searches go on and change their clock.
func TestChangesOfSearchesBeginWhileAnotherOneIsWaitedFor(t *testing.T) {
	s, _ := searchesAfter(t, t.TempDir())
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 50 {
				s.changeSearch(func(c *asked) { c.Failures++ }, noError(t))
				s.Flush()
			}
		})
	}
	wg.Wait()
	if got := heldSearch(s).Failures; got != 200 {
		t.Errorf("%d changes, want 200", got)
	}
}
