package updater

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
)

// The file has the last change, even if the write of an earlier one begins later.
func TestAnEarlierChangeIsNotWrittenOverALaterOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := ownedSchedule(t, t.TempDir())
		set := func(failures int) error {
			return s.change(func(state *scheduleState) { state.Fetch.Failures = failures })
		}
		onRead(s.store, func(calls int) {
			if calls == 1 { // the first change is not written yet
				go set(2)
			}
		})
		for _, first := range []int{1, 3} {
			must(t, set(first))
			synctest.Wait()
			saved, _ := savedClocks(t, s.store, scheduleFile)
			testkit.Equal(t, "the change that is saved", saved.Fetch.Failures, max(first, 2))
		}
	})
}

// The times of a file are by the clock that it is for.
func TestEncodingLeavesAScheduleAsItIs(t *testing.T) {
	now := time.Now()
	set := clockSet{Lists: map[string]ListClock{se: {Clock: Clock{NotBefore: now}}}}
	state := scheduleState{clockSet: set, Others: map[string]clockSet{"other": set.clone()}}
	raw, err := encodeSchedule(state, now, moment{Saved: now.Add(time.Hour)})
	must(t, err)
	saved, err := savedState(raw)
	must(t, err)
	for who, sets := range map[string][2]clockSet{
		"own": {state.clockSet, saved.clockSet}, "other": {state.Others["other"], saved.Others["other"]},
	} {
		testkit.Equal(t, "the time in memory, "+who, sets[0].Lists[se].NotBefore, now)
		testkit.Equal(t, "the time in the file, "+who, sets[1].Lists[se].NotBefore.Sub(now.Round(0)), time.Hour)
	}
}

// Until a damaged file is replaced, the clocks in memory hold, and other keys' clocks stay.
func TestADamagedScheduleTakesNoOtherClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := ownedSchedule(t, t.TempDir())
		until := time.Now().Add(2 * time.Hour)
		s.state.Fetch.NotBefore = until
		s.state.Lists[se] = ListClock{Clock: Clock{NotBefore: until.Add(time.Hour)}}
		s.state.Others = map[string]clockSet{"other": {Fetch: asked{Clock: Clock{NotBefore: until}}}}
		must(t, writeSchedule(s.store, []byte("{")))
		if loadErr, saveErr := s.own(); loadErr == nil || saveErr != nil {
			t.Fatal(loadErr, saveErr)
		}
		for name, s := range map[string]*Schedule{"in memory": s, "after a restart": ownedSchedule(t, s.store.dir)} {
			if !s.state.Fetch.NotBefore.Equal(until) || !s.list(se).NotBefore.Equal(until.Add(time.Hour)) || !s.state.Others["other"].Fetch.NotBefore.Equal(until) {
				t.Errorf("%s: %+v", name, s.state)
			}
		}
	})
}

// Who reads a schedule, and then fetches as its owner, saves it.
func TestAScheduleThatWasOnlyReadIsSavedByItsOwner(t *testing.T) {
	inBubble(t, "", func(t *testing.T) {
		store := openStore(t, t.TempDir())
		s, err := ReadSchedule(store)
		must(t, err)
		must(t, errors.Join(s.own()))
		success(t, s, begin(t, s, se), 6*time.Hour)
		checkDue(t, s, 6*time.Hour)
	})
}

