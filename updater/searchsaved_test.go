package updater

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

// savedSearch returns what a process that starts now knows of searches.
func savedSearch(t *testing.T, dir string) Clock {
	t.Helper()
	return heldSearch(newScheduleOf(t, openStore(t, dir)))
}

func noError(t *testing.T) func(error) { return func(err error) { t.Error(err) } }

// fail is one more failure, after which searches wait until then.
func fail(until time.Time) func(*asked) {
	return func(c *asked) { c.Failures, c.NotBefore = c.Failures+1, until }
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
			s := newScheduleOf(t, openStore(t, t.TempDir()))
			must(t, s.Rekey("old", func() {}))
			onSync(s.store, func() { test.do(t, s) })
			s.changeSearch(fail(time.Now().Add(time.Hour)), noError(t))
			s.Flush()
			testkit.Equal(t, "failures that are saved", savedSearch(t, s.store.dir).Failures, test.saved)
			testkit.Equal(t, "failures in memory", s.state.Search.Failures, test.memory)
			testkit.Equal(t, "it is over", !s.searches.dirty && s.searches.saving == nil, true)
			news, lacks, err := s.searches.look(s.searchMedia()[0], nil)
			testkit.Equal(t, "its own file is news to it, or lacks something", []any{news, lacks, err}, []any{false, false, nil})
		})
	}
	// Another process may write as soon as the file is replaced.
	inBubble(t, "another process writes right after it", func(t *testing.T) {
		dir := t.TempDir()
		s, other := newScheduleOf(t, openStore(t, dir)), newScheduleOf(t, openStore(t, dir))
		after := sync.OnceFunc(func() {
			other.changeSearch(fail(time.Now().Add(time.Hour)), noError(t)) // it gives up waiting for the lock, which s has
			other.Flush()
		})
		s.store.disk.SyncDir = func(string) error { after(); return nil }
		s.changeSearch(fail(time.Now().Add(time.Minute)), noError(t))
		s.Flush()
		s.lookAtSearches()
		testkit.Between(t, "searches wait for, as another process was told", s.searchWait(time.Now()), 50*time.Minute, time.Hour)
	})
	// A change that comes between writing the document and writing the file reaches both.
	inBubble(t, "a change between document and file", func(t *testing.T) {
		store := openStore(t, t.TempDir())
		v := &view{medium: newMedium()}
		late := &lateView{view: v}
		store.Share(late)
		s := newScheduleOf(t, store)
		more := func(c *asked) { c.Failures++ }
		late.then = func() { s.changeSearch(more, noError(t)) }
		s.changeSearch(more, noError(t))
		s.Flush()
		file, _ := savedClocks(t, store, "searches.json")
		raw, _ := v.Read("searches.json")
		document, err := parseSchedule(raw, time.Now(), moment{Saved: time.Now()})
		must(t, err)
		for where, state := range map[string]scheduleState{"in the file": file, "in the document": document, "in memory": s.state} {
			testkit.Equal(t, "failures "+where, state.Search.Failures, 2)
		}
	})
	// A folder changes hands while a back-off of searches is on its way to the disk.
	inBubble(t, "a reload", func(t *testing.T) {
		s, write := slowSearches(t, t.TempDir())
		now := time.Now()
		s.mu.Lock()
		s.state.Others = map[string]clockSet{"other": {Search: asked{Clock: Clock{NotBefore: now.Add(2 * time.Hour)}}}}
		s.mu.Unlock()
		s.changeSearch(func(c *asked) { c.Clock = c.failed(now, time.Hour, 0) }, noError(t))
		synctest.Wait()
		must(t, s.load(true))
		testkit.Equal(t, "searches pause for", s.SearchHold().Until.Sub(now), time.Hour)
		s.mu.Lock()
		other := s.state.Others["other"].Search.NotBefore
		s.mu.Unlock()
		testkit.Equal(t, "searches with another key pause for", other.Sub(now), 2*time.Hour)
		close(write)
		s.Flush()
		testkit.Equal(t, "after a restart searches pause for", newScheduleOf(t, s.store).SearchHold().Until.Sub(now), time.Hour)
	})
}

