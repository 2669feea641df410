package updater

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/files"
)

// scheduleOf is a file of a schedule with that number of failures.
func scheduleOf(t *testing.T, failures int, saved time.Time) []byte {
	t.Helper()
	state := scheduleState{clockSet: clockSet{Fetch: asked{Clock: Clock{NotBefore: saved.Add(time.Hour), Failures: failures}}}}
	raw, err := encodeSchedule(state, saved, moment{Saved: saved})
	must(t, err)
	return raw
}

// All copies count. An unreadable file in the folder of the lists is an error, since its waits may
// last; one in the spare folder is none.
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
			if !errors.Is(err, test.err) || err != nil && test.err == nil {
				t.Errorf("got %v, want %v", err, test.err)
			}
			if got := s.state.Fetch.Failures; got != test.failures {
				t.Errorf("got %d failures, want %d", got, test.failures)
			}
		})
	}
}

func TestAScheduleIsSavedOrTheErrorSaysWhere(t *testing.T) {
	for _, test := range []struct {
		name    string
		origin  Origin
		folder  bool // of the lists can be written
		nowhere bool
	}{
		{"in the folder", Origin{}, true, false}, {"in a spare folder", Origin{}, false, false},
		{"nowhere", Origin{Schedule: "missing/schedule.json"}, false, true},
	} {
		t.Setenv("RUNTIME_DIRECTORY", t.TempDir())
		dir := t.TempDir()
		if !test.folder {
			dir = unwritable(t).dir
		}
		store, _ := OpenStore(dir, test.origin)
		err := saveNew(store)
		if (err == nil) != test.folder || err != nil && strings.Contains(err.Error(), "nor can it be saved elsewhere") != test.nowhere {
			t.Errorf("%s: got %v", test.name, err)
		}
	}
}

// saveNew saves an empty schedule.
func saveNew(store *Store) error {
	s := newSchedule(store)
	_, err := s.own()
	return err
}

// An unreadable schedule is set aside by who may write, and left alone by who only looks. Both
// wait for half an hour and say so.
func TestAnUnreadableScheduleIsSetAside(t *testing.T) {
	for name, test := range map[string]struct {
		read  func(store *Store) (*Schedule, error)
		aside bool
	}{
		"start": {NewSchedule, true},
		"look":  {ReadSchedule, false},
		"own": {func(store *Store) (*Schedule, error) {
			s := newSchedule(store)
			s.state.Lists = make(map[string]ListClock)
			err, _ := s.own()
			return s, err
		}, true},
	} {
		inBubble(t, name, func(t *testing.T) {
			store := openStore(t, t.TempDir())
			path := filepath.Join(store.dir, scheduleFile)
			must(t, os.WriteFile(path, []byte("{"), 0o600))
			s, err := test.read(store)
			if !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), "waiting 30m0s before the first request") {
				t.Errorf("got %v", err)
			}
			wantDueIn(t, s, 30*time.Minute)
			if hold := s.FetchHold([]string{se}); hold.Cause != errUnreadable.Error() {
				t.Errorf("held by %q", hold.Cause)
			}
			if _, err := os.Stat(path + damagedSuffix); (err == nil) != test.aside {
				t.Errorf("set aside: %t, want %t", err == nil, test.aside)
			}
		})
	}
}

// Who does not own the folder takes over what the owner has saved, unless that is no news.
func TestWhatAFollowerOfAFolderTakesOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
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
			{"another key", written(scheduleState{Asker: "b"}, time.Now()), false},
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
			if got := s.look(); got != test.news {
				t.Errorf("%s: news: %t, want %t", test.name, got, test.news)
			}
			want := 1
			if test.news {
				want = 2
			}
			if s.state.Fetch.Failures != want || heldSearch(s).Failures != 4 || test.news && s.state.Lists == nil {
				t.Errorf("%s: then %+v", test.name, s.state)
			}
		}
		if newSchedule(nil).look() {
			t.Error("there is news without a folder")
		}
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

// A new key has documents of its own.
func TestAnotherKeyHasOtherDocuments(t *testing.T) {
	store := openStore(t, t.TempDir())
	v := &keyedView{view: &view{medium: newMedium()}}
	store.Share(v)
	s, err := NewSchedule(store)
	must(t, err)
	s.fetches.seen[inShared].raw, s.searches.seen[inShared].raw = []byte("x"), []byte("x")
	asker := s.askerNow()
	must(t, s.Rekey("new", func() {}))
	if v.key != "new" || s.asker != "new" || s.state.Asker != "new" || s.askerNow() == asker {
		t.Errorf("the shared store has the key %q, the schedule %q and %q", v.key, s.asker, s.state.Asker)
	}
	if old := []sight{s.fetches.seen[inShared], s.searches.seen[inShared]}; old[0].raw != nil || old[1].raw != nil {
		t.Errorf("documents of the old key stay: %q", old)
	}
}

type keyedView struct {
	*view
	key string
}

func (v *keyedView) Rekey(key string) { v.key = key }
