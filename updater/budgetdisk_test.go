package updater

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
)

func TestADamagedCountSpendsNothingBeforeTheNextDay(t *testing.T) {
	for name, raw := range map[string]string{"empty": "", "cut": `{"day":"2000-01-01","spe`} {
		inCount(t, name, func(t *testing.T, dir, file string) {
			testkit.Write(t, dir, "budget.json", raw)
			another := testkit.Write(t, t.TempDir(), "of another", "x")
			must(t, os.Symlink(another, file+damagedSuffix))
			for range 3 { // restarts
				l, err := NewLedger(quick(openStore(t, dir)))
				if _, statErr := os.Stat(file + damagedSuffix); statErr != nil && !errors.Is(err, ErrDamaged) {
					t.Error(err)
				}
				keep := l.count.damaged
				l.count.damaged = func(p place, err error) (judge func() error) {
					l.mu.Lock() // for ever, if the caller has it: nobody may wait for the disk with it
					defer l.mu.Unlock()
					return keep(p, err)
				}
				s, now := spenderOf(l, 10), time.Now()
				testkit.Equal(t, "searches, and those left", []int{s.drain(t), l.Remaining(10, now)}, []int{0, 0})
				testkit.Equal(t, "they are held", l.Hold(10, now).Active(now), true)
				testkit.Equal(t, "told what NewLedger returned, and that it is spent", []int{s.times(LoadFailed), s.times(BudgetSpent)}, []int{0, 1})
			}
			testkit.Equal(t, "kept", testkit.Read(t, file+damagedSuffix), raw)
			testkit.Equal(t, "where a link in the place of the copy led to", testkit.Read(t, another), "x")
			time.Sleep(24 * time.Hour)
			testkit.Equal(t, "the next day allows", newSpender(t, dir, 10).drain(t), 10)
		})
	}
	inCount(t, "and the disk hangs", func(t *testing.T, dir, _ string) {
		testkit.Write(t, dir, "budget.json", "")
		store := quick(openStore(t, dir))
		defer hang(store)() // so that nothing writes while the directory is removed
		l, err := NewLedger(store)
		testkit.WantError(t, err)
		testkit.Equal(t, "searches that are left", l.Remaining(10, time.Now()), 0)
		testkit.Equal(t, "searches", spenderOf(l, 10).drain(t), 0)
		look, err := ReadLedger(store)
		testkit.WantError(t, err)
		testkit.Equal(t, "who looks sees them held", look.Hold(10, time.Now()).Active(time.Now()), true)
	})
	inCount(t, "while it runs", func(t *testing.T, dir, _ string) {
		s := newSpender(t, dir, 10)
		must(t, s.search(t))
		testkit.Write(t, dir, "budget.json", "")
		testkit.Equal(t, "searches", s.drain(t), 0)
		if events := s.told(LoadFailed); len(events) != 1 || events[0].List != BudgetFile || !errors.Is(events[0].Err, ErrDamaged) {
			t.Errorf("told %+v", events)
		}
	})
	inCount(t, "a link to nothing", func(t *testing.T, dir, file string) {
		must(t, os.Symlink(filepath.Join(dir, "none"), file))
		testkit.Equal(t, "searches", ofUnknownCount(t, dir).drain(t), 0)
	})
	for name, started := range map[string]bool{"not to be read for a moment": true, "not to be read at the start": false} {
		inCount(t, name, func(t *testing.T, dir, file string) {
			s, left := newSpender(t, dir, 10), 9
			must(t, s.search(t))
			must(t, errors.Join(s.ledger.Flush(), os.Rename(file, file+".away"), os.Symlink(file, file))) // a loop
			if !started {
				s, left = ofUnknownCount(t, dir), 0
			}
			testkit.Equal(t, "searches", s.drain(t), left)
			must(t, os.Rename(file+".away", file))
			time.Sleep(lookAgainAfter)
			testkit.Equal(t, "searches of a file that can be read again", s.drain(t), 9-left)
			synctest.Wait() // for the write
			testkit.Equal(t, "spent by the file", saved(t, dir), 10)
		})
	}
	inCount(t, "it is from yesterday", func(t *testing.T, dir, file string) {
		testkit.Write(t, dir, "budget.json", "")
		must(t, os.Chtimes(file, time.Time{}, NextDay(time.Now()).AddDate(0, 0, -1).Add(-time.Second)))
		l, err := NewLedger(quick(openStore(t, dir)))
		testkit.WantError(t, err)
		testkit.Equal(t, "searches", spenderOf(l, 10).drain(t), 10)
	})
}

