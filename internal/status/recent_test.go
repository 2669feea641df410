package status

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/say"
	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

func TestALateNameInASentence(t *testing.T) {
	asked := time.Date(2026, 11, 25, 10, 4, 0, 0, time.Local)
	l := Late{Name: "evil.example", Client: "192.168.1.20", Devices: 1, Asked: asked, Listed: asked.Add(10 * time.Minute), Threat: ListedAs(lookup.SocialEngineering)}
	for name, tc := range map[string]struct {
		alter func(*Late)
		want  string
	}{
		"with its name":  {func(*Late) {}, "192.168.1.20 asked for evil.example at 10:04, listed as phishing at 10:14"},
		"the day before": {func(l *Late) { l.Listed = l.Listed.Add(20 * time.Hour) }, "192.168.1.20 asked for evil.example at 2026-11-25 10:04, listed as phishing at 2026-11-26 06:14"},
		"without":        {func(l *Late) { l.Name = "" }, "1 device asked at 10:04 for a name that is listed as phishing since 10:14"},
		"of several":     {func(l *Late) { l.Name, l.Devices, l.Threat = "", 3, ListedAs(lookup.Malware) }, "3 devices asked at 10:04 for a name that is listed as malware since 10:14"},
	} {
		altered := l
		tc.alter(&altered)
		testkit.Equal(t, name, altered.String(), tc.want)
	}
}

func TestLateNamesAreKeptForADay(t *testing.T) {
	var r Recent
	now := time.Now()
	for i := range 2 * maxLate {
		r.Late([]Late{{Name: fmt.Sprint(i), Listed: now}})
	}
	got := r.LastLate(now)
	testkit.Equal(t, "kept", len(got), maxLate)
	testkit.Equal(t, "the first", got[0].Name, fmt.Sprint(2*maxLate-1))
	testkit.Equal(t, "after a day", r.LastLate(now.Add(lateFor)), []Late{})
}

func TestPagesShowLateNamesOnlyWhereNamesAreShown(t *testing.T) {
	all := []Late{{Name: "a", Client: "c", Devices: 1}, {Name: "b", Client: "d", Devices: 1, Named: true}}
	got := ForPages(all)
	testkit.Equal(t, "names", [4]string{got[0].Name, got[0].Client, got[1].Name, all[0].Name}, [4]string{"", "", "b", "a"})
}

func TestTheDayCountsHowThreatsWereStopped(t *testing.T) {
	var r Recent
	now := time.Date(2026, 3, 5, 12, 0, 0, 0, time.Local)
	for _, b := range []Blocked{{Name: "a", By: "server"}, {Name: "b", By: "cache", Second: true}, {Name: "c", By: "block"}, {Name: "d", By: "server", Second: true}} {
		r.Blocked(b, now)
	}
	r.Unconfirmed(now)
	r.Unconfirmed(now.Add(-2 * time.Hour))
	r.Unconfirmed(now.Add(-13 * time.Hour)) // yesterday
	d := r.Day(20, now)
	testkit.Equal(t, "threats", d.Threats, Threats{InTime: 2, Unconfirmed: 2, Second: 2})
	testkit.Equal(t, "blocked", d.Blocked, 4)
	testkit.Equal(t, "words", d.InWords(), "2 confirmed in time; 2 passed because they could not be confirmed; 2 blocked on the second query")
}

func TestStatusSaysWhatWasListedTooLate(t *testing.T) {
	now := time.Date(2026, 11, 25, 10, 14, 0, 0, time.Local)
	r := Report{At: now, Services: []Service{{Title: "Safe Browsing v5"}}, Today: Day{Threats: Threats{Unconfirmed: 1}}}
	for i := range 5 {
		r.Late = append(r.Late, Late{Name: fmt.Sprintf("n%d.example", i), Client: "192.168.1.20", Devices: 1, Asked: now.Add(-10 * time.Minute), Listed: now, Threat: "phishing"})
	}
	short := printed(&r, (*Printer).Short)
	testkit.WantParts(t, short, "Threats  0 confirmed in time; 1 passed because it could not be confirmed; 0 blocked on the second query\n",
		"Late     192.168.1.20 asked for n0.example at 10:04, listed as phishing at 10:14\n", "n2.example")
	testkit.WantNone(t, short, "n3.example") // no more than three
	testkit.Equal(t, "late names", strings.Count(printed(&r, (*Printer).Long), "  Late     "), 5)
}

