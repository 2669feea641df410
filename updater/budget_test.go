package updater

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

var budgetSeeds = flag.Uint64("budget.seeds", 8, "how many courses of events TestNoCrashAndNoRestartExceedsTheBudget tries")

// spender is one process that spends a budget.
type spender struct {
	ledger   *Ledger
	searcher lookup.Searcher
	sent     int // searches that reached the server or were refused by it
	err      error
	perDay   int

	mu     sync.Mutex
	events []Event // guarded by mu
}

// Search is the server: it fails with s.err.
func (s *spender) Search(context.Context, []lookup.Prefix) (lookup.Answer, error) {
	s.sent++
	return lookup.Answer{}, s.err
}

// newSpender returns a process with a folder; "": none.
func newSpender(t *testing.T, dir string, perDay int) *spender {
	t.Helper()
	var store *Store
	if dir != "" {
		store = quick(openStoreOf(t, dir))
	}
	return spenderOf(newLedger(t, store), perDay)
}

// folderIf returns a folder, or none.
func folderIf(t *testing.T, disk bool) string {
	if disk {
		return t.TempDir()
	}
	return ""
}

func newLedger(t *testing.T, store *Store) *Ledger {
	t.Helper()
	l, err := NewLedger(store)
	must(t, err)
	return l
}

// sharedLedger returns the count of a relay, and its view.
func sharedLedger(t *testing.T, m *medium) (*Ledger, *view) {
	t.Helper()
	store, v := quick(openStore(t, t.TempDir())), &view{medium: m}
	store.Share(v)
	return newLedger(t, store), v
}

// quick returns the store without the waits for the disk.
func quick(s *Store) *Store {
	s.disk.SyncFile = func(*os.File) error { return nil }
	s.disk.SyncDir = func(string) error { return nil }
	return s
}

func spenderOf(ledger *Ledger, perDay int) *spender {
	s := &spender{ledger: ledger, perDay: perDay}
	s.searcher = ledger.Limit(s, perDay, s.report)
	return s
}

func (s *spender) report(e Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.events = append(s.events, e)
}

func (s *spender) told(kind Kind) (all []Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(s.events), func(e Event) bool { return e.Kind != kind })
}

func (s *spender) times(kind Kind) int { return len(s.told(kind)) }

func (s *spender) search(t *testing.T) error {
	t.Helper()
	before := s.sent
	_, err := s.searcher.Search(t.Context(), nil)
	testkit.Equal(t, "it is refused and not sent", errors.Is(err, lookup.ErrBudget), s.sent == before)
	return err
}

// spend searches so often, within the budget.
func (s *spender) spend(t *testing.T, n int) {
	t.Helper()
	for range n {
		must(t, s.search(t))
	}
}

// drain searches until the budget is spent, and returns how often.
func (s *spender) drain(t *testing.T) (n int) {
	t.Helper()
	for range 10_000 {
		if err := s.search(t); errors.Is(err, lookup.ErrBudget) {
			return n
		}
		n++
	}
	t.Fatal("the budget does not end")
	return 0
}

// saved returns what a process that starts now knows to be spent today.
func saved(t *testing.T, dir string) int {
	t.Helper()
	l, err := ReadLedger(openStoreOf(t, dir))
	must(t, err)
	return l.Spent(time.Now())
}

// Whatever several processes do, no more is sent on a date than the budget, and what no crash has lost can be spent.
func TestNoCrashAndNoRestartExceedsTheBudget(t *testing.T) {
	seeds := *budgetSeeds
	if testing.Short() {
		seeds = min(seeds, 6)
	}
	for seed := range seeds {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { liveWithinBudget(t, seed) })
		})
	}
}

