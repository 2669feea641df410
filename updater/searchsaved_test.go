package updater

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/files"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

// searchesAfter returns a schedule of a folder, and what a process that starts then knows of
// searches.
func searchesAfter(t *testing.T, dir string) (s *Schedule, saved func() Clock) {
	t.Helper()
	s, err := NewSchedule(openStore(t, dir))
	must(t, err)
	t.Cleanup(s.Flush)
	return s, func() Clock {
		t.Helper()
		s.Flush()
		again, err := NewSchedule(openStore(t, dir))
		must(t, err)
		return heldSearch(again)
	}
}

func noError(t *testing.T) func(error) { return func(err error) { t.Error(err) } }

// fail is one more failure, after which searches wait until then.
func fail(until time.Time) func(*asked) {
	return func(c *asked) { c.Failures, c.NotBefore = c.Failures+1, until }
}

// The later attempt counts, and the later wait: in memory and in the file.
func TestAChangeLeavesTheWaitOfAnotherProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		first, _ := searchesAfter(t, dir)
		second, saved := searchesAfter(t, dir)
		until := time.Now().Add(time.Hour)
		first.changeSearch(fail(until), noError(t))
		first.Flush()
		for range 2 {
			second.changeSearch(func(c *asked) { c.Failures++ }, noError(t))
		}
		for name, got := range map[string]Clock{"saved": saved(), "in memory": heldSearch(second)} {
			if got.Failures != 2 || !got.NotBefore.Equal(until) {
				t.Errorf("%s: %+v, want 2 failures, and to wait until %s", name, got, until)
			}
		}
		if now := (folder{second.store, false}).stat("searches.json"); !files.Same(second.searches.seen[inFolder].file, now) {
			t.Error("its own file is new to it")
		}
	})
}

// While the disk works, the key may change, and there may be more changes.
func TestWhatHappensDuringAWriteOfSearches(t *testing.T) {
	for name, test := range map[string]struct {
		do            func(t *testing.T, s *Schedule)
		memory, saved int // failures, of the asker at the end
	}{
		"nothing":         {func(*testing.T, *Schedule) {}, 1, 1},
		"another failure": {func(t *testing.T, s *Schedule) { s.changeSearch(func(c *asked) { c.Failures++ }, noError(t)) }, 2, 2},
		"another key":     {func(t *testing.T, s *Schedule) { must(t, s.Rekey("new", func() {})) }, 0, 1},
	} {
		inBubble(t, name, func(t *testing.T) {
			s, saved := searchesAfter(t, t.TempDir())
			must(t, s.Rekey("old", func() {}))
			sync, done := s.store.disk.SyncFile, false
			s.store.disk.SyncFile = func(f *os.File) error {
				if !done {
					done = true
					test.do(t, s)
				}
				return sync(f)
			}
			s.changeSearch(fail(time.Now().Add(time.Hour)), noError(t))
			if got := saved().Failures; got != test.saved || s.state.Search.Failures != test.memory {
				t.Errorf("%d failures are saved, %d in memory, want %d and %d", got, s.state.Search.Failures, test.saved, test.memory)
			}
			if s.searches.dirty || s.searches.saving != nil {
				t.Error("it is not over")
			}
		})
	}
}

// A change that comes between the write of the document and that of the file reaches both.
func TestAChangeBetweenDocumentAndFileReachesBoth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := openStore(t, t.TempDir())
		v := &view{medium: newMedium()}
		late := &lateView{view: v}
		store.Share(late)
		s, err := NewSchedule(store)
		must(t, err)
		more := func(c *asked) { c.Failures++ }
		late.then = func() { s.changeSearch(more, noError(t)) }
		s.changeSearch(more, noError(t))
		s.Flush()
		file, _ := savedClocks(t, store, "searches.json")
		raw, _ := v.Read("searches.json")
		document, err := parseSchedule(raw, time.Now(), moment{Saved: v.Now()})
		must(t, err)
		if file.Search.Failures != 2 || document.Search.Failures != 2 || s.state.Search.Failures != 2 {
			t.Errorf("%d failures in the file, %d in the document, %d in memory, want 2", file.Search.Failures, document.Search.Failures, s.state.Search.Failures)
		}
	})
}

// lateView does something once, after a Swap.
type lateView struct {
	*view
	then func()
}

func (v *lateView) Swap(name string, old, next []byte) error {
	err := v.view.Swap(name, old, next)
	if then := v.then; then != nil {
		v.then = nil
		then()
	}
	return err
}

