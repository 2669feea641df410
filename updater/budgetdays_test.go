package updater

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

func TestTheCountOfADayFollowsTheClock(t *testing.T) {
	type step struct {
		date  string
		fresh bool
		want  int // on that date
		spend int // then
	}
	tests := []struct {
		name  string
		steps []step
	}{
		{"day after day", []step{
			{"2026-11-22", true, 0, 900}, {"2026-11-22", false, 900, 100}, {"2026-11-23", true, 0, 10}, {"2026-12-01", true, 0, 0},
			{"2026-12-02", true, 0, 0}, {"2026-12-03", true, 0, 7}, {"1970-01-01", false, 7, 0}, // only the last dates are remembered, and the one there is
		}},
		{"a router without a clock of its own restarts again and again", []step{
			{"2026-11-23", true, 0, 900}, {"1970-01-01", false, 900, 50}, {"2026-11-23", false, 950, 50},
			{"1970-01-01", false, 1000, 0}, {"2026-11-23", false, 1000, 0}, {"2026-11-24", true, 0, 0},
		}},
		{"the clock was ahead for a while", []step{
			{"2026-11-23", true, 0, 1000}, {"2099-01-01", true, 0, 10}, {"2026-11-23", false, 1000, 0},
			{"2026-11-24", true, 0, 700}, {"2026-11-25", true, 0, 0},
		}},
		{"ahead by two days, which come later", []step{
			{"2026-11-23", true, 0, 5}, {"2026-11-25", true, 0, 10}, {"2026-11-23", false, 10, 0},
			{"2026-11-24", true, 0, 1000}, {"2026-11-25", true, 0, 0},
		}},
		{"set back over midnight, which comes again", []step{
			{"2026-11-23", true, 0, 700}, {"2026-11-22", false, 700, 10}, {"2026-11-23", false, 710, 0}, {"2026-11-24", true, 0, 0},
		}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			var days budgetDays
			for i, s := range test.steps {
				before := maps.Clone(days.Spent)
				next, fresh := days.on(s.date, "me")
				testkit.Equal(t, fmt.Sprint("step ", i+1), step{next.Day, fresh, next.spent(), s.spend}, s)
				testkit.Equal(t, "the count before", days.Spent, before)
				testkit.Between(t, "dates that are remembered", len(next.Spent), 1, maxDates)
				days = next.with("me", next.part("me").Spent+s.spend, nil)
			}
		})
	}
}

func TestOnlyAWholeCountIsRead(t *testing.T) {
	good := `{"day":"2026-11-22","spent":{"2026-11-21":1000,"2026-11-22":17}}`
	got, err := parseBudget([]byte(good))
	must(t, err)
	testkit.Equal(t, "spent", got.spent(), 17)
	for name, raw := range map[string]string{
		"empty": "", "cut": good[:40], "no JSON": "\x00\x00\x00", "null": "null", "no day": `{"spent":{"2026-11-22":17}}`,
		"no count of the day": `{"day":"2026-11-22","spent":{"2026-11-21":17}}`, "below zero": `{"day":"2026-11-22","spent":{"2026-11-22":-1}}`,
		"no date": `{"day":"today","spent":{"today":17}}`, "more than a number": `{"day":"2026-11-22","spent":{"2026-11-22":1e30}}`,
	} {
		testkit.Is(t, name, errOf(parseBudget([]byte(raw))), ErrDamaged)
	}
}

func TestTheNextDayBeginsAtMidnightWherever(t *testing.T) {
	tests := []struct{ name, zone, now, want string }{
		{"no change", "Europe/Berlin", "2026-11-22T23:59:59+01:00", "2026-11-23T00:00:00+01:00"},
		{"at midnight", "Europe/Berlin", "2026-11-22T00:00:00+01:00", "2026-11-23T00:00:00+01:00"},
		{"a day of 23 hours", "Europe/Berlin", "2026-03-29T00:00:00+01:00", "2026-03-30T00:00:00+02:00"},
		{"a day of 25 hours", "Europe/Berlin", "2026-10-25T00:00:00+02:00", "2026-10-26T00:00:00+01:00"},
		{"the end of a year", "America/New_York", "2026-12-31T12:00:00-05:00", "2027-01-01T00:00:00-05:00"},
		{"no midnight", "America/Sao_Paulo", "2018-11-03T22:00:00-03:00", "2018-11-04T01:00:00-02:00"},
	}
	for _, test := range tests {
		zone, err := time.LoadLocation(test.zone)
		if err != nil {
			t.Skip(err)
		}
		now, err := time.Parse(time.RFC3339, test.now)
		must(t, err)
		testkit.Equal(t, test.name, midnightAfter(now.In(zone)).Format(time.RFC3339), test.want)
	}
}