func TestSearchesCostMoney(t *testing.T) {
	s := Service{Title: "Web Risk", Spent: 12, Budget: 200, Left: 188, Paid: true}
	testkit.Equal(t, "cost", s.Cost(), "Today 12 searches, 0.60 US-$ of at most 10.00")
	s.Paid = false
	testkit.Equal(t, "of a service that is free", s.Cost(), "")
	for n, want := range map[int]string{0: "0.00", 1: "0.05", 20: "1.00", 1_000_000_000: "50000000.00"} {
		testkit.Equal(t, n, Dollars(n), want)
	}
}

func TestTheThreeNamesThatCostMostAreCounted(t *testing.T) {
	var c Costs
	now := time.Now()
	for i := range 2 * maxCostly {
		c.Searched(fmt.Sprintf("n%d.example", i), 1, now)
		if i%4 == 0 {
			c.Searched("most.example", 2, now)
			c.Searched("more.example", 1, now)
		}
	}
	got := c.Most(now, 3)
	testkit.Equal(t, "names", len(got), 3)
	testkit.Equal(t, "most", got[:2], []Costly{{"most.example", maxCostly}, {"more.example", maxCostly / 2}})
	testkit.Between(t, "kept", len(c.searches), 0, maxCostly)
	testkit.Equal(t, "on the next day", c.Most(now.AddDate(0, 0, 1), 3), []Costly{})
}

func TestBlockedIsCountedForAnHour(t *testing.T) {
	var r, asked Recent // each forgets by itself
	blocked := func(list, name string, at time.Time) {
		r.Blocked(Blocked{List: list, Name: name}, at)
		asked.Blocked(Blocked{List: list, Name: name}, at)
	}
	blocked("se-4b", "old.example", now)
	blocked("se-4b", "a.example", now.Add(30*time.Minute))
	blocked("se-4b", "a.example", now.Add(31*time.Minute))
	blocked("own.txt", "b.example", now.Add(59*time.Minute))
	for _, tc := range []struct {
		after  time.Duration
		counts string
		names  string
	}{
		{59 * time.Minute, "[{se-4b 3} {own.txt 1}]", "b.example 1, a.example 2, old.example 1, "},
		{60 * time.Minute, "[{se-4b 2} {own.txt 1}]", "b.example 1, a.example 2, "},
		{100 * time.Minute, "[{own.txt 1}]", "b.example 1, "},
		{5 * time.Hour, "[]", ""},
	} {
		last := asked.Last("old.example", "", "", now.Add(tc.after))
		counts, names := r.Hour(now.Add(tc.after))
		got := ""
		for _, n := range names {
			got += fmt.Sprintf("%s %d, ", n.Name, n.N)
		}
		testkit.Equal(t, tc.after, fmt.Sprint(counts), tc.counts)
		testkit.Equal(t, tc.after, got, tc.names)
		testkit.Equal(t, fmt.Sprint("the oldest after ", tc.after), last != nil, strings.Contains(got, "old.example"))
	}
	for after := range 6 {
		blocked("se-4b", "each.example", now.Add(5*time.Hour+time.Duration(after)*30*time.Minute))
	}
	each := r.Last("each.example", "", "", now.Add(8*time.Hour))
	testkit.WantParts(t, each.Since(now.Add(6*time.Hour-time.Second)), "blocked 6 times in the last hour")
	without := (&Blocked{N: 1, Threat: "malware"}).Since(now)
	testkit.WantParts(t, without+"\n", ", by the server, as malware\n") // without lists
	testkit.WantParts(t, each.Since(now.Add(8*time.Hour)), "blocked 6 times since "+say.Time(now.Add(5*time.Hour))+", last 30m ago")
	later := now.Add(10 * time.Hour)
	for i := range 3 * maxNames {
		blocked("se-4b", fmt.Sprintf("%d.example", i), later)
	}
	counts, names := r.Hour(later)
	testkit.Equal(t, "names, and kept, and counted", [3]int{len(names), len(r.names), counts[0].N}, [3]int{maxNames, maxNames, 3 * maxNames})
	testkit.Equal(t, "the last", names[0].Name, fmt.Sprintf("%d.example", 3*maxNames-1))
}