// A damaged file may have had a wait: searches wait for a quarter of an hour, or longer if they
// do so anyway.
func TestADamagedFileOfSearchesShortensNoWait(t *testing.T) {
	for _, wait := range []time.Duration{0, backoffUnit - 1, backoffUnit, backoffUnit + 1, time.Hour} {
		inBubble(t, wait.String(), func(t *testing.T) {
			s, _ := searchesAfter(t, t.TempDir())
			must(t, os.WriteFile(filepath.Join(s.store.dir, "searches.json"), []byte("{"), 0o600))
			now := time.Now()
			s.state.Search.Clock = Clock{NotBefore: now.Add(wait), Failures: 7}
			err := s.load(false)
			if !errors.Is(err, errUnreadableSearches) || !errors.Is(err, ErrDamaged) {
				t.Errorf("got %v", err)
			}
			if got, want := s.state.Search.NotBefore.Sub(now), max(wait, backoffUnit); got != want {
				t.Errorf("a wait of %s became one of %s, want %s", wait, got, want)
			}
			if kept := s.state.Search.Failures == 7; kept != (wait >= backoffUnit) {
				t.Errorf("a wait of %s: the clock is kept: %t", wait, kept)
			}
		})
	}
}

// A folder, or a link to nothing, tells no more of a wait than a damaged file.
func TestWhatIsNoFileOfSearchesCountsAsADamagedOne(t *testing.T) {
	for name, put := range map[string]func(path string) error{
		"a folder":          func(path string) error { return os.Mkdir(path, 0o700) },
		"a link to nothing": func(path string) error { return os.Symlink(path+".none", path) },
		"a file without end": func(path string) error {
			return errors.Join(os.WriteFile(path, nil, 0o600), os.Truncate(path, maxSmall+1))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("RUNTIME_DIRECTORY", t.TempDir())
			store := openStore(t, t.TempDir())
			must(t, put(filepath.Join(store.dir, "searches.json")))
			s, err := NewSchedule(store)
			if !errors.Is(err, errUnreadableSearches) {
				t.Errorf("got %v", err)
			}
			s.Flush()
			if hold := s.SearchHold(); !hold.Active(time.Now().Add(backoffUnit - time.Minute)) {
				t.Errorf("searches wait until %v only", hold.Until)
			}
		})
	}
}

// Of another asker only the clock of searches is in the file.
func TestAFileOfSearchesKeepsOtherClocks(t *testing.T) {
	until := time.Now().Add(time.Hour)
	for _, asker := range []string{"", "a"} {
		s := newSchedule(nil)
		s.asker, s.state.Asker = asker, asker
		s.state.Search.Failures = 9
		if asker != "" {
			s.state.Others = map[string]clockSet{"b": {Fetch: asked{Clock: Clock{NotBefore: until, Failures: 1}}, Search: asked{Clock: Clock{Failures: 1}}}}
		}
		saved := scheduleState{Asker: "a", clockSet: clockSet{Search: asked{Clock: Clock{Failures: 2, Attempt: 1}}}, Others: map[string]clockSet{"b": {Search: asked{Clock: Clock{NotBefore: until, Failures: 3, Attempt: 2}}}}}
		s.meet(saved)
		other, want := s.state.Others["b"], 0
		if asker != "" {
			want = 1
		}
		if s.state.Search.Failures != 2 || other.Search.Failures != 3 || other.Fetch.Failures != want {
			t.Errorf("asker %q: %+v, and of another one %+v", asker, s.state.Search, other)
		}
	}
	s := newSchedule(nil)
	s.state.Asker, s.state.Search.Failures = "a", 9
	s.meet(scheduleState{Asker: "b", clockSet: clockSet{Search: asked{Clock: Clock{Failures: 12}}}})
	if s.state.Search.Failures != 9 {
		t.Error("the clock of another asker is taken over")
	}
}

// Only a wait that lasts, and ends after that of the file, is worth a write.
func TestAClockIsKeptIfItEndsLater(t *testing.T) {
	for _, test := range []struct {
		name       string
		held, file time.Duration // to wait; 0: no file
		want       time.Duration
	}{
		{"over", -time.Second, 0, 0}, {"over now", 0, 0, 0}, {"no file", time.Hour, 0, time.Hour}, {"longer", time.Hour, time.Minute, time.Hour},
		{"shorter", time.Minute, time.Hour, time.Hour}, {"as long", time.Hour, time.Hour, time.Hour},
	} {
		inBubble(t, test.name, func(t *testing.T) {
			dir := t.TempDir()
			s, saved := searchesAfter(t, dir)
			now := time.Now()
			if test.file > 0 {
				other, flush := searchesAfter(t, dir)
				other.changeSearch(fail(now.Add(test.file)), noError(t))
				flush()
			}
			s.state.Search.Clock = Clock{NotBefore: now.Add(test.held), Failures: 5}
			s.keepSearches()
			got := saved()
			if test.want == 0 && !got.NotBefore.IsZero() || test.want > 0 && got.NotBefore.Sub(now) != test.want {
				t.Errorf("%+v is saved at %s, want to wait %s", got, now, test.want)
			}
		})
	}
}

