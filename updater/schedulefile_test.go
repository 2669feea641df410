package updater

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/files"
	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
)

// scheduleOf is a file of a schedule with that number of failures.
func scheduleOf(t *testing.T, failures int, saved time.Time) []byte {
	t.Helper()
	state := scheduleState{clockSet: clockSet{Fetch: asked{Clock: Clock{NotBefore: saved.Add(time.Hour), Failures: failures}}}}
	raw, err := encodeSchedule(state, saved, moment{Saved: saved})
	must(t, err)
	return raw
}

// All copies count. An unreadable one in the folder of the lists is an error, since its waits may last; a spare one is none.
func TestWhichScheduleIsRead(t *testing.T) {
	now := time.Now()
	older, newer := scheduleOf(t, 1, now.Add(-2*time.Minute)), scheduleOf(t, 2, now.Add(-time.Minute))
	damaged, folder := []byte("{"), []byte(nil)
	const absent, dangling = "absent", "dangling"
	type content = any // []byte, absent, or dangling
	for _, test := range []struct {
		name     string
		folder   content
		spare    content
		failures int // the most; 0: there is none
		err      error
	}{
		{"none", absent, absent, 0, nil},
		{"one in the folder", older, absent, 1, nil},
		{"a damaged one", damaged, absent, 0, ErrDamaged},
		{"one that cannot be read", folder, absent, 0, files.ErrIrregular},
		{"a link to nothing", dangling, absent, 0, ErrDamaged},
		{"a spare link to nothing", older, dangling, 1, nil},
		{"a spare one", absent, older, 1, nil},
		{"a newer spare one", older, newer, 2, nil},
		{"an older spare one", newer, older, 2, nil},
		{"a damaged spare one", older, damaged, 1, nil},
		{"a damaged spare one alone", absent, damaged, 0, nil},
		{"a spare one that cannot be read", older, folder, 1, nil},
		{"a damaged one and a spare one", damaged, older, 1, ErrDamaged},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Setenv("RUNTIME_DIRECTORY", t.TempDir())
			store := openStore(t, t.TempDir())
			spare := spareFolder()
			must(t, os.Mkdir(spare, 0o700))
			for path, content := range map[string]content{
				filepath.Join(store.dir, scheduleFile): test.folder, filepath.Join(spare, store.spareFile(scheduleFile)): test.spare,
			} {
				switch raw, _ := content.([]byte); {
				case content == absent:
				case content == dangling:
					must(t, os.Symlink(filepath.Join(store.dir, "none"), path))
				case raw == nil:
					must(t, os.Mkdir(path, 0o700))
				default:
					must(t, os.WriteFile(path, raw, 0o600))
				}
			}
			s, err := ReadSchedule(store)
			testkit.Is(t, "the error", err, test.err)
			testkit.Equal(t, "failures", s.state.Fetch.Failures, test.failures)
		})
	}
}

// In the spare folder only until the folder of the lists is well. There a crash loop finds its back-off, too.
func TestAScheduleIsSavedOrTheErrorSaysWhere(t *testing.T) {
	for _, test := range []struct {
		name    string
		origin  Origin
		dir     string
		nowhere bool
	}{
		{"in the folder", Origin{}, t.TempDir(), false}, {"in a spare folder", Origin{}, unwritable(t).dir, false},
		{"in a spare folder, the folder is below a file", Origin{}, filepath.Join(unwritable(t).dir, "lists"), false},
		{"nowhere", Origin{Schedule: "missing/schedule.json"}, unwritable(t).dir, true},
	} {
		t.Setenv("RUNTIME_DIRECTORY", t.TempDir())
		spare := test.name != "in the folder"
		for crashes := range 4 {
			store, _ := OpenStore(test.dir, test.origin)
			s, _ := NewSchedule(store)
			s.random = func() float64 { return 0 }
			known := s.FetchHold([]string{se})
			if !test.nowhere && (known.Failures != crashes || crashes > 0 && time.Until(known.Until) < Backoff(crashes, 0)-time.Minute) {
				t.Errorf("%s, after %d crashes: %+v", test.name, crashes, known)
			}
			_, err := s.own()
			if (err == nil) == spare || err != nil && strings.Contains(err.Error(), "nor can it be saved elsewhere") != test.nowhere {
				t.Errorf("%s: got %v", test.name, err)
			}
			_, _ = s.begin([]string{se}, time.Now()) // it dies on the answer
		}
		if root, _ := filepath.Split(test.dir); spare && !test.nowhere && files.InTheWay(root) == "" {
			must(t, errors.Join(os.Remove(test.dir), os.Mkdir(test.dir, 0o700)))
			ownedSchedule(t, test.dir)
			testkit.Equal(t, "what the spare folder holds", namesIn(t, spareFolder()), nil)
		}
	}
}