// However many names are blocked, none of the hour is denied: of those that are not kept the minute is known,
// and of more than that nobody says that they were not blocked. The memory is bounded.
func TestNoNameOfTheLastHourIsDenied(t *testing.T) {
	var r Recent
	name := func(i int) string { return fmt.Sprintf("%d.example", i) }
	const many = 3 * maxNames
	blockedAt := func(i int) time.Time { return now.Add(time.Duration(i) * 59 * time.Minute / many) }
	for i := range many {
		r.Blocked(Blocked{List: "se-4b", Name: name(i)}, blockedAt(i))
	}
	r.Blocked(Blocked{List: "se-4b", Name: name(0)}, blockedAt(many)) // a second time
	denied := func(i int, at time.Time) bool {
		if b := r.Last(name(i), "", "", at); b != nil {
			return false
		}
		then, want := r.Gone(name(i), "", "", at), blockedAt(i).Truncate(time.Minute)
		if !then.IsZero() && !then.Equal(want) {
			t.Errorf("%s was blocked at %s, and %s is said", name(i), want, then)
		}
		return then.IsZero()
	}
	for i := range many {
		if denied(i, blockedAt(many)) || i > 0 && denied(i, blockedAt(i).Add(59*time.Minute)) {
			t.Fatalf("%s is denied within an hour", name(i))
		}
	}
	at := blockedAt(many)
	testkit.Equal(t, "another name, zone, crowded", [3]bool{denied(many, at), r.Gone(name(1), "other.", "", at).IsZero(), r.Crowded(at)}, [3]bool{true, true, false})
	for i := 1; i < many; i++ {
		if !denied(i, blockedAt(i).Add(61*time.Minute)) {
			t.Fatalf("%s is known after more than an hour", name(i))
		}
	}
	later := now.Add(3 * time.Hour)
	for i := range maxGone + maxNames { // within a minute, after more than an hour
		r.Blocked(Blocked{List: "se-4b", Name: name(i)}, later)
	}
	kept := 0
	for _, m := range r.minutes {
		kept += cap(m.gone)
	}
	testkit.Between(t, "room for hashes", kept, maxGone, 2*maxGone)
	testkit.Equal(t, "crowded", r.Crowded(later), false)
	gone := [2]bool{r.Gone(name(0), "", "", later).IsZero(), r.Gone(name(0), "", "", now).IsZero()}
	testkit.Equal(t, "a minute is not of the last hour, and not when the clock is set back", gone, [2]bool{false, true})
	r.Blocked(Blocked{List: "se-4b", Name: "more.example"}, later)
	crowded := [3]bool{r.Crowded(later), r.Crowded(later.Add(59 * time.Minute)), r.Crowded(later.Add(time.Hour))}
	testkit.Equal(t, "nobody says of other names of this hour that they were not blocked", crowded, [3]bool{true, true, false})
}

func TestADayCountsFromMidnight(t *testing.T) {
	var r Recent
	day := time.Date(2026, 11, 22, 22, 30, 0, 0, time.Local)
	r.Blocked(Blocked{Name: "a.example"}, day)
	want := func(checked int64, at time.Time, day, hour, before Pair) {
		t.Helper()
		d := r.Day(checked, at)
		testkit.Equal(t, at, []Pair{{d.Checked, d.Blocked}, d.Hours[23], d.Hours[21]}, []Pair{day, hour, before})
	}
	want(10, day, Pair{10, 1}, Pair{10, 1}, Pair{})
	next := day.Add(2 * time.Hour) // after midnight
	r.Blocked(Blocked{Name: "a.example"}, next)
	want(15, next, Pair{5, 1}, Pair{5, 1}, Pair{10, 1})
	want(15, day.Add(48*time.Hour), Pair{}, Pair{}, Pair{})
	r.Day(1<<31-1, day.Add(72*time.Hour))
	want(1<<31+1, day.Add(96*time.Hour), Pair{2, 0}, Pair{2, 0}, Pair{}) // after more names than 32 bits have
}

// A day may have 25 hours, and all of them are today's.
func TestTheDayOnWhichClocksAreSetBackIsWhole(t *testing.T) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	testkit.Must(t, err)
	defer func(old *time.Location) { time.Local = old }(time.Local)
	time.Local = berlin
	var r Recent
	for i := range 25 {
		now := time.Date(2026, 10, 25, 0, 30, 0, 0, berlin).Add(time.Duration(i) * time.Hour)
		r.Blocked(Blocked{Name: "a.example"}, now)
		d := r.Day(0, now)
		testkit.Equal(t, fmt.Sprint("blocked at ", now, ", and in this hour"), [2]int{d.Blocked, d.Hours[23].Blocked}, [2]int{i + 1, 1})
	}
}
