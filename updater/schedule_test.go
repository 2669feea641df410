package updater

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

const se = "se-4b"

var errTest = errors.New("no answer in this test")

// ownedSchedule returns the schedule of a folder as one that may write it.
func ownedSchedule(t *testing.T, dir string) *Schedule {
	t.Helper()
	return ownedBy(t, dir, Origin{Name: testOrigin})
}

func ownedBy(t *testing.T, dir string, origin Origin) *Schedule {
	t.Helper()
	s := newScheduleOf(t, openStoreBy(t, dir, origin))
	must(t, errors.Join(s.own()))
	return s
}

// heldSearch returns the clock of searches, which a save that is under way may change.
func heldSearch(s *Schedule) Clock {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state.Search.held()
}

var must = testkit.Must

// newScheduleOf returns the schedule of a store, with random numbers that are all zero; nil: it is in memory.
func newScheduleOf(t testing.TB, store *Store) *Schedule {
	t.Helper()
	s, err := NewSchedule(store)
	must(t, err)
	t.Cleanup(s.Flush)
	s.random = func() float64 { return 0 }
	return s
}

// newUpdater returns an Updater whose first contact is at once.
func newUpdater(t testing.TB, source Source, schedule *Schedule, lists ...string) *Updater {
	t.Helper()
	u, err := New(Config{Source: source, Database: new(lookup.Database), Schedule: schedule, Store: schedule.store, Lists: lists,
		FirstContact: func() time.Duration { return 0 }})
	must(t, err)
	return u
}

func begin(t *testing.T, s *Schedule, lists ...string) attempt {
	t.Helper()
	a, err := s.begin(lists, time.Now())
	must(t, err)
	return a
}

// success answers an attempt for se-4b with a minimum wait.
func success(t *testing.T, s *Schedule, a attempt, wait time.Duration) {
	t.Helper()
	now := time.Now()
	must(t, a.answered(now, 0, clocks([]result{{list: List{Name: se}, kind: ListUpdated, wait: wait}}, now, s)))
}

// checkDue fails unless the list is due in a while, after a restart too.
func checkDue(t *testing.T, s *Schedule, in time.Duration) {
	t.Helper()
	want := time.Now().Add(in)
	again := newScheduleOf(t, openStore(t, s.store.dir))
	for name, schedule := range map[string]*Schedule{"": s, "after a restart ": again} {
		due := schedule.due([]string{se})
		if in == 0 && due.Before(want) { // at once
			continue
		}
		testkit.Equal(t, name+"due late by", due.Sub(want), 0)
		if in > 0 && schedule.dueNow([]string{se}, want.Add(-1)) != nil || schedule.dueNow([]string{se}, want) == nil {
			t.Errorf("%snot due at exactly %s", name, want)
		}
	}
}

func inBubble(t *testing.T, name string, test func(t *testing.T)) {
	t.Run(name, func(t *testing.T) { synctest.Test(t, test) })
}

func TestARejectedListBacksOffByItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := ownedSchedule(t, t.TempDir())
		for failures := 1; failures <= 9; failures++ {
			results := []result{{list: List{Name: se}, kind: ListRejected, err: ErrChecksum}, {list: List{Name: "mw-4b"}, kind: ListUnchanged, wait: time.Minute}}
			must(t, begin(t, s, se, "mw-4b").answered(time.Now(), 0, clocks(results, time.Now(), s)))
			checkDue(t, s, Backoff(failures, 0))
			testkit.Equal(t, "the other list is due in", time.Until(s.due([]string{se, "mw-4b"})), time.Minute)
			testkit.Equal(t, "lists that count as rejected", []bool{s.list(se).Rejected, s.list("mw-4b").Rejected}, []bool{true, false})
			time.Sleep(25 * time.Hour)
		}
		results := []result{{list: List{Name: se}, kind: ListRejected, wait: 100 * time.Hour, err: ErrChecksum}}
		must(t, begin(t, s, se).answered(time.Now(), 0, clocks(results, time.Now(), s)))
		checkDue(t, s, 100*time.Hour)
		time.Sleep(100 * time.Hour)
		success(t, s, begin(t, s, se), time.Minute)
		c := s.list(se)
		testkit.Equal(t, "after a success", []any{c.Rejected, c.Failures, time.Since(c.Updated)}, []any{false, 0, time.Duration(0)})
	})
}

func TestFloorsWhereTheServerGivesNoWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now := time.Now()
		var c ListClock
		for i := range 40 {
			c = c.next(now, 0, true)
			want := now
			if i >= 32 {
				want = now.Add(time.Minute)
			}
			testkit.Equal(t, fmt.Sprintf("fetch %d at once is followed at", i+1), c.NotBefore, want)
		}
		for wait, want := range map[time.Duration]time.Duration{
			0: 30 * time.Minute, 1: time.Second, time.Hour: time.Hour, math.MaxInt64: math.MaxInt64,
		} {
			n := c.next(now, wait, wait >= time.Hour) // whether it has changed
			testkit.Equal(t, fmt.Sprint("after a wait of ", wait), []any{n.NotBefore.Sub(now), n.AtOnce, n.Wait}, []any{want, 0, wait})
		}
	})
}

func writeSchedule(s *Store, raw []byte) error {
	return exchange(folder{s, false}, s.origin.scheduleFile(), func([]byte, error) ([]byte, error) { return append([]byte{}, raw...), nil })
}