// liveWithinBudget lets processes search, crash, restart and wait at random for some days.
func liveWithinBudget(t *testing.T, seed uint64) {
	chance := rand.New(rand.NewPCG(seed, 1))
	dir := t.TempDir()
	perDay := []int{1, 7, 100, 350, 1200}[chance.IntN(5)]
	crashing := seed%3 != 0
	processes := make([]*spender, 1+chance.IntN(3))
	for i := range processes {
		processes[i] = newSpender(t, dir, perDay)
	}
	sent := make(map[string]int) // by date, what the server would charge for
	lost := make(map[string]int) // by date, reservations of crashed processes
	for range 300 {
		i := chance.IntN(len(processes))
		p := processes[i]
		switch what := chance.IntN(100); {
		case what < 80:
			p.err = []error{nil, nil, nil, errServer, lookup.ErrBackoff, context.Canceled}[chance.IntN(6)]
			for range chance.IntN(1 + perDay/8) {
				if err := p.search(t); err == p.err && err != lookup.ErrBackoff {
					sent[dateOf(time.Now())]++
				}
			}
		case what < 84 && crashing: // reservations are lost
			p.ledger.mu.Lock()
			lost[p.ledger.days.Day] += max(0, p.ledger.covered-p.ledger.own)
			p.ledger.mu.Unlock()
			processes[i] = newSpender(t, dir, perDay)
		case what < 90:
			must(t, p.ledger.Flush())
			processes[i] = newSpender(t, dir, perDay)
		case what < 97:
			time.Sleep(time.Duration(chance.IntN(40)) * time.Minute)
		default:
			date := dateOf(time.Now())
			p.err = nil
			for range 3 { // others return what they do not need
				for _, p := range processes {
					must(t, p.ledger.Flush())
					p.err = nil
					sent[date] += p.drain(t)
				}
				time.Sleep(lookAgainAfter)
			}
			if n := saved(t, dir); dateOf(time.Now()) == date {
				testkit.Equal(t, "all that could be spent, and what the file says", []int{sent[date], n}, []int{perDay - lost[date], perDay})
			}
			time.Sleep(time.Until(midnightAfter(time.Now())))
		}
	}
	for date, n := range sent {
		testkit.Between(t, "sent on "+date, n, 0, perDay)
	}
}

func TestASearchIsInTheFileBeforeItIsSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		const perDay = 1000
		for restart := range 20 {
			s := newSpender(t, dir, perDay)
			before := saved(t, dir)
			for i := range 7 {
				ahead := &midway{do: func() {
					testkit.Between(t, fmt.Sprintf("the file in restart %d, search %d", restart, i+1), saved(t, dir), before+i+1, perDay)
				}}
				must(t, errOf(s.ledger.Limit(ahead, perDay, s.report).Search(t.Context(), nil)))
			}
			testkit.Equal(t, "spent after a crash, by which a hundredth is lost at most", saved(t, dir), before+10)
		}
		s := newSpender(t, dir, perDay)
		must(t, s.search(t))
		must(t, s.ledger.Flush())
		testkit.Equal(t, "spent after a proper end", saved(t, dir), 201)
		must(t, s.search(t)) // it can be used afterwards
	})
}

func TestWhatWasNotSentIsGivenBack(t *testing.T) {
	for err, want := range map[error]int{
		nil: 5, errServer: 5, errLimited: 5, errDown: 5, context.Canceled: 5, context.DeadlineExceeded: 5,
		lookup.ErrBackoff: 0, fmt.Errorf("searching: %w: 5s left", lookup.ErrBackoff): 0, lookup.ErrLimited: 0,
	} {
		for _, disk := range []bool{true, false} {
			inBubble(t, fmt.Sprintf("%v, with a folder: %t", err, disk), func(t *testing.T) {
				dir := folderIf(t, disk)
				s := newSpender(t, dir, 5)
				s.err = err
				for range 5 {
					testkit.Equal(t, "the error", s.search(t), err)
				}
				must(t, s.ledger.Flush())
				testkit.Equal(t, "spent", s.ledger.Spent(time.Now()), want)
				testkit.Equal(t, "told that all is spent", s.times(BudgetSpent), want/5)
				if disk {
					testkit.Equal(t, "spent by the file", saved(t, dir), want)
				}
				s.err = nil
				testkit.Equal(t, "searches that are left", s.drain(t), 5-want)
			})
		}
	}
	inBubble(t, "only on the same day", func(t *testing.T) {
		s := newSpender(t, t.TempDir(), 10)
		ahead := s.ledger.Limit(&midway{do: func() { time.Sleep(25 * time.Hour); s.search(t) }, err: lookup.ErrBackoff}, 10, s.report)
		ahead.Search(t.Context(), nil)
		testkit.Equal(t, "spent", s.ledger.Spent(time.Now()), 1)
	})
}