// takeAll takes n searches of a budget of 100, and returns how many it got.
func takeAll(t *testing.T, l *Ledger, n int) (got int) {
	t.Helper()
	for range n {
		if _, err := l.take(t.Context(), 100, func(Event) {}); err == nil {
			got++
		}
	}
	return got
}

// The others may be spending the rest of the day's budget, on each day that they are away.
func TestThePartOfTheBudgetIsRenewedEachDayWithoutTheSharedStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, v := sharedLedger(t, newMedium())
		const known = 92
		first := takeAll(t, l, known)
		v.away = errTest
		time.Sleep(lookAgainAfter)
		testkit.Between(t, "searches on day 1", first+takeAll(t, l, 100), known, known+(100-known)/partAlone+1)
		for day := 2; day < 5; day++ {
			time.Sleep(24 * time.Hour)
			testkit.Equal(t, fmt.Sprint("searches on day ", day), takeAll(t, l, 100), 100/partAlone)
			now := time.Now()
			h := l.Hold(100, now)
			testkit.Equal(t, fmt.Sprint("held on day ", day), []any{h.Active(now), h.Portion, l.Remaining(100, now)}, []any{true, OneAlone, 0})
		}
		v.away = nil
		time.Sleep(lookAgainAfter)
		testkit.Equal(t, "searches when it is back: the rest", takeAll(t, l, 100), 100-100/partAlone)
	})
}

// Whatever is refused, the same function says so to those who look, and until when.
func TestWhoAsksWhatIsLeftLearnsWhatIsRefused(t *testing.T) {
	testkit.Long(t)
	for seed := range uint64(20) {
		inBubble(t, fmt.Sprint("seed ", seed), func(t *testing.T) {
			chance := rand.New(rand.NewPCG(seed, 2))
			perDay := []int{1, 12, 100, 401}[chance.IntN(4)]
			l, v := sharedLedger(t, newMedium())
			if chance.IntN(2) == 0 {
				l.Spread()
			}
			for range 400 {
				switch chance.IntN(20) {
				case 0:
					v.away = []error{nil, errTest}[chance.IntN(2)]
				case 1:
					time.Sleep(time.Duration(chance.IntN(180)) * time.Minute)
				case 2:
					time.Sleep(time.Duration(chance.IntN(180)) * time.Second)
				}
				_, err := l.take(t.Context(), perDay, func(Event) {})
				now := time.Now()
				a := l.Allowance(perDay, now)
				if (a.Now == 0) != a.Hold.Active(now) || a.Now > a.Left || a.Hold != l.Hold(perDay, now) || a.Left != l.Remaining(perDay, now) {
					t.Fatalf("%+v", a)
				}
				if spent, ok := errors.AsType[*SpentError](err); ok && (spent.Hold != a.Hold || !errors.Is(err, lookup.ErrBudget)) {
					t.Fatalf("refused with %+v, and told %+v", spent.Hold, a)
				}
				if until := a.Hold.Until; a.Now == 0 && a.Hold.Portion != OneAlone {
					if l.Allowance(perDay, until.Add(-1)).Now != 0 || l.Allowance(perDay, until).Now == 0 {
						t.Fatalf("it does not end at %s: %+v", until, a)
					}
				}
			}
		})
	}
}

func TestNoHourTakesMoreThanAQuarterOfTheBudget(t *testing.T) {
	for _, test := range []struct{ perDay, hour int }{{1, 1}, {19, 19}, {21, 20}, {80, 20}, {81, 21}, {100, 25}, {200, 50}, {10_000, 2500}, {1 << 30, 1 << 28}} {
		testkit.Equal(t, fmt.Sprint("an hour of ", test.perDay), HourOf(test.perDay), test.hour)
	}
	for _, disk := range []bool{true, false} {
		for seed := range uint64(10) {
			inBubble(t, fmt.Sprintf("seed %d, with a folder: %t", seed, disk), func(t *testing.T) {
				const perDay = 100
				chance := rand.New(rand.NewPCG(seed, 3))
				dir := folderIf(t, disk)
				s := newSpender(t, dir, perDay)
				s.ledger.Spread()
				var at []time.Time
				for range 600 {
					if s.search(t) == nil {
						at = append(at, time.Now())
					}
					time.Sleep(time.Duration(chance.IntN(1+chance.IntN(300)*chance.IntN(2))) * time.Second)
					if dir != "" && chance.IntN(50) == 0 { // a restart renews no hour
						must(t, s.ledger.Flush())
						s = newSpender(t, dir, perDay)
						s.ledger.Spread()
					}
				}
				for i, begun := range at { // those of an hour come one after the other
					n := slices.IndexFunc(append(at[i:], begun.Add(24*time.Hour)), func(other time.Time) bool {
						return other.Sub(begun) >= time.Hour || dateOf(other) != dateOf(begun)
					})
					testkit.Between(t, fmt.Sprint("searches in the hour after ", begun), n, 1, HourOf(perDay))
				}
			})
		}
	}
}

