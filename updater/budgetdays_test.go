package updater

import (
	"errors"
	"fmt"
	"maps"
	"testing"
	"time"
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
				next, fresh := days.on(s.date)
				if fresh != s.fresh || next.spent() != s.want || next.Day != s.date {
					t.Errorf("step %d: %s is fresh: %t, with %d spent, want %t and %d", i+1, next.Day, fresh, next.spent(), s.fresh, s.want)
				}
				if !maps.Equal(before, days.Spent) {
					t.Errorf("step %d changed the count before it", i+1)
				}
				if len(next.Spent) > maxDates {
					t.Errorf("step %d: %d dates are remembered", i+1, len(next.Spent))
				}
				days = next.with("me", next.part("me").Spent+s.spend, nil)
			}
		})
	}
}

func TestAMonthOfDaysIsNotRemembered(t *testing.T) {
	var days budgetDays
	for day := range 30 {
		days, _ = days.on(fmt.Sprintf("2026-11-%02d", day+1))
	}
	want := map[string]int{"2026-11-27": 0, "2026-11-28": 0, "2026-11-29": 0, "2026-11-30": 0}
	if !maps.Equal(days.Spent, want) {
		t.Errorf("%v, want the last days", days.Spent)
	}
}

func TestACountWithAnotherNumberIsACopy(t *testing.T) {
	var none budgetDays
	one := none.with("me", 1, nil)
	if two := one.with("me", 2, nil); none.spent() != 0 || one.spent() != 1 || two.spent() != 2 {
		t.Errorf("%v, %v and %v, want 0, 1 and 2", none, one, two)
	}
}

func TestOnlyAWholeCountIsRead(t *testing.T) {
	good := `{"day":"2026-11-22","spent":{"2026-11-21":1000,"2026-11-22":17}}`
	if got, err := parseBudget([]byte(good)); err != nil || got.spent() != 17 {
		t.Errorf("%v, %v", got, err)
	}
	for name, raw := range map[string]string{
		"empty": "", "cut": good[:40], "no JSON": "\x00\x00\x00", "null": "null", "no day": `{"spent":{"2026-11-22":17}}`,
		"no count of the day": `{"day":"2026-11-22","spent":{"2026-11-21":17}}`, "below zero": `{"day":"2026-11-22","spent":{"2026-11-22":-1}}`,
		"no date": `{"day":"today","spent":{"today":17}}`, "more than a number": `{"day":"2026-11-22","spent":{"2026-11-22":1e30}}`,
	} {
		if got, err := parseBudget([]byte(raw)); !errors.Is(err, ErrDamaged) {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
}

func TestTheNextDayBeginsAtMidnightWherever(t *testing.T) {
	tests := []struct {
		name, zone, now, want string
	}{
		{"no change", "Europe/Berlin", "2026-11-22T23:59:59+01:00", "2026-11-23T00:00:00+01:00"},
		{"at midnight", "Europe/Berlin", "2026-11-22T00:00:00+01:00", "2026-11-23T00:00:00+01:00"},
		{"a day of 23 hours", "Europe/Berlin", "2026-03-29T00:00:00+01:00", "2026-03-30T00:00:00+02:00"},
		{"a day of 25 hours", "Europe/Berlin", "2026-10-25T00:00:00+02:00", "2026-10-26T00:00:00+01:00"},
		{"the end of a year", "America/New_York", "2026-12-31T12:00:00-05:00", "2027-01-01T00:00:00-05:00"},
		{"no midnight", "America/Sao_Paulo", "2018-11-03T22:00:00-03:00", "2018-11-04T01:00:00-02:00"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			zone, err := time.LoadLocation(test.zone)
			if err != nil {
				t.Skip(err)
			}
			now, err := time.Parse(time.RFC3339, test.now)
			must(t, err)
			if got := midnightAfter(now.In(zone)).Format(time.RFC3339); got != test.want {
				t.Errorf("after %s comes %s, want %s", test.now, got, test.want)
			}
		})
	}
}

func TestReservationsShrinkNearTheEnd(t *testing.T) {
	for _, test := range []struct{ perDay, spent, want int }{
		{1, 0, 1}, {1, 1, 0}, {99, 0, 1}, {1000, 0, 10}, {1000, 990, 2}, {1000, 997, 1}, {1000, 1000, 0}, {1000, 2000, 0},
		{100_000, 0, 50}, {100_000, 99_900, 25},
	} {
		if got := chunk(test.perDay, test.spent); got != test.want {
			t.Errorf("%d of %d spent: %d are reserved, want %d", test.spent, test.perDay, got, test.want)
		}
	}
}

// Each date has the higher count of both. Of the dates the latest ones are remembered, and the
// current one always.
func TestMergedCountsKeepTheHigherOne(t *testing.T) {
	type counts = map[string]int
	for _, test := range []struct {
		name       string
		a, b, want budgetDays
	}{
		{"nothing", budgetDays{}, budgetDays{}, budgetDays{Spent: counts{}}},
		{"only one knows a date", budgetDays{Day: "2026-11-22", Spent: counts{"2026-11-22": 3}}, budgetDays{}, budgetDays{Day: "2026-11-22", Spent: counts{"2026-11-22": 3}}},
		{"the same date", budgetDays{Day: "2026-11-22", Spent: counts{"2026-11-22": 3}}, budgetDays{Day: "2026-11-22", Spent: counts{"2026-11-22": 5}}, budgetDays{Day: "2026-11-22", Spent: counts{"2026-11-22": 5}}},
		{
			"several dates", budgetDays{Day: "2026-11-22", Spent: counts{"2026-11-21": 9, "2026-11-22": 3}}, budgetDays{Day: "2026-11-23", Spent: counts{"2026-11-21": 2, "2026-11-23": 1}},
			budgetDays{Day: "2026-11-23", Spent: counts{"2026-11-21": 9, "2026-11-22": 3, "2026-11-23": 1}},
		},
		{
			"more dates than are remembered", budgetDays{Day: "2026-11-22", Spent: counts{"2026-11-18": 1, "2026-11-20": 2, "2026-11-22": 3}},
			budgetDays{Day: "2026-11-21", Spent: counts{"2026-11-17": 5, "2026-11-19": 6, "2026-11-21": 7}},
			budgetDays{Day: "2026-11-22", Spent: counts{"2026-11-19": 6, "2026-11-20": 2, "2026-11-21": 7, "2026-11-22": 3}},
		},
	} {
		for _, got := range []budgetDays{test.a.join(test.b), test.b.join(test.a)} {
			got, _ = got.on(got.Day)
			if got.Day != test.want.Day || !maps.Equal(got.Spent, test.want.Spent) {
				t.Errorf("%s: %v, want %v", test.name, got, test.want)
			}
		}
	}
}

func TestTheNextDayBeginsAtMidnightOfLocalTime(t *testing.T) {
	now := time.Now()
	next := NextDay(now)
	if !next.After(now) || dateOf(next) == dateOf(now) || dateOf(next.Add(-time.Second)) != dateOf(now) {
		t.Errorf("after %s: %s", now, next)
	}
}
