package updater

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// savedFailures returns how many failures of fetches are in the folder.
func savedFailures(t *testing.T, s *Schedule) int {
	t.Helper()
	saved, _ := savedClocks(t, s.store, scheduleFile)
	return saved.Fetch.held().Failures
}

// The file has the last change, even if the write of an earlier one begins later.
func TestAnEarlierChangeIsNotWrittenOverALaterOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := ownedSchedule(t, t.TempDir(), 0)
		set := func(failures int) error {
			return s.change(func(state *scheduleState) { state.Fetch.Failures = failures })
		}
		onRead(s.store, func(calls int) {
			if calls == 1 { // the first change is not written yet
				go set(2)
			}
		})
		must(t, set(1))
		synctest.Wait()
		if got := savedFailures(t, s); got != 2 {
			t.Errorf("change %d is saved, want the second one", got)
		}
		must(t, set(3))
		if got := savedFailures(t, s); got != 3 {
			t.Errorf("change %d is saved, want the third one", got)
		}
	})
}

// The file of the schedule has the clocks of fetches only, and only its owner writes it.
func TestWhatTheFileOfAScheduleHas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := ownedSchedule(t, t.TempDir(), 0)
		s.state.Search.Clock = Clock{Failures: 9}
		count := func(state *scheduleState) { state.Fetch.Failures++ }
		must(t, s.change(count))
		if saved, ok := savedClocks(t, s.store, scheduleFile); !ok || saved.Search.held() != (Clock{}) || heldSearch(s).Failures != 9 {
			t.Errorf("the file has %+v", saved)
		}
		s.disown()
		must(t, s.change(count))
		if got := savedFailures(t, s); got != 1 || s.state.Fetch.Failures != 2 {
			t.Errorf("%d failures are saved, %d in memory, want 1 and 2", got, s.state.Fetch.Failures)
		}
	})
}

func TestEncodingLeavesAScheduleAsItIs(t *testing.T) {
	now := time.Now()
	state := scheduleState{clockSet: clockSet{Lists: map[string]ListClock{se: {Clock: Clock{NotBefore: now}}}}}
	state.Others = map[string]clockSet{"other": {Lists: map[string]ListClock{se: {Clock: Clock{NotBefore: now}}}}}
	_, err := encodeSchedule(state, now, moment{Saved: now.Add(time.Hour)})
	must(t, err)
	if own, other := state.Lists[se].NotBefore, state.Others["other"].Lists[se].NotBefore; own != now || other != now {
		t.Errorf("its times have moved to %s and %s, want %s", own, other, now)
	}
}

// Until a damaged file is replaced, the clocks in memory hold, and those of other keys stay.
func TestADamagedScheduleTakesNoOtherClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := ownedSchedule(t, t.TempDir(), 0)
		until := time.Now().Add(2 * time.Hour)
		s.state.Fetch.NotBefore = until
		s.state.Lists[se] = ListClock{Clock: Clock{NotBefore: until.Add(time.Hour)}}
		s.state.Others = map[string]clockSet{"other": {Fetch: asked{Clock: Clock{NotBefore: until}}}}
		must(t, writeSchedule(s.store, []byte("{")))
		if loadErr, saveErr := s.own(); loadErr == nil || saveErr != nil {
			t.Fatal(loadErr, saveErr)
		}
		for name, s := range map[string]*Schedule{"in memory": s, "after a restart": ownedSchedule(t, s.store.dir, 0)} {
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
		loadErr, saveErr := s.own()
		must(t, errors.Join(loadErr, saveErr))
		success(t, s, begin(t, s, se), 6*time.Hour)
		checkDue(t, s, 6*time.Hour)
	})
}
