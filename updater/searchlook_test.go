package updater

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"
)

// onRead calls do each time that a file of clocks of the store is read or encoded.
func onRead(s *Store, do func(calls int)) {
	calls, boot := 0, s.boot
	s.boot = func() (string, time.Duration) {
		calls++
		do(calls)
		return boot()
	}
}

// One search at a time looks at the file. The others go on with what is in memory.
func TestOneSearchAtATimeLooksAtTheFile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		s, _ := searchesAfter(t, dir)
		other, saved := searchesAfter(t, dir)
		other.changeSearch(fail(time.Now().Add(time.Hour)), noError(t))
		saved()
		s.searches.looking = make(chan struct{})
		if s.lookAtSearches(); s.state.Search.Failures != 0 || s.searches.looking == nil {
			t.Error("two look at once")
		}
		s.searches.looking, s.searches.late = nil, true
		if s.lookAtSearches(); s.state.Search.Failures != 0 || s.searches.looking != nil {
			t.Error("one looks while a write hangs")
		}
		s.searches.late = false
		reads := 0
		onRead(s.store, func(int) {
			reads++
			s.mu.Lock()
			defer s.mu.Unlock()
			if s.searches.looking == nil {
				t.Error("while it looks, it is not said so")
			}
		})
		for range 3 {
			if s.lookAtSearches(); s.state.Search.Failures != 1 || s.searches.looking != nil {
				t.Errorf("the file is not read, or still being read: %+v", s.state.Search)
			}
		}
		if reads != 1 {
			t.Errorf("the file was read %d times, want once: it has not changed", reads)
		}
	})
}

// The file may be removed, or be replaced by a damaged one, before it is read.
func TestAFileOfSearchesThatIsLostIsIgnored(t *testing.T) {
	for name, lose := range map[string]func(path string) error{
		"removed": os.Remove,
		"damaged": func(path string) error { return os.WriteFile(path, []byte("{"), 0o600) },
	} {
		inBubble(t, name, func(t *testing.T) {
			s, _ := searchesAfter(t, t.TempDir())
			other, saved := searchesAfter(t, s.store.dir)
			other.changeSearch(fail(time.Now().Add(time.Hour)), noError(t))
			saved()
			onRead(s.store, func(int) { must(t, lose(filepath.Join(s.store.dir, "searches.json"))) })
			s.state.Search.Failures = 7
			s.lookAtSearches()
			if s.Flush(); s.state.Search.Failures != 7 {
				t.Errorf("%+v in memory", s.state.Search)
			}
		})
	}
}

// Without a file to write, a change is over at once.
func TestAChangeThatIsNotSavedIsOver(t *testing.T) {
	onlooker, err := ReadSchedule(openStore(t, t.TempDir()))
	must(t, err)
	for name, s := range map[string]*Schedule{"no folder": newSchedule(nil), "an onlooker": onlooker} {
		select {
		case <-s.changeSearch(func(c *asked) { c.Failures++ }, noError(t)).done:
		default:
			t.Errorf("%s: a search would wait for the disk", name)
		}
		if s.state.Search.Failures != 1 {
			t.Errorf("%s: %+v in memory", name, s.state.Search)
		}
	}
}

// Changes that come while the file is read are in the write that follows.
func TestAWriteHasAllChangesThatCameBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, saved := searchesAfter(t, t.TempDir())
		more := func(c *asked) { c.Failures++ }
		onRead(s.store, func(calls int) {
			if calls == 1 {
				s.changeSearch(more, noError(t))
			}
		})
		sync, writes := s.store.disk.SyncFile, 0
		s.store.disk.SyncFile = func(f *os.File) error { writes++; return sync(f) }
		s.changeSearch(more, noError(t))
		if got := saved().Failures; got != 2 || writes != 1 {
			t.Errorf("%d failures are saved in %d writes, want 2 in one", got, writes)
		}
	})
}

// A file of another key keeps its clock, and gets that of this key.
func TestAWriteKeepsTheClockOfAnotherKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		ours, theirs := askedWith(t, dir, "ours"), askedWith(t, dir, "theirs")
		now := time.Now()
		theirs.changeSearch(fail(now.Add(time.Hour)), noError(t))
		theirs.Flush()
		ours.changeSearch(fail(now.Add(time.Minute)), noError(t))
		ours.Flush()
		for key, want := range map[string]time.Duration{"ours": time.Minute, "theirs": time.Hour} {
			again := askedWith(t, dir, key)
			again.Flush()
			if wait := again.searchWait(now); wait != want || again.state.Search.Failures != 1 {
				t.Errorf("%s: %d failures and a wait of %s, want one and %s", key, again.state.Search.Failures, wait, want)
			}
		}
	})
}

// A search sees what the process on another machine was told.
func TestASearchLooksAtTheSharedStore(t *testing.T) {
	m := newMedium()
	var all []*Schedule
	for range 2 {
		store := openStore(t, t.TempDir())
		store.Share(&view{medium: m})
		s, err := NewSchedule(store)
		must(t, err)
		t.Cleanup(s.Flush)
		all = append(all, s)
	}
	all[0].changeSearch(fail(time.Now().Add(time.Hour)), noError(t))
	all[0].Flush()
	all[1].lookAtSearches()
	if wait := all[1].searchWait(time.Now()); wait < 59*time.Minute {
		t.Errorf("a wait of %s, want an hour", wait)
	}
}

// The wait that follows a damaged file is not begun once more by each start.
func TestADamagedFileOfSearchesCostsOneWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		must(t, os.WriteFile(filepath.Join(dir, "searches.json"), []byte("{"), 0o600))
		s, err := NewSchedule(openStore(t, dir))
		if !errors.Is(err, errUnreadableSearches) {
			t.Errorf("got %v", err)
		}
		s.Flush()
		time.Sleep(10 * time.Minute)
		again, _ := searchesAfter(t, dir)
		if wait := again.searchWait(time.Now()); wait != 5*time.Minute {
			t.Errorf("after 10 minutes and a restart %s to wait, want 5 minutes", wait)
		}
	})
}