func read(t *testing.T, s *Schedule) []byte {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(s.store.dir, s.store.origin.scheduleFile()))
	must(t, err)
	return raw
}

// searched notes the end of a search, as of version 5, that was sent then.
func searched(s *Schedule, sent time.Time, err error) (saveErr error) {
	p := &pacedSearcher{schedule: s, rules: SearchRules{Backoff: Strikes}, report: func(e Event) { saveErr = e.Err }}
	p.searched(sentSearch{at: sent, attempt: s.searchClock().Attempt}, time.Now(), 0, err)
	s.Flush()
	return saveErr
}

func TestOnlyTheOwnerWritesTheSchedule(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		first := ownedSchedule(t, dir)
		success(t, first, begin(t, first, se), time.Hour)
		before := string(read(t, first))
		second := newScheduleOf(t, openStore(t, dir))
		success(t, second, begin(t, second, se), time.Minute)
		testkit.Equal(t, "the file, while another one has the lock", string(read(t, first)), before)
		first.disown()
		time.Sleep(time.Minute)
		must(t, errors.Join(second.own()))
		checkDue(t, second, 59*time.Minute) // what the first one wrote holds
		second.disown()
		looked, err := ReadSchedule(second.store) // and then fetches
		must(t, errors.Join(err, errors.Join(looked.own())))
		success(t, looked, begin(t, looked, se), 6*time.Hour)
		checkDue(t, looked, 6*time.Hour)
	})
}

// Also where nothing is fetched: without lists, and while another process fetches them.
func TestASuspendCountsAsTimePassed(t *testing.T) {
	for name, lists := range map[string][]string{"lists": {se}, "no lists": nil, "another process has the lock": {se}} {
		inBubble(t, name, func(t *testing.T) {
			store := openStore(t, t.TempDir())
			if strings.HasPrefix(name, "another") {
				other := openStore(t, store.dir)
				locked, err := other.tryLock()
				must(t, err)
				testkit.Equal(t, "another process has the lock", locked, true)
				defer other.unlock()
			}
			s := newScheduleOf(t, store)
			success(t, s, begin(t, s, se), 6*time.Hour)
			s.changeSearch(func(a *asked) { a.Clock = a.failed(time.Now(), 6*time.Hour, 0) }, noError(t))
			u := newUpdater(t, failingSource(errTest), s, lists...)
			suspended, end := running(t, u)
			time.Sleep(time.Hour - time.Millisecond) // while it sleeps
			suspended.Store(int64(4 * time.Hour))
			time.Sleep(30 * time.Minute)
			for what, until := range map[string]time.Time{"searches": s.SearchHold().Until, "the list": s.due([]string{se})} {
				testkit.Equal(t, what+" wait for", time.Until(until).Round(time.Minute), 30*time.Minute)
			}
			end()
		})
	}
	// The updater notices a suspend up to a minute after it. A search may have failed by then.
	inBubble(t, "a wait that begins after it", func(t *testing.T) {
		s := newScheduleOf(t, nil)
		suspended, end := running(t, newUpdater(t, failingSource(errTest), s))
		time.Sleep(10 * time.Second)
		suspended.Store(int64(8 * time.Hour))
		time.Sleep(5 * time.Second)
		s.changeSearch(func(a *asked) { a.Clock = a.failed(time.Now(), 20*time.Minute, 0) }, noError(t))
		time.Sleep(2 * time.Minute)
		testkit.Equal(t, "searches wait for", time.Until(s.SearchHold().Until), 18*time.Minute)
		end()
	})
}

// A clock that is set, as by NTP after the boot of a router, is no suspend where the time since boot is known.
func TestAClockThatIsSetIsNoSuspend(t *testing.T) {
	const minute, day = time.Minute, 24 * time.Hour
	for _, test := range []struct {
		name                   string
		slept, wall, suspended time.Duration
		knows, want            bool
	}{
		{"a sleep", minute, minute, 0, true, false},
		{"a suspend", minute, minute + time.Hour, time.Hour, true, true},
		{"a short one", minute, minute + 10*time.Second, 10 * time.Second, true, false},
		{"the clock is set forward", minute, 10 * day, 0, true, false},
		{"the clock is set back in a suspend", minute, -day, time.Hour, true, true},
		{"a sleep that ends late", time.Hour, time.Hour, 0, true, true},
		{"without that clock, a sleep", minute, minute, 0, false, false},
		{"without that clock, a suspend", minute, minute + time.Hour, -minute, false, true},
		{"without that clock, set back", minute, -day, -minute, false, false},
	} {
		testkit.Equal(t, test.name, wokeUp(test.slept, test.wall, test.suspended, minute, test.knows), test.want)
	}
}

// running runs an Updater on a machine that has been suspended for a time, in nanoseconds, until end.
func running(t *testing.T, u *Updater) (suspended *atomic.Int64, end func()) {
	begun, suspended := time.Now(), new(atomic.Int64)
	u.sinceBoot = func() time.Duration { return time.Since(begun) + time.Duration(suspended.Load()) }
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- u.Run(ctx) }()
	return suspended, func() { cancel(); <-ended }
}

func wantDueIn(t *testing.T, s *Schedule, want time.Duration) {
	t.Helper()
	testkit.Equal(t, "due in", time.Until(s.due([]string{se})), want)
}