// Who may write sets an unreadable schedule aside, who only looks leaves it. Both wait for half an hour and say so.
func TestAnUnreadableScheduleIsSetAside(t *testing.T) {
	for reader, test := range map[string]struct {
		read  func(store *Store) (*Schedule, error)
		aside bool
	}{
		"start": {NewSchedule, true},
		"look":  {ReadSchedule, false},
		"own": {func(store *Store) (*Schedule, error) {
			s := newSchedule(store)
			s.look() // as a process that waits for the folder
			err, _ := s.own()
			return s, err
		}, true},
	} {
		for content, tamper := range map[string]func([]byte) []byte{
			"nothing":        func([]byte) []byte { return nil },
			"null":           func([]byte) []byte { return []byte("null") },
			"an empty one":   func([]byte) []byte { return []byte("{}") },
			"another digit":  func(b []byte) []byte { return bytes.Replace(b, []byte(`"wait":2`), []byte(`"wait":9`), 1) },
			"its first half": func(b []byte) []byte { return b[:len(b)/2] },
		} {
			inBubble(t, reader+", "+content, func(t *testing.T) {
				before := ownedSchedule(t, t.TempDir())
				success(t, before, begin(t, before, se), 6*time.Hour)
				must(t, writeSchedule(before.store, tamper(read(t, before))))
				s, err := test.read(openStore(t, before.store.dir))
				testkit.Is(t, "the error", err, ErrDamaged)
				testkit.WantError(t, err, "waiting 30m0s before the first request")
				wantDueIn(t, s, 30*time.Minute)
				testkit.Equal(t, "held by", s.FetchHold([]string{se}).Cause, errUnreadable.Error())
				testkit.Equal(t, "set aside", slices.Contains(namesIn(t, s.store.dir), scheduleFile+damagedSuffix), test.aside)
				if time.Sleep(time.Second); test.aside {
					must(t, errors.Join(s.own()))
					checkDue(t, s, 30*time.Minute-time.Second)
				}
			})
		}
	}
	// Until a damaged file is replaced, the clocks in memory hold, and other keys' clocks stay.
	inBubble(t, "it takes no other clock", func(t *testing.T) {
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
			all := []time.Duration{s.state.Fetch.NotBefore.Sub(until), s.list(se).NotBefore.Sub(until),
				s.state.Others["other"].Fetch.NotBefore.Sub(until)}
			testkit.Equal(t, name+": the waits end late by", all, []time.Duration{0, time.Hour, 0})
		}
	})
}