func TestAClockThatJumpsRenewsNoBudget(t *testing.T) {
	for _, test := range []struct{ disk, restarts bool }{{false, false}, {true, false}, {true, true}} {
		inBubble(t, fmt.Sprintf("%+v", test), func(t *testing.T) {
			dir := folderIf(t, test.disk)
			s := newSpender(t, dir, 100)
			var now atomic.Pointer[time.Time]
			set := func(date string) {
				at, err := time.ParseInLocation(time.DateOnly, date, time.Local)
				must(t, err)
				restarts := test.restarts && date < "2026-11-23" // a machine boots in the past, and its clock is set then
				if restarts {
					must(t, s.ledger.Flush())
					s = newSpender(t, "", 100)
				}
				now.Store(&at)
				s.ledger.clock = func() time.Time { return *now.Load() }
				if restarts {
					s.ledger.days = budgetDays{}
					must(t, s.ledger.Move(quick(openStore(t, dir))))
				}
			}
			total := 60
			set("2026-11-23")
			s.spend(t, total)
			for _, date := range []string{"2026-11-22", "2026-11-23", "1970-01-01", "2026-11-23", "1970-01-01", "2026-11-23"} {
				set(date)
				for range 20 {
					if s.search(t) == nil {
						total++
					}
				}
			}
			testkit.Equal(t, "sent", total, 100)
			set("2026-11-24")
			testkit.Equal(t, "the next day allows", s.drain(t), 100)
		})
	}
}

// A process that asks before midnight and gets the lock after it must not take the count of the old day along into the new one.
func TestMidnightBetweenTwoProcesses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		s := newSpender(t, dir, 100)
		s.spend(t, 50)
		time.Sleep(time.Until(midnightAfter(time.Now())) - time.Second)
		store := quick(openStore(t, dir))
		unlock, err := store.lockDocument("budget.json")
		must(t, err)
		done := make(chan error)
		go func() { done <- s.search(t) }()
		time.Sleep(1500 * time.Millisecond)
		old, err := os.ReadFile(store.budgetPath())
		must(t, err)
		days, err := parseBudget(old)
		must(t, err)
		today, fresh := days.on(dateOf(time.Now()), "other")
		testkit.Equal(t, "it is a new day", fresh, true)
		raw, err := json.Marshal(today.with("other", 3, nil))
		must(t, err)
		must(t, os.WriteFile(store.budgetPath(), raw, 0o600))
		unlock()
		must(t, <-done)
		testkit.Equal(t, "searches, as the other process has left", 1+s.drain(t), 97)
	})
}

// As relays in two time zones: the later one finds its next day counted already.
func TestProcessesWhoseDaysBeginApartHaveABudgetEachDay(t *testing.T) {
	for _, ahead := range []time.Duration{time.Second, time.Hour, 9 * time.Hour} {
		inBubble(t, ahead.String(), func(t *testing.T) {
			shared := newMedium()
			first, _ := sharedLedger(t, shared)
			second, _ := sharedLedger(t, shared)
			early, late := spenderOf(first, 100), spenderOf(second, 100)
			early.ledger.clock = func() time.Time { return time.Now().Add(ahead) }
			for day := range 4 {
				sent := early.sent + late.sent
				for range 24 * 6 {
					_, _ = early.search(t), late.search(t) // until the budget is spent
					time.Sleep(10 * time.Minute)
				}
				if day > 0 {
					testkit.Between(t, fmt.Sprint("searches on day ", day), early.sent+late.sent-sent, 90, 500)
				}
			}
			testkit.Between(t, "searches on 5 dates", early.sent+late.sent, 0, 500)
		})
	}
}