// onSync calls do when a store syncs its next file.
func onSync(s *Store, do func()) {
	sync, once := s.disk.SyncFile, sync.OnceFunc(do)
	s.disk.SyncFile = func(f *os.File) error { once(); return sync(f) }
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

// A damaged file may have had a wait: searches wait for a quarter of an hour, or longer if they do so anyway.
func TestADamagedFileOfSearchesShortensNoWait(t *testing.T) {
	for _, wait := range []time.Duration{0, backoffUnit - 1, backoffUnit, backoffUnit + 1, time.Hour} {
		inBubble(t, wait.String(), func(t *testing.T) {
			s := newScheduleOf(t, openStore(t, t.TempDir()))
			must(t, os.WriteFile(filepath.Join(s.store.dir, "searches.json"), []byte("{"), 0o600))
			now := time.Now()
			s.state.Search.Clock = Clock{NotBefore: now.Add(wait), Failures: 7}
			err := s.load(false)
			testkit.Is(t, "the error", err, errUnreadableSearches)
			testkit.Is(t, "the error", err, ErrDamaged)
			testkit.Equal(t, "the wait becomes", s.state.Search.NotBefore.Sub(now), max(wait, backoffUnit))
			testkit.Equal(t, "the clock is kept", s.state.Search.Failures == 7, wait >= backoffUnit)
		})
	}
}

// A search waits for its own clock or the previous schedule's, whichever ends later.
func TestASearchWaitsForTheScheduleBefore(t *testing.T) {
	now := time.Now()
	for _, own := range []time.Duration{time.Minute, time.Hour} {
		for _, last := range []time.Duration{2 * time.Minute, time.Hour, 2 * time.Hour} {
			before, s := newSchedule(nil), newSchedule(nil)
			before.state.Search.Clock = Clock{NotBefore: now.Add(last), Failures: 2}
			s.hand.follow(before)
			s.state.Search.Clock = Clock{NotBefore: now.Add(own), Failures: 1}
			hold, what := s.SearchHold(), fmt.Sprintf("%s and %s before: ", own, last)
			testkit.Equal(t, what+"a wait of", s.searchWait(now), max(own, last))
			testkit.Equal(t, what+"held for", hold.Until.Sub(now), max(own, last))
			testkit.Equal(t, what+"by that one", hold.Failures == 2, last > own)
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

// Between a look at the clock and the request the key may change: the clock was the old key's.
func TestASearchCarriesTheKeyWhoseClockAllowedIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScheduleOf(t, openStore(t, t.TempDir()))
		server := &keyedSearcher{key: "old"}
		replace := func(key string) { must(t, s.Rekey(key, func() { server.key = key })) }
		replace("new")
		s.changeSearch(func(c *asked) { c.Clock = c.failed(time.Now(), time.Hour, 0) }, noError(t))
		s.Flush()
		replace("old")
		p := Pace(server, s, SearchRules{Backoff: Strict, Published: true, FirstContact: func() time.Duration { return 0 }}, func(Event) {})
		onSync(s.store, func() { replace("new") }) // the search is noted, and not sent
		_, err := p.Search(t.Context(), []lookup.Prefix{"pref"})
		must(t, err)
		testkit.Equal(t, "sent with", server.sent, []string{"old"})
		testkit.Is(t, "the new key, which is in back-off", searchOnce(t, p), lookup.ErrBackoff)
	})
}

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
		s, other := newScheduleOf(t, openStore(t, dir)), newScheduleOf(t, openStore(t, dir))
		other.changeSearch(fail(time.Now().Add(time.Hour)), noError(t))
		other.Flush()
		s.searches.looking = make(chan struct{})
		s.lookAtSearches()
		testkit.Equal(t, "seen, while another one looks", s.state.Search.Failures, 0)
		s.searches.looking, s.searches.late = nil, true
		s.lookAtSearches()
		testkit.Equal(t, "seen, while a write hangs", s.state.Search.Failures, 0)
		s.searches.late = false
		reads := 0
		onRead(s.store, func(int) {
			reads++
			s.mu.Lock()
			defer s.mu.Unlock()
			testkit.Equal(t, "while it looks, it is said so", s.searches.looking != nil, true)
		})
		for range 3 {
			s.lookAtSearches()
			testkit.Equal(t, "seen, and nobody looks any more", []any{s.state.Search.Failures, s.searches.looking == nil}, []any{1, true})
		}
		testkit.Equal(t, "reads of a file that does not change", reads, 1)
	})
}