// Which successes change the clock, and which searches came together.
func TestSearchesThatChangeTheClock(t *testing.T) {
	now := time.Now()
	for _, test := range []struct {
		failures     int
		wait         time.Duration
		failed, sent time.Time
		waits        bool // a success of the search changes the clock
		together     bool
		mayWait      bool
	}{
		{0, 0, time.Time{}, now, false, false, false},
		{1, 0, time.Time{}, now, true, false, true}, // it failed in another process
		{1, 0, now, now, true, false, true},
		{1, 0, now, now.Add(-1), false, true, true},
		{1, 0, now, now.Add(1), true, false, true},
		{0, 0, now, now.Add(-1), false, true, false},
		{0, 0, now, now.Add(1), false, false, false},
		{0, 1, time.Time{}, now, true, false, true},
		{1, time.Hour, now, now.Add(-1), true, true, true},
	} {
		s := newSchedule(nil)
		s.state.Search.Clock = Clock{Failures: test.failures, Wait: test.wait}
		s.failed = test.failed
		if got := s.searchWaits(test.sent); got != test.waits {
			t.Errorf("%+v: a success changes the clock: %t", test, got)
		}
		if got := s.searchClock().mayWait(); got != test.mayWait {
			t.Errorf("%+v: the next answer may have a wait: %t", test, got)
		}
		for _, err := range []error{nil, errTest} {
			s.failed = test.failed
			want := test.failed
			if err != nil && !test.together {
				want = now.Add(time.Hour)
			}
			if got := s.failedTogether(test.sent, now.Add(time.Hour), err); got != test.together || !s.failed.Equal(want) {
				t.Errorf("%+v, %v: together: %t, failed last at %s, want %s", test, err, got, s.failed, want)
			}
		}
	}
}

// A search waits for the longer wait of its own clock and that of the schedule before.
func TestASearchWaitsForTheScheduleBefore(t *testing.T) {
	now := time.Now()
	for _, own := range []time.Duration{time.Minute, time.Hour} {
		for _, last := range []time.Duration{2 * time.Minute, time.Hour, 2 * time.Hour} {
			before, s := newSchedule(nil), newSchedule(nil)
			before.state.Search.Clock = Clock{NotBefore: now.Add(last), Failures: 2}
			s.hand.follow(before)
			s.state.Search.Clock = Clock{NotBefore: now.Add(own), Failures: 1}
			want := max(own, last)
			if got := s.searchWait(now); got != want {
				t.Errorf("%s and %s before: a wait of %s", own, last, got)
			}
			hold := s.SearchHold()
			if got := hold.Until.Sub(now); got != want || (hold.Failures == 2) != (last > own) {
				t.Errorf("%s and %s before: held for %s: %s", own, last, got, hold)
			}
		}
	}
}

// keyedSearcher is a server that notes with which key it was asked.
type keyedSearcher struct {
	key  string // in use
	sent []string
}

func (k *keyedSearcher) Keep(ctx context.Context) context.Context {
	return context.WithValue(ctx, k, k.key)
}

func (k *keyedSearcher) Search(ctx context.Context, _ []lookup.Prefix) (lookup.Answer, error) {
	k.sent = append(k.sent, ctx.Value(k).(string))
	return lookup.Answer{}, nil
}

// Between a look at the clock and the request the key may change: the clock was that of the old one.
func TestASearchCarriesTheKeyWhoseClockAllowedIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := searchesAfter(t, t.TempDir())
		server := &keyedSearcher{key: "old"}
		replace := func(key string) { must(t, s.Rekey(key, func() { server.key = key })) }
		replace("new")
		s.changeSearch(func(c *asked) { c.Clock = c.failed(time.Now(), time.Hour, 0) }, noError(t))
		s.Flush()
		replace("old")
		p := Pace(server, s, SearchRules{Backoff: Strict, Published: true, FirstContact: func() time.Duration { return 0 }}, func(Event) {})
		sync, done := s.store.disk.SyncFile, false
		s.store.disk.SyncFile = func(f *os.File) error {
			if !done { // the search is noted, and not sent
				done = true
				replace("new")
			}
			return sync(f)
		}
		_, err := p.Search(t.Context(), []lookup.Prefix{"pref"})
		must(t, err)
		if !slices.Equal(server.sent, []string{"old"}) {
			t.Errorf("sent with %q", server.sent)
		}
		if _, err := p.Search(t.Context(), []lookup.Prefix{"next"}); !errors.Is(err, lookup.ErrBackoff) {
			t.Errorf("the new key is in back-off, got %v and %q", err, server.sent)
		}
		s.Flush()
	})
}
