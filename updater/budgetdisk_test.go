package updater

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"
)

func TestADamagedCountSpendsNothingBeforeTheNextDay(t *testing.T) {
	for name, raw := range map[string]string{"empty": "", "cut": `{"day":"2000-01-01","spe`} {
		inBubble(t, name, func(t *testing.T) {
			dir := t.TempDir()
			file := filepath.Join(dir, "budget.json")
			must(t, os.WriteFile(file, []byte(raw), 0o600))
			another := filepath.Join(t.TempDir(), "of another")
			must(t, errors.Join(os.WriteFile(another, []byte("x"), 0o600), os.Symlink(another, file+damagedSuffix)))
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
				s := spenderOf(l, 10)
				if got := s.drain(t); got != 0 || l.Remaining(10, time.Now()) != 0 || !l.Hold(10, time.Now()).Active(time.Now()) {
					t.Errorf("%d searches, %d left, %v", got, l.Remaining(10, time.Now()), l.Hold(10, time.Now()))
				}
				if n := len(s.told(LoadFailed)); n != 0 {
					t.Errorf("told %d times what NewLedger has returned", n)
				}
				if n := len(s.told(BudgetSpent)); n != 1 {
					t.Errorf("told %d times that it is spent", n)
				}
			}
			if kept, err := os.ReadFile(file + damagedSuffix); err != nil || string(kept) != raw {
				t.Errorf("kept %q, %v", kept, err)
			}
			if text, err := os.ReadFile(another); err != nil || string(text) != "x" {
				t.Errorf("a link in the place of the copy led to %q, %v", text, err)
			}
			time.Sleep(24 * time.Hour)
			if got := newSpender(t, dir, 10).drain(t); got != 10 {
				t.Errorf("the next day allows %d, want 10", got)
			}
		})
	}
	inBubble(t, "and the disk hangs", func(t *testing.T) {
		dir := t.TempDir()
		must(t, os.WriteFile(filepath.Join(dir, "budget.json"), nil, 0o600))
		store := quick(openStore(t, dir))
		hung := make(chan struct{})
		defer func() { close(hung); synctest.Wait() }() // so that nothing writes while the directory is removed
		store.disk.SyncFile = func(*os.File) error { <-hung; return nil }
		l, err := NewLedger(store)
		if err == nil {
			t.Error("no error")
		}
		if left := l.Remaining(10, time.Now()); left != 0 {
			t.Errorf("%d are left", left)
		}
		if got := spenderOf(l, 10).drain(t); got != 0 {
			t.Errorf("%d searches", got)
		}
		look, err := ReadLedger(store)
		if err == nil || !look.Hold(10, time.Now()).Active(time.Now()) {
			t.Errorf("who looks sees %v, %v", look.Hold(10, time.Now()), err)
		}
	})
	inBubble(t, "while it runs", func(t *testing.T) {
		dir := t.TempDir()
		s := newSpender(t, dir, 10)
		must(t, s.search(t))
		must(t, os.WriteFile(filepath.Join(dir, "budget.json"), nil, 0o600))
		if got := s.drain(t); got != 0 {
			t.Errorf("%d searches", got)
		}
		if events := s.told(LoadFailed); len(events) != 1 || events[0].List != BudgetFile || !errors.Is(events[0].Err, ErrDamaged) {
			t.Errorf("told %+v", events)
		}
	})
	inBubble(t, "a link to nothing", func(t *testing.T) {
		dir := t.TempDir()
		must(t, os.Symlink(filepath.Join(dir, "none"), filepath.Join(dir, "budget.json")))
		l, err := NewLedger(quick(openStore(t, dir)))
		if !errors.Is(err, errUnknownCount) {
			t.Errorf("got %v", err)
		}
		if got := spenderOf(l, 10).drain(t); got != 0 {
			t.Errorf("%d searches", got)
		}
	})
	for name, started := range map[string]bool{"not to be read for a moment": true, "not to be read at the start": false} {
		inBubble(t, name, func(t *testing.T) {
			dir := t.TempDir()
			file := filepath.Join(dir, "budget.json")
			s := newSpender(t, dir, 10)
			must(t, s.search(t))
			must(t, errors.Join(s.ledger.Flush(), os.Rename(file, file+".away"), os.Symlink(file, file))) // a loop
			left := 9
			if !started {
				l, err := NewLedger(quick(openStore(t, dir)))
				if s = spenderOf(l, 10); !errors.Is(err, errUnknownCount) {
					t.Errorf("got %v", err)
				}
				left = 0
			}
			if got := s.drain(t); got != left {
				t.Errorf("%d searches, want %d", got, left)
			}
			must(t, os.Rename(file+".away", file))
			time.Sleep(lookAgainAfter)
			if got := s.drain(t); got != 9-left {
				t.Errorf("%d searches of a file that can be read again, want %d", got, 9-left)
			}
			synctest.Wait() // for the write
			if n := saved(t, dir); n != 10 {
				t.Errorf("the file says %d, want 10", n)
			}
		})
	}
	inBubble(t, "it is from yesterday", func(t *testing.T) {
		dir := t.TempDir()
		file := filepath.Join(dir, "budget.json")
		must(t, os.WriteFile(file, nil, 0o600))
		must(t, os.Chtimes(file, time.Time{}, NextDay(time.Now()).AddDate(0, 0, -1).Add(-time.Second)))
		l, err := NewLedger(quick(openStore(t, dir)))
		if err == nil {
			t.Error("no error")
		}
		if got := spenderOf(l, 10).drain(t); got != 10 {
			t.Errorf("%d searches, want 10", got)
		}
	})
}

func TestSearchesDoNotWaitForAHungDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		s := newSpender(t, dir, 10)
		must(t, s.search(t))
		hung := make(chan struct{})
		s.ledger.store.disk.SyncFile = func(*os.File) error { <-hung; return nil }
		begun := time.Now()
		must(t, s.search(t))
		if took := time.Since(begun); took != diskPatience {
			t.Errorf("the first search took %s, want %s", took, diskPatience)
		}
		begun = time.Now()
		if got := 2 + s.drain(t); got != 10 || time.Since(begun) != 0 {
			t.Errorf("%d searches in %s, want the budget at once", got, time.Since(begun))
		}
		if events := s.told(StoreFailed); len(events) != 1 || events[0].List != BudgetFile {
			t.Errorf("told %+v", events)
		}
		if err := s.ledger.Flush(); err == nil {
			t.Error("Flush returned no error")
		}
		close(hung)
		synctest.Wait()
		if n := len(s.told(Stored)); n != 1 {
			t.Errorf("told %d times that the disk works again", n)
		}
		must(t, s.ledger.Flush())
		if n := saved(t, dir); n != 10 {
			t.Errorf("the file says %d, want 10", n)
		}
	})
}

// What was counted in memory is covered by the reservation that the disk saved late.
func TestACrashAfterAHungDiskLosesNoSearch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		s := newSpender(t, dir, 10_000)
		hung := make(chan struct{})
		s.ledger.store.disk.SyncFile = func(*os.File) error { <-hung; return nil }
		for range 20 {
			must(t, s.search(t))
		}
		close(hung)
		synctest.Wait()
		for range 40 {
			must(t, s.search(t))
		}
		if n := saved(t, dir); n < s.sent {
			t.Errorf("after a crash %d are spent, %d were sent", n, s.sent)
		}
	})
}

func TestADiskThatHangsOverMidnight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		s := newSpender(t, dir, 10)
		time.Sleep(time.Until(midnightAfter(time.Now())) - 3*time.Second)
		hung := make(chan struct{})
		s.ledger.store.disk.SyncFile = func(*os.File) error { <-hung; return nil }
		must(t, s.search(t))
		time.Sleep(5 * time.Second)
		for range 6 {
			must(t, s.search(t))
		}
		close(hung)
		synctest.Wait()
		if got := s.drain(t); got != 4 {
			t.Errorf("%d more searches of the new day, want 4", got)
		}
		must(t, s.ledger.Flush())
		if n := saved(t, dir); n != 10 {
			t.Errorf("the file says %d, want 10", n)
		}
	})
}

func TestAnotherProcessThatKeepsTheLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		unlock, err := openStore(t, dir).lockDocument("budget.json")
		must(t, err)
		s := newSpender(t, dir, 10)
		if got := s.drain(t); got != 10 {
			t.Errorf("%d searches, want 10", got)
		}
		synctest.Wait() // for the report
		if n := len(s.told(StoreFailed)); n != 1 {
			t.Errorf("told %d times", n)
		}
		unlock()
		time.Sleep(lookAgainAfter)
		s.drain(t)
		synctest.Wait() // for the write
		if n := saved(t, dir); n != 10 {
			t.Errorf("later the file says %d, want 10", n)
		}
	})
}

// Between the end of a save and its report a search may find that it has waited too long.
func TestASaveThatIsLateAtItsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
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
		if n := saved(t, dir); n == 0 {
			t.Error("Expected the file to be written after the trouble")
		}
	})
}

// Whoever finds it first: a search, or what clients have used.
func TestADiskThatCannotBeWrittenIsToldOfByUses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSpender(t, t.TempDir(), 10)
		s.ledger.Shares(10, 50, nil)
		s.ledger.store.disk.SyncFile = func(*os.File) error { return errTest }
		s.ledger.noteUses()
		synctest.Wait()
		s.drain(t)
		if n := len(s.told(StoreFailed)); n != 1 {
			t.Errorf("told %d times", n)
		}
	})
}

func TestABudgetSurvivesAFolderThatCannotBeWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		t.Setenv("RUNTIME_DIRECTORY", t.TempDir())
		store := unwritable(t)
		first := newSpender(t, store.dir, 1000)
		for range 5 {
			must(t, first.search(t))
		}
		if n := len(first.told(StoreFailed)); n != 1 {
			t.Errorf("told %d times that the folder cannot be written", n)
		}
		second := newSpender(t, store.dir, 1000)
		if n := second.ledger.Spent(time.Now()); n != 10 {
			t.Errorf("after a crash %d are spent, want 10", n)
		}
		sent := 5
		for range 10 {
			sent += second.drain(t) + first.drain(t)
		}
		if sent > 1000 || sent < 990 {
			t.Errorf("%d were sent by both, want the budget", sent)
		}
		if n := len(first.told(StoreFailed)) + len(second.told(StoreFailed)); n != 2 {
			t.Errorf("told %d times that the folder cannot be written, want once in each process", n)
		}
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
	if wait := time.Until(s.due([]string{se})); err == nil || wait < unchangedFloor-time.Minute {
		t.Errorf("the schedule: a wait of %s, %v", wait, err)
	}
	l, err := NewLedger(store)
	if !errors.Is(err, errUnknownCount) {
		t.Errorf("the count: %v", err)
	}
	if n := spenderOf(l, 1000).drain(t); n != 0 {
		t.Errorf("%d are sent", n)
	}
	if n := saved(t, store.dir); n != 1000 {
		t.Errorf("then %d are spent, want all", n)
	}
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
	l, err := NewLedger(quick(openStore(t, dir)))
	if !errors.Is(err, errUnknownCount) {
		t.Fatalf("got %v", err)
	}
	l.clock = func() time.Time { return now }
	s := spenderOf(l, 10)
	if n := s.drain(t); n != 0 {
		t.Errorf("%d searches of an unknown count", n)
	}
	l.clock = func() time.Time { return now.AddDate(0, 0, 2) } // it may be tomorrow by now
	must(t, s.search(t))
	must(t, l.Flush())
	raw, err := os.ReadFile(file)
	must(t, err)
	if days, err := parseBudget(raw); err != nil || days.spent() != 1 {
		t.Errorf("the file says %+v, %v", days, err)
	}
}