// inCount runs a test in a bubble with a folder and the path of its count.
func inCount(t *testing.T, name string, test func(t *testing.T, dir, file string)) {
	inBubble(t, name, func(t *testing.T) {
		dir := t.TempDir()
		test(t, dir, filepath.Join(dir, "budget.json"))
	})
}

// ofUnknownCount returns a process that finds a count which it cannot read.
func ofUnknownCount(t *testing.T, dir string) *spender {
	t.Helper()
	l, err := NewLedger(quick(openStore(t, dir)))
	testkit.Is(t, "a new ledger", err, errUnknownCount)
	return spenderOf(l, 10)
}

// hang lets the disk hang until it answers.
func hang(s *Store) (answers func()) {
	hung := make(chan struct{})
	s.disk.SyncFile = func(*os.File) error { <-hung; return nil }
	return func() { close(hung); synctest.Wait() }
}

func TestSearchesDoNotWaitForAHungDisk(t *testing.T) {
	inCount(t, "until it works", func(t *testing.T, dir, _ string) {
		s := newSpender(t, dir, 10)
		must(t, s.search(t))
		answers := hang(s.ledger.store)
		begun := time.Now()
		must(t, s.search(t))
		testkit.Equal(t, "the first search takes", time.Since(begun), diskPatience)
		begun = time.Now()
		testkit.Equal(t, "more searches", s.drain(t), 8)
		testkit.Equal(t, "they take", time.Since(begun), 0)
		if events := s.told(StoreFailed); len(events) != 1 || events[0].List != BudgetFile {
			t.Errorf("told %+v", events)
		}
		testkit.WantError(t, s.ledger.Flush())
		answers()
		testkit.Equal(t, "told that the disk works again", s.times(Stored), 1)
		must(t, s.ledger.Flush())
		testkit.Equal(t, "spent by the file", saved(t, dir), 10)
	})
	// What was counted in memory is covered by the reservation that the disk saved late.
	inCount(t, "and then a crash", func(t *testing.T, dir, _ string) {
		s := newSpender(t, dir, 10_000)
		answers := hang(s.ledger.store)
		s.spend(t, 20)
		answers()
		s.spend(t, 40)
		testkit.Between(t, "spent after a crash", saved(t, dir), s.sent, 10_000)
	})
	inCount(t, "over midnight", func(t *testing.T, dir, _ string) {
		s := newSpender(t, dir, 10)
		time.Sleep(time.Until(midnightAfter(time.Now())) - 3*time.Second)
		answers := hang(s.ledger.store)
		must(t, s.search(t))
		time.Sleep(5 * time.Second)
		s.spend(t, 6)
		answers()
		testkit.Equal(t, "more searches of the new day", s.drain(t), 4)
		must(t, s.ledger.Flush())
		testkit.Equal(t, "spent by the file", saved(t, dir), 10)
	})
	inCount(t, "nor for another process that keeps the lock", func(t *testing.T, dir, _ string) {
		unlock, err := openStore(t, dir).lockDocument("budget.json")
		must(t, err)
		s := newSpender(t, dir, 10)
		testkit.Equal(t, "searches", s.drain(t), 10)
		synctest.Wait() // for the report
		testkit.Equal(t, "told", s.times(StoreFailed), 1)
		unlock()
		time.Sleep(lookAgainAfter)
		s.drain(t)
		synctest.Wait() // for the write
		testkit.Equal(t, "spent by the file later", saved(t, dir), 10)
	})
	// Between the end of a save and its report a search may find that it has waited too long.
	inCount(t, "a save that is late at its end", func(t *testing.T, dir, _ string) {
		unlock, err := openStore(t, dir).lockDocument("budget.json")
		must(t, err)
		s := newSpender(t, dir, 10)
		ended := make(chan struct{})
		late, _, _ := s.ledger.tryTake(10, func(Event) { <-ended })
		time.Sleep(diskPatience + time.Second) // for the report
		if s.ledger.count.await(t.Context(), late) {
			s.ledger.isLate(s.report)
		}
		close(ended)
		<-late.done
		unlock()
		time.Sleep(lookAgainAfter)
		must(t, s.search(t))
		synctest.Wait() // for the write
		testkit.Between(t, "the file is written after the trouble", saved(t, dir), 1, 10)
	})
	// Whoever finds it first: a search, or what clients have used.
	inCount(t, "one that cannot be written, and uses", func(t *testing.T, dir, _ string) {
		s := newSpender(t, dir, 10)
		s.ledger.Shares(10, 50, nil)
		s.ledger.store.disk.SyncFile = func(*os.File) error { return errTest }
		s.ledger.noteUses()
		synctest.Wait()
		s.drain(t)
		testkit.Equal(t, "told", s.times(StoreFailed), 1)
	})
}