// A day with enough to ask for spends the whole budget, a quarter of it an hour. At midnight an hour begins anew.
func TestASpreadBudgetIsSpentOverTheDay(t *testing.T) {
	inBubble(t, "all day", func(t *testing.T) {
		s := newSpender(t, t.TempDir(), 100)
		s.ledger.Spread()
		for hour, want := range []int{25, 25, 25, 25, 0} {
			testkit.Equal(t, fmt.Sprint("searches in hour ", hour), s.drain(t), want)
			if h := s.ledger.Hold(100, time.Now()); hour < 3 {
				testkit.Equal(t, fmt.Sprint("what is spent in hour ", hour), h.Portion, AnHour)
				testkit.Between(t, fmt.Sprint("held in hour ", hour), time.Until(h.Until), 0, time.Hour+slot)
				time.Sleep(time.Until(h.Until))
			}
		}
		midnight := midnightAfter(time.Now().Local()).AddDate(0, 0, 1)
		time.Sleep(time.Until(midnight) - 10*time.Minute)
		testkit.Equal(t, "searches late the next day", s.drain(t), 25)
		testkit.Equal(t, "held until", s.ledger.Hold(100, time.Now()).Until, midnight)
		time.Sleep(time.Until(midnight))
		testkit.Equal(t, "after midnight", s.ledger.Allowance(100, time.Now()), Allowance{Left: 100, Now: 25})
	})
	// Of the searches of this hour some are then in the future. They do not count, but their reservation does.
	inBubble(t, "the clock is set back after a reservation", func(t *testing.T) {
		s := newSpender(t, t.TempDir(), 1000)
		s.ledger.Spread()
		time.Sleep(4 * time.Minute)
		s.spend(t, HourOf(1000)-5)
		time.Sleep(2 * time.Minute)
		testkit.Equal(t, "more searches in this hour", s.drain(t), 5)
		s.ledger.clock = func() time.Time { return time.Now().Add(-2 * time.Minute) }
		for range 5 {
			saved, _, _ := s.ledger.tryTake(1000, s.report)
			if saved == nil {
				return
			}
			<-saved.done
		}
		t.Error("a search waits for one look at the disk after the other")
	})
}

// One client that asks all day must not spend the money, nor the budget of the others.
func TestAFloodSpendsOnlyWhatOthersDoNotNeed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const budget, users = 1000, 10
		time.Sleep(time.Until(NextDay(time.Now()))) // less is kept for others when the first day is a part of one
		s := newSpender(t, t.TempDir(), budget)
		s.ledger.Spread()
		shares := s.ledger.Shares(budget, 10, nil)
		ask := func(client byte) bool {
			return shares.Take(netip.AddrFrom4([4]byte{192, 0, 2, client}), time.Now()) && s.search(t) == nil
		}
		for turn := range 24 * 20 { // each user asks twice an hour
			for range 18 {
				ask(users)
				time.Sleep(10 * time.Second)
			}
			testkit.Equal(t, fmt.Sprint("a search of a user in turn ", turn), ask(byte(turn%users)), true)
		}
		testkit.Between(t, "searches of the budget, which is nearly spent", s.sent, budget*9/10, budget)
	})
}

// A clock that was ahead, or is set back, holds up no search for longer than the day.
func TestAnHourSurvivesAClockThatJumps(t *testing.T) {
	now := time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)
	for name, jump := range map[string]time.Duration{"ahead": 73 * 365 * 24 * time.Hour, "an hour ahead": time.Hour, "back": -90 * time.Minute} {
		var r recent
		r = r.plus(10, now.Add(jump)).plus(5, now)
		testkit.Equal(t, name+": those that count", r.sum(now), 5)
		testkit.Between(t, name+": it lasts for", r.frees(5, now).Sub(now), 0, time.Hour+slot)
	}
}