// A disk that hangs keeps its reader waiting, and no search: those need the lock of the schedule.
func TestNoSearchWaitsWhileTheScheduleIsRead(t *testing.T) {
	for name, read := range map[string]func(s *Schedule){
		"by a follower":                     func(s *Schedule) { s.look() },
		"by one that may write from now on": func(s *Schedule) { _ = s.load(true) },
	} {
		inBubble(t, name, func(t *testing.T) {
			dir := t.TempDir()
			owner := ownedSchedule(t, dir)
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
		s := newScheduleOf(t, openStore(t, t.TempDir()))
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
		testkit.Between(t, "searches pause for", time.Until(s.SearchHold().Until), time.Hour, 2*time.Hour)
	})
}

// Flush may wait while searches go on and change their clock.
func TestChangesOfSearchesBeginWhileAnotherOneIsWaitedFor(t *testing.T) {
	s := newScheduleOf(t, openStore(t, t.TempDir()))
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
	testkit.Equal(t, "changes", heldSearch(s).Failures, 200)
}

// A reload while a fetch is under way, which succeeds or is cancelled.
func TestAReloadDuringAFetchIsNoFailure(t *testing.T) {
	for name, end := range map[string]func(t *testing.T, s *Schedule, a attempt){
		"answered":  func(t *testing.T, s *Schedule, a attempt) { success(t, s, a, 5*time.Minute) },
		"cancelled": func(t *testing.T, s *Schedule, a attempt) { must(t, a.cancelled([]string{se}, time.Now(), 0)) },
	} {
		inBubble(t, name, func(t *testing.T) {
			first := newScheduleOf(t, nil)
			for range 8 { // the next wait is a day
				must(t, begin(t, first, se).failed(time.Now(), 0, nil, nil, errTest))
			}
			time.Sleep(24 * time.Hour)
			a := begin(t, first, se)
			second := newScheduleOf(t, nil)
			second.Follow(first)
			end(t, first, a)
			testkit.Equal(t, "there was something to catch up with", second.resume(), true)
			testkit.Equal(t, "due", second.due([]string{se}), first.due([]string{se}))
		})
	}
}

// A search that is cancelled may have been answered with a wait that was not read.
func TestACancelledSearchKeepsTheLastWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProcess(t, t.TempDir(), v5Rules, &script{errs: []error{nil, context.Canceled}, waits: []time.Duration{time.Hour}})
		p.search(t)
		time.Sleep(2 * time.Hour)
		p.search(t) // cancelled
		p.backsOff(t, "after it", time.Hour)
	})
}

// told is a Source that says whose words its lists are.
type told struct{ text string }

func (told) Fetch(context.Context, []Want, func(int, *Update)) (time.Duration, error) { return 0, nil }
func (s told) Advisory() (text string, known bool)                                    { return s.text, s.text != "?" }

// What a server said is known after a restart, with any key. It does not count for the lists of
// another server in the same folder. A file of a version before it was kept is read as always.
func TestWhatAServerSaysOfItselfIsSavedWithTheSchedule(t *testing.T) {
	dir := t.TempDir()
	at := func(server, asker string) *Schedule {
		return newScheduleOf(t, openStoreBy(t, dir, Origin{Name: server, Asker: asker}))
	}
	save := func(s *Schedule) {
		s.owned = true
		must(t, s.change(func(*scheduleState) {}))
	}
	before := at("http://relay", "one")
	before.state.Fetch.Clock = Clock{NotBefore: time.Now().Add(time.Hour), Failures: 1}
	save(before)
	testkit.WantNone(t, string(read(t, before)), "advice") // the form of the version before
	s := at("http://relay", "one")
	testkit.Equal(t, "failures", s.FetchHold([]string{se}).Failures, 1)
	testkit.Equal(t, "without an advisory", s.Advisory(), "")
	const text = "https://advisory.example/"
	s.advise(told{text})
	s.advise(told{"?"}) // it has not answered: what was known stays
	save(s)
	for _, asker := range []string{"one", "two", ""} {
		testkit.Equal(t, "asker "+asker, at("http://relay", asker).Advisory(), text)
	}
	testkit.Equal(t, "of another server", at("http://other", "one").Advisory(), "")
	next, last := newSchedule(nil), newSchedule(nil)
	last.advise(told{text})
	next.Follow(last)
	testkit.Equal(t, "after a reload, in memory", next.Advisory(), text)
	s.advise(told{""})
	save(s)
	testkit.Equal(t, "of a server that has none any more", at("http://relay", "one").Advisory(), "")
}