// A folder, or a link to nothing, tells no more of a wait than a damaged file. No start begins the wait that follows once more.
func TestADamagedFileOfSearchesCostsOneWait(t *testing.T) {
	for name, test := range map[string]struct {
		put  func(path string) error
		left time.Duration // 10 minutes later, after a restart
	}{
		"a damaged file":    {func(path string) error { return os.WriteFile(path, []byte("{"), 0o600) }, 5 * time.Minute},
		"a link to nothing": {func(path string) error { return os.Symlink(path+".none", path) }, 5 * time.Minute},
		"a file without end": {func(path string) error {
			return errors.Join(os.WriteFile(path, nil, 0o600), os.Truncate(path, maxSmall+1))
		}, 5 * time.Minute},
		"a folder, which stays in the way": {func(path string) error { return os.Mkdir(path, 0o700) }, 15 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("RUNTIME_DIRECTORY", t.TempDir())
			dir := t.TempDir()
			synctest.Test(t, func(t *testing.T) {
				must(t, test.put(filepath.Join(dir, "searches.json")))
				s, err := NewSchedule(openStore(t, dir))
				testkit.Is(t, "a new schedule", err, errUnreadableSearches)
				s.Flush()
				time.Sleep(10 * time.Minute)
				again, _ := NewSchedule(openStore(t, dir))
				again.Flush()
				testkit.Equal(t, "left after 10 minutes and a restart", again.searchWait(time.Now()), test.left)
			})
		})
	}
	// A file that cannot be opened now, as when there are no file descriptors left, may have a wait. It is not damaged.
	inBubble(t, "one that cannot be read now", func(t *testing.T) {
		s := newSchedule(openStore(t, t.TempDir()))
		searches, fetches := filepath.Join(s.store.dir, "searches.json"), filepath.Join(s.store.dir, scheduleFile)
		must(t, errors.Join(os.Symlink(searches, searches), os.Symlink(fetches, fetches))) // loops
		for range 2 {
			testkit.WantError(t, s.load(true))
			_, _, err := s.searches.look(s.store.folders("searches.json")[0], nil)
			testkit.WantError(t, err)
		}
		testkit.Equal(t, "files", namesIn(t, s.store.dir), []string{scheduleFile, "searches.json"})
	})
}

// slowSearches returns a schedule whose file of searches is not written before write is closed.
func slowSearches(t *testing.T, dir string) (s *Schedule, write chan struct{}) {
	s, write = ownedSchedule(t, dir), make(chan struct{})
	s.store.disk.SyncFile = func(f *os.File) error {
		if strings.Contains(f.Name(), "search") {
			<-write
		}
		return nil
	}
	return s, write
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
				other := newScheduleOf(t, openStore(t, dir))
				other.changeSearch(func(c *asked) { c.Clock = c.failed(now, test.other, 0) }, noError(t))
				other.Flush()
			}
			s.changeSearch(func(c *asked) { c.Failures++ }, noError(t))
			synctest.Wait()
			last := newSchedule(nil)
			last.state.Search.NotBefore = now.Add(2 * time.Hour)
			s.meetLast(last)
			close(write)
			s.Flush()
			testkit.Equal(t, "searches pause for", s.SearchHold().Until.Sub(now), test.want)
		})
	}
}