// Who does not own the folder takes over what the owner has saved, unless that is no news.
func TestWhatAFollowerOfAFolderTakesOver(t *testing.T) {
	inBubble(t, "clocks", func(t *testing.T) {
		saved := time.Now()
		mine := scheduleState{moment: moment{Saved: saved}, Asker: "a", clockSet: clockSet{Fetch: asked{Clock: Clock{Failures: 1}}, Search: asked{Clock: Clock{Failures: 4}}}}
		time.Sleep(time.Minute)
		other := scheduleState{Asker: "a", clockSet: clockSet{Fetch: asked{Clock: Clock{NotBefore: saved.Add(time.Hour), Failures: 2}}}}
		for _, test := range []struct {
			name  string
			write func(t *testing.T, s *Store)
			news  bool
		}{
			{"no file", func(*testing.T, *Store) {}, false},
			{"a damaged file", func(t *testing.T, s *Store) { must(t, writeSchedule(s, []byte("{"))) }, false},
			{"the file that it has", written(other, saved), false},
			{"a request is under way", written(asking(other), time.Now()), false},
			{"another key, whose failures are its own", written(scheduleState{Asker: "b", clockSet: other.clockSet}, time.Now()), true},
			{"a newer file", written(other, time.Now()), true},
			{"a file that is older, after the clock was set back", written(other, saved.Add(-time.Hour)), true},
		} {
			s := newSchedule(openStore(t, t.TempDir()))
			test.write(t, s.store)
			s.state = mine.clone()
			if test.name == "the file that it has" {
				s.look()
				s.state = mine.clone()
			}
			testkit.Equal(t, test.name+": news", s.look(), test.news)
			want := 1
			if test.news && !strings.Contains(test.name, "another key") {
				want = 2
			}
			if s.state.Fetch.Failures != want || heldSearch(s).Failures != 4 || test.news && s.state.Lists == nil {
				t.Errorf("%s: then %+v", test.name, s.state)
			}
		}
		testkit.Equal(t, "news without a folder", newSchedule(nil).look(), false)
	})
	// By a clock that was ahead, or is behind now, as of a router at its boot. Which one is not known before the next success.
	inBubble(t, "the time of an update in the future", func(t *testing.T) {
		s := newSchedule(openStore(t, t.TempDir()))
		success := func(attempt uint64, ahead time.Duration) (at time.Time) {
			at = time.Now().Add(ahead)
			written(scheduleState{clockSet: clockSet{Lists: map[string]ListClock{se: {Clock: Clock{Attempt: attempt}, Updated: at}}}}, at)(t, s.store)
			return at
		}
		at := success(1, 64*365*24*time.Hour)
		must(t, s.load(true))
		testkit.Equal(t, "at a start by a clock that is behind: updated late by", s.list(se).Updated.Sub(at), 0)
		at = success(2, 0)
		testkit.Equal(t, "the next success is news", s.look(), true)
		testkit.Equal(t, "after it: updated late by", s.list(se).Updated.Sub(at), 0)
		failed := ListClock{Clock: Clock{Failures: 1}, Updated: at}
		later := ListClock{Updated: at.Add(time.Hour)}
		testkit.Equal(t, "updated, by a version that counts no attempts", failed.join(later).Updated, later.Updated)
	})
}

func asking(state scheduleState) scheduleState {
	state.Fetch.Asking = true
	return state
}

// written writes a schedule as if at saved.
func written(state scheduleState, saved time.Time) func(*testing.T, *Store) {
	return func(t *testing.T, s *Store) {
		raw, err := encodeSchedule(state, time.Now(), moment{Saved: saved})
		must(t, err)
		must(t, writeSchedule(s, raw))
	}
}

func TestMain(m *testing.M) {
	testkit.InMemory()
	testkit.TwoProcessors()
	testkit.SideBySide(8)
	dir, err := os.MkdirTemp("", "spare")
	if err != nil {
		panic(err)
	}
	os.Setenv("RUNTIME_DIRECTORY", dir)
	os.Setenv("SAFEBROWSING_BOOT_ID", "") // the time of a bubble is not that since boot
	files.WaitLimit = time.Minute         // a busy machine has slow disks that do not hang
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

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
			read(s)
			testkit.Equal(t, "it was read, and the failures", []any{reads > 0, s.state.Fetch.Failures}, []any{true, 3})
		})
	}
	// A back-off that is saved while the schedule is read is newer than what was read.
	inBubble(t, "a back-off that is saved meanwhile stays", func(t *testing.T) {
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

// told is a Source that says whose words its lists are.
type told struct{ text string }

func (told) Fetch(context.Context, []Want, func(int, *Update)) (time.Duration, error) { return 0, nil }
func (s told) Advisory() (text string, known bool)                                    { return s.text, s.text != "?" }

// What a server said is known after a restart, with any key, and not for another server. A file without it is read as always.
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