// A budget that one search takes from less than 80 % to its end is not low.
func TestABudgetIsReportedOnceADay(t *testing.T) {
	type told struct {
		kind  Kind
		spent int
	}
	for perDay, day := range map[int][]told{
		10: {{BudgetRenewed, 1}, {BudgetLow, 8}, {BudgetSpent, 10}}, 2: {{BudgetRenewed, 1}, {BudgetSpent, 2}},
	} {
		inBubble(t, fmt.Sprint(perDay), func(t *testing.T) {
			s, midnight := newSpender(t, t.TempDir(), perDay), NextDay(time.Now())
			for range 3 {
				for range 30 {
					s.search(t)
				}
				time.Sleep(24 * time.Hour)
			}
			var got []told
			for _, e := range s.events {
				if got = append(got, told{e.Kind, e.Spent}); e.Kind == BudgetRenewed {
					midnight = midnight.AddDate(0, 0, 1)
				}
				testkit.Equal(t, "the next midnight, and the budget", []any{e.Due.Sub(midnight), e.Budget}, []any{time.Duration(0), perDay})
			}
			testkit.Equal(t, "told", got, slices.Repeat(day, 3)[1:])
		})
	}
}

func TestWhoOnlyLooksChangesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		s := newSpender(t, dir, 1000)
		must(t, s.search(t))
		must(t, s.ledger.Flush())
		before := snapshotOf(t, dir)
		l, err := ReadLedger(openStore(t, dir))
		must(t, err)
		now := time.Now()
		testkit.Equal(t, "spent, left, held at 1", []int{l.Spent(now), l.Remaining(1000, now), l.Hold(1, now).Budget}, []int{1, 999, 1})
		testkit.Equal(t, "held", l.Hold(1000, now), Hold{})
		testkit.Equal(t, "spent in two days", l.Spent(time.Now().Add(48*time.Hour)), 0)
		must(t, errors.Join(spenderOf(l, 1000).search(t), l.Flush()))
		testkit.Equal(t, "the folder", snapshotOf(t, dir), before)
	})
}

func snapshotOf(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := make(map[string]string)
	for _, name := range namesIn(t, dir) {
		all[name] = testkit.Read(t, filepath.Join(dir, name))
	}
	return all
}

// A reload may bring another folder, or none.
func TestACountMovesWithItsProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first, second := t.TempDir(), t.TempDir()
		other := newSpender(t, second, 1000)
		other.spend(t, 10)
		s := newSpender(t, "", 1000)
		spend := func(want int) {
			t.Helper()
			s.spend(t, 5)
			testkit.Equal(t, "spent", s.ledger.Spent(time.Now()), want)
		}
		move := func(store *Store) {
			t.Helper()
			must(t, errors.Join(s.ledger.Flush(), s.ledger.Move(store)))
		}
		spend(5)
		move(quick(openStore(t, first)))
		spend(10)
		move(quick(openStore(t, first))) // the same
		spend(15)
		move(quick(openStore(t, second))) // where 10 are spent already
		spend(30)
		testkit.Equal(t, "spent by the first folder", saved(t, first), 15)
		move(nil)
		spend(35)
	})
}

func TestWithoutALimitSearchesAreCountedAndNeverWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		s := newSpender(t, dir, 0)
		s.ledger.store.disk.SyncFile = func(*os.File) error { time.Sleep(200 * time.Millisecond); return nil }
		begun := time.Now()
		s.spend(t, 120)
		testkit.Equal(t, "120 searches take", time.Since(begun), 0)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		testkit.Between(t, "spent by the file", saved(t, dir), 50, 120)
		must(t, s.ledger.Flush())
		testkit.Equal(t, "spent by the file and the ledger", []int{saved(t, dir), s.ledger.Spent(time.Now())}, []int{120, 120})
		testkit.Equal(t, "told", s.events, nil)
	})
}