func TestABudgetSurvivesAFolderThatCannotBeWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		t.Setenv("RUNTIME_DIRECTORY", t.TempDir())
		store := unwritable(t)
		first := newSpender(t, store.dir, 1000)
		first.spend(t, 5)
		second := newSpender(t, store.dir, 1000)
		testkit.Equal(t, "spent after a crash", second.ledger.Spent(time.Now()), 10)
		sent := 5
		for range 10 {
			sent += second.drain(t) + first.drain(t)
		}
		testkit.Between(t, "sent by both", sent, 990, 1000)
		testkit.Equal(t, "told that the folder cannot be written", []int{first.times(StoreFailed), second.times(StoreFailed)}, []int{1, 1})
	})
}

// As a file of another user. It may hold a wait, or the whole budget.
func TestAFileThatMayNotBeReadIsNotTakenForNone(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("root may read all")
	}
	store := quick(openStore(t, t.TempDir()))
	for _, name := range []string{store.origin.scheduleFile(), store.origin.budgetFile()} {
		must(t, os.WriteFile(filepath.Join(store.dir, name), nil, 0))
	}
	s, err := NewSchedule(store)
	testkit.WantError(t, err)
	testkit.Between(t, "the wait", time.Until(s.due([]string{se})), unchangedFloor-time.Minute, unchangedFloor)
	l, err := NewLedger(store)
	testkit.Is(t, "the count", err, errUnknownCount)
	testkit.Equal(t, "sent", spenderOf(l, 1000).drain(t), 0)
	testkit.Equal(t, "spent then: all", saved(t, store.dir), 1000)
}

// As one on a bad sector, which stays unreadable. It is replaced when the day of its count has ended.
func TestACountThatCanNeverBeReadEndsWithItsDay(t *testing.T) {
	const unreadable = "/proc/self/mem" // at its begin
	if _, err := os.Stat(unreadable); err != nil {
		t.Skip(err)
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "budget.json")
	must(t, os.Symlink(unreadable, file))
	now := time.Now()
	s := ofUnknownCount(t, dir)
	s.ledger.clock = func() time.Time { return now }
	testkit.Equal(t, "searches of an unknown count", s.drain(t), 0)
	s.ledger.clock = func() time.Time { return now.AddDate(0, 0, 2) } // it may be tomorrow by now
	must(t, errors.Join(s.search(t), s.ledger.Flush()))
	days, err := parseBudget([]byte(testkit.Read(t, file)))
	must(t, err)
	testkit.Equal(t, "spent by the file", days.spent(), 1)
}
