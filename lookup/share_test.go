package lookup

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
)

// purse is a budget that counts exactly.
type purse struct{ day, spent int }

// left is for NewShares. The hour is the day.
func (p *purse) left(time.Time) (Budget, bool) {
	left := p.day - p.spent
	return Budget{Day: p.day, Left: left, Hour: p.day, Now: left}, true
}

// walled returns Shares that let one client take n a day, and no more: all others are reserved for others.
func walled(n int) *Shares {
	s := NewShares(1, (&purse{day: 100 * n}).left, nil)
	var past []Use
	for _, date := range []string{"1999-12-31", "2025-12-31", "2026-11-21"} {
		past = append(past, Use{Date: date, Clients: 2, Kept: 1 << 20})
	}
	s.Remember(past)
	return s
}

// takes returns how many of n searches a client may begin.
func takes(s *Shares, client string, now time.Time, n int) (got int) {
	for range n {
		if s.Take(netip.MustParseAddr(client), now) {
			got++
		}
	}
	return got
}

// It is told to people, and to clients, which take no other for a budget.
func TestWhatIsLeftOfAStaleBudgetIsNoMoreThanADays(t *testing.T) {
	b := Budget{Day: 100, Left: 5, Hour: 25, Now: 5}.Stale()
	for _, percent := range []int{DefaultShare, 100} {
		s := NewShares(percent, func(time.Time) (Budget, bool) { return b, true }, nil)
		got, known := s.For(netip.MustParseAddr("192.0.2.1"), time.Now())
		testkit.Between(t, fmt.Sprint(percent, "%: now"), got.Now, 1, got.Left)
		testkit.Between(t, fmt.Sprint(percent, "%: left, known ", known), got.Left, 1, map[bool]int{true: got.Day}[known])
	}
}

func TestAShareIsForASiteAndADay(t *testing.T) {
	s := walled(3)
	midnight := time.Date(2026, 11, 23, 0, 0, 0, 0, time.Local)
	evening := midnight.Add(-time.Hour)
	for _, step := range []struct {
		name, client string
		now          time.Time
		asked, want  int
	}{
		{"a client", "192.0.2.1", evening, 5, 3},
		{"the same client over IPv6", "::ffff:192.0.2.1", evening, 1, 0},
		{"another client", "192.0.2.2", evening, 2, 2},
		{"it continues", "192.0.2.2", evening, 2, 1},
		{"a site", "2001:db8:0:1::1", evening, 3, 3},
		{"another network of that site", "2001:db8:0:2::1", evening, 1, 0},
		{"its last address", "2001:db8:0:ff:ffff::2", evening, 1, 0},
		{"another site", "2001:db8:0:100::1", evening, 1, 1},
		{"a client of a link", "fe80::1%eth0", evening, 3, 3},
		{"the same one", "fe80::1%eth1", evening, 1, 0},
		{"just before midnight", "192.0.2.1", midnight.Add(-1), 1, 0},
		{"midnight", "192.0.2.1", midnight, 4, 3},
		{"the clock is set back", "192.0.2.1", evening, 1, 0},
		{"and forward again", "192.0.2.1", midnight, 1, 0},
	} {
		testkit.Equal(t, step.name, takes(s, step.client, step.now, step.asked), step.want)
	}
}

// A clock that was ahead for a while must not leave a client without a share until a restart.
func TestAClientHasItsShareEachDayAfterAClockThatWasAhead(t *testing.T) {
	for name, ahead := range map[string]time.Duration{"73 years": 73 * 365 * 24 * time.Hour, "a day": 24 * time.Hour, "an hour, over midnight": 11 * time.Hour} {
		s := walled(3)
		day := time.Date(2026, 11, 22, 13, 30, 0, 0, time.Local)
		take := func(now time.Time) int { return takes(s, "192.0.2.1", now, 9) }
		take(day)
		take(day.Add(ahead))
		testkit.Equal(t, name+": when the clock is back on the same day", take(day), 0)
		for i := range 5 {
			if got := take(day.AddDate(0, 0, i+1)); got != 3 && !(got == 0 && dateOf(day.Add(ahead)) == dateOf(day.AddDate(0, 0, i+1))) {
				t.Errorf("%s: %d searches %d days later, want 3", name, got, i+1)
			}
		}
	}
}

func TestAShareIsGivenBackOnTheSameDayOnly(t *testing.T) {
	s := walled(2)
	client := netip.MustParseAddr("192.0.2.1")
	today := time.Date(2026, 11, 22, 12, 0, 0, 0, time.Local)
	tomorrow := today.AddDate(0, 0, 1)
	take := func(now time.Time, want int) {
		t.Helper()
		testkit.Equal(t, "searches that are taken", takes(s, client.String(), now, 5), want)
	}
	take(today, 2)
	s.GiveBack(client, today)
	take(today, 1)
	take(tomorrow, 2)
	s.GiveBack(client, today)
	take(tomorrow, 0)
	for range 9 {
		s.GiveBack(client, tomorrow)
	}
	take(tomorrow, 2)
}

// Status says that names of refused clients pass: none does if it is coverage or look-back that has to stop.
func TestWhoIsNoClientHasAShareAndIsNotCounted(t *testing.T) {
	now := time.Date(2026, 11, 23, 12, 0, 0, 0, time.Local)
	for _, nobody := range []netip.Addr{Program, {}} {
		told := 0
		s := walled(2)
		s.noted = func() { told++ }
		got := 0
		for range 5 {
			if s.Take(nobody, now) {
				got++
			}
		}
		s.GiveBack(nobody, now)
		today := func() Use { return s.Uses(now)[len(s.Uses(now))-1] }
		testkit.Equal(t, nobody, []any{got, told, today()}, []any{2, 0, Use{Date: dateOf(now)}})
		takes(s, "192.0.2.1", now, 5)
		want := Use{Date: dateOf(now), Clients: 1, Kept: 2, Refused: 1}
		testkit.Equal(t, fmt.Sprint("a client beside ", nobody), []any{told, today()}, []any{1, want})
	}
}

// A forwarder that this process does not know yet is one that must not go without because of coverage.
func TestWhatALoneClientNeedsIsReservedFromWhoIsNone(t *testing.T) {
	now := time.Date(2026, 11, 23, 12, 0, 0, 0, time.Local)
	s := NewShares(10, (&purse{day: 200}).left, nil)
	s.Remember([]Use{{Date: "2026-11-22", Clients: 1, Kept: 20}})
	b, _ := s.For(Program, now)
	c, _ := s.For(netip.MustParseAddr("192.0.2.1"), now)
	testkit.Equal(t, "left for a program and for a client", []int{b.Left, c.Left}, []int{180, 200})
}

func TestSharesForgetClientsThatAreTooMany(t *testing.T) {
	s := walled(1)
	for i := range maxClients + 1 {
		s.Take(netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}), epoch)
	}
	testkit.Equal(t, "clients that are remembered, as PerClient says", s.spent.Len(), 16_384)
}

func TestAdmissionAsksTheLimiterFirst(t *testing.T) {
	client := netip.MustParseAddr("192.0.2.1")
	testkit.Equal(t, "admission without limits", AdmitBy(nil, nil, client), nil)
	synctest.Test(t, func(t *testing.T) {
		limiter, shares := PerClient(LeakyBucket{Rate: 1, Capacity: 2}.Admit), walled(3)
		admit := AdmitBy(limiter, shares, client)
		admits := func(admit Admit, want error) (refund func()) {
			t.Helper()
			refund, err := admit()
			testkit.Is(t, "admission", err, want)
			return refund
		}
		refund := admits(admit, nil)
		admits(admit, nil)
		admits(AdmitBy(limiter, shares, netip.MustParseAddr("::ffff:192.0.2.1")), ErrLimited) // the same client
		time.Sleep(2 * time.Second)
		admits(admit, nil)
		admits(admit, ErrBudget)
		admits(admit, ErrLimited) // the limiter has noted that one, too
		time.Sleep(2 * time.Second)
		refund()
		admits(AdmitBy(nil, shares, client), nil)
		admits(AdmitBy(nil, shares, client), ErrBudget)
		testkit.Equal(t, "refund without shares", admits(AdmitBy(limiter, nil, client), nil), nil)
	})
}

// account is an Admit that notes what is charged and refunded.
type account struct{ charged, refunded int }

func (a *account) admit() (func(), error) {
	a.charged++
	return func() { a.refunded++ }, nil
}

func TestAClientIsChargedForTheSearchesThatItCauses(t *testing.T) {
	for _, test := range []struct {
		perSearch    int
		first, other int // searches that are charged
		sizes        []int
	}{
		{0, 1, 1, []int{1, 2}}, {MaxPrefixes, 1, 1, []int{1, 2}}, {2, 1, 1, []int{1, 2}}, {1, 1, 2, []int{1, 1, 1}},
	} {
		inBubble(t, fmt.Sprint(test.perSearch, " prefixes a search"), func(t *testing.T) {
			srv := &server{t: t, OnSearch: slowly(time.Second, Answer{TTL: time.Minute})}
			c := checkerOf(t, Config{Searcher: srv, PerSearch: test.perSearch, Searches: 1}, "example.com/", "a.example.com/", "b.a.example.com/")
			var first, other, third account
			waiting := []*Confirmation{
				c.Confirm(suspect(t, c, "example.com."), first.admit),
				c.Confirm(suspect(t, c, "b.a.example.com."), other.admit), // its parent is under way
				c.Confirm(suspect(t, c, "a.example.com."), third.admit),   // all is under way
			}
			for _, w := range waiting {
				decided(t, "charged", w.Wait(t.Context()), Safe, ByServer)
			}
			c.Confirm(suspectAfter(t, c, "b.a.example.com."), third.admit)
			testkit.Equal(t, "charged", []any{first.charged, other.charged, third.charged}, []any{test.first, test.other, 0})
			testkit.Equal(t, "refunds", first.refunded+other.refunded+third.refunded, 0)
			var sizes []int
			for _, prefixes := range srv.searches() {
				sizes = append(sizes, len(prefixes))
			}
			testkit.Equal(t, "prefixes of the searches", sizes, test.sizes)
		})
	}
}

// Where each prefix costs a search, the registrable domain comes first: its threat is one of all hosts below it.
func TestAThreatOfTheDomainSavesTheOtherSearches(t *testing.T) {
	const domain, below, host = "example.com/", "a.example.com/", "b.a.example.com/"
	name := "b.a.example.com."
	for _, test := range []struct {
		name     string
		listed   []string // in the lists
		threats  []string // that the server confirms
		searches []string
		want     string // the expression that is unsafe
	}{
		{"all are threats", []string{domain, below, host}, []string{domain, below, host}, []string{domain}, domain},
		{"the host is one", []string{domain, below, host}, []string{host}, []string{domain, below, host}, host},
		{"the middle is one", []string{domain, below, host}, []string{below, host}, []string{domain, below}, below},
		{"none is one", []string{domain, host}, nil, []string{domain, host}, ""},
		{"one candidate", []string{host}, []string{host}, []string{host}, host},
	} {
		var threats []ThreatHash
		for _, e := range test.threats {
			threats = append(threats, isThreat(e, Malware))
		}
		srv := &server{t: t}
		srv.knows(time.Minute, threats...)
		c := checkerOf(t, Config{Searcher: srv, PerSearch: 1}, test.listed...)
		candidates := suspect(t, c, name)
		before := expressionsOf(candidates)
		got := c.Confirm(candidates, nil).Wait(t.Context())
		testkit.Equal(t, test.name+": unsafe", []any{got.Expression, got.Verdict == Unsafe}, []any{test.want, test.want != ""})
		want := slices.Collect(slices.Chunk(prefixesOf(test.searches...), 1))
		testkit.Equal(t, test.name+": searches", srv.searches(), want)
		again := decide(t, c, name)
		testkit.Equal(t, test.name+": again", []any{again.Verdict, again.By, len(srv.searches())}, []any{got.Verdict, ByCache, len(want)})
		testkit.Equal(t, test.name+": the candidates afterwards", expressionsOf(candidates), before)
	}
}

func TestAQueryThatIsOverAsksNoFurther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := &server{t: t, OnSearch: slowly(time.Second, Answer{TTL: time.Minute})}
		c := checkerOf(t, Config{Searcher: srv, PerSearch: 1}, "example.com/", "www.example.com/")
		for query, want := range []Decision{
			{Verdict: Unsure, By: ByTimeout, List: "list", Err: context.DeadlineExceeded},
			{Verdict: Unsure, By: ByTimeout, List: "list", Err: context.DeadlineExceeded},
			{Verdict: Safe, By: ByCache},
		} {
			got, _ := within(t, c, "www.example.com.")
			time.Sleep(time.Second)
			synctest.Wait()
			testkit.Equal(t, fmt.Sprint("query ", query+1), []any{got, len(srv.searches())}, []any{want, min(query+1, 2)})
		}
	})
}

// suspectAfter returns candidates as a query has them that was checked before the answers came.
func suspectAfter(t *testing.T, c *Checker, qname string) *Candidates {
	t.Helper()
	fresh := checkerOf(t, Config{Database: c.cfg.Database})
	return suspect(t, fresh, qname)
}

func TestTheQueueIsBoundInPrefixes(t *testing.T) {
	const hosts = 1 + 960 + 10 // under way, in the queue as in docs/blocking.md, refused
	for _, perSearch := range []int{1, 30, 240} {
		synctest.Test(t, func(t *testing.T) {
			srv := &server{t: t, OnSearch: hanging}
			c := checkerOf(t, Config{Searcher: srv, PerSearch: perSearch, Searches: 1, Timeout: time.Hour}, manyExpressed(hosts)...)
			var a account
			for i := range hosts {
				w := c.Confirm(suspect(t, c, named(i)), a.admit)
				if i >= 961 {
					want := Decision{Verdict: Unsure, By: ByLimiter, List: "list", Err: ErrLimited}
					testkit.Equal(t, fmt.Sprint("host ", i, ", at once"), w.decision(t.Context()), want)
				}
			}
			testkit.Equal(t, perSearch, []any{a.charged, a.refunded}, []any{hosts, 10})
			c.Close()
			testkit.Equal(t, fmt.Sprint(perSearch, ", refunds at the end"), a.refunded, hosts-1)
		})
	}
}

func at(hour int) time.Time { return time.Date(2026, 11, 23, hour, 0, 0, 0, time.Local) }

func TestWhatIsReservedForOthers(t *testing.T) {
	day := func(date string, clients, kept int) Use { return Use{Date: date, Clients: clients, Kept: kept} }
	for _, test := range []struct {
		name       string
		past       []Use
		today      Use
		own        asker
		hour, want int
	}{
		{"a forwarder that has always been alone", []Use{day("2026-11-21", 1, 20), day("2026-11-22", 1, 20)}, day("2026-11-23", 1, 20), asker{own: 150, new: true}, 9, 0},
		{"a forwarder that this process knows", []Use{day("2026-11-22", 1, 20)}, day("2026-11-23", 1, 20), asker{own: 150, usual: 20}, 9, 0},
		{"another client than the forwarder", []Use{day("2026-11-22", 1, 20)}, day("2026-11-23", 1, 20), asker{own: 150}, 9, 20},
		{"ten clients that need their shares", []Use{day("2026-11-22", 10, 200)}, day("2026-11-23", 1, 20), asker{own: 20, usual: 20}, 9, 180},
		{"ten clients, half of whose need is met", []Use{day("2026-11-22", 10, 200)}, day("2026-11-23", 5, 120), asker{own: 20, usual: 20}, 9, 80},
		{"ten clients that need little", []Use{day("2026-11-22", 10, 30)}, day("2026-11-23", 1, 20), asker{own: 50}, 9, 30},
		{"the busiest day counts", []Use{day("2026-11-20", 2, 40), day("2026-11-21", 3, 9), day("2026-11-22", 1, 2)}, day("2026-11-23", 0, 0), asker{}, 9, 40},
		{"a day that is long ago does not", []Use{day("2026-11-15", 10, 200), day("2026-11-22", 1, 2)}, day("2026-11-23", 0, 0), asker{new: true}, 9, 0},
		{"nor one that has not come", []Use{day("2099-01-01", 10, 200), day("2026-11-22", 1, 2)}, day("2026-11-23", 0, 0), asker{new: true}, 9, 0},
		{"nothing is known, nobody was here", nil, day("2026-11-23", 0, 0), asker{}, 0, 20},
		{"nothing is known, one is here at noon", nil, day("2026-11-23", 1, 20), asker{own: 60}, 12, 10},
		{"nothing is known, one is here late", nil, day("2026-11-23", 1, 20), asker{own: 60}, 23, 1},
		{"nothing is known, others are here", nil, day("2026-11-23", 5, 24), asker{own: 60}, 0, 96},
		{"only the day of an earlier process is known", []Use{day("2026-11-23", 10, 200)}, day("2026-11-23", 1, 20), asker{own: 20}, 12, 200},
	} {
		b := Budget{Day: 200, Left: 200, Hour: 50, Now: 50}
		testkit.Equal(t, test.name, reservedFor(b, 10, test.past, test.today, test.own, at(test.hour)), test.want)
	}
}

// A client cannot spend what others needed in the last days, however many it asks for and whenever.
func TestNoClientSpendsWhatOthersNeed(t *testing.T) {
	flooder := netip.MustParseAddr("203.0.113.9")
	for seed := range uint64(60) {
		chance := rand.New(rand.NewPCG(seed, 4))
		p := &purse{day: 20 + chance.IntN(2000)}
		percent := []int{1, 5, 10, 25}[chance.IntN(4)]
		s := NewShares(percent, p.left, nil)
		share := max(1, p.day*percent/100)
		take := func(client netip.Addr, now time.Time) bool {
			took := s.Take(client, now) && p.spent < p.day
			if took {
				p.spent++
			}
			return took
		}
		clients := make([]netip.Addr, 1+chance.IntN(min(40, 80/percent)))
		needs := make([]int, len(clients))
		for i := range clients {
			clients[i] = netip.AddrFrom4([4]byte{192, 0, 2, byte(i)})
			needs[i] = chance.IntN(1 + min(share, p.day/len(clients)*9/10))
		}
		// Some days as always.
		for back := 1 + chance.IntN(5); back > 0; back-- {
			p.spent = 0
			for i, c := range clients {
				for range needs[i] {
					take(c, at(9).AddDate(0, 0, -back))
				}
			}
		}
		// Today the flooder asks all the time, also before the others come.
		p.spent = 0
		missed := 0
		for hour := range 24 {
			for range p.day {
				take(flooder, at(hour))
			}
			for i, c := range clients {
				for n := range needs[i] {
					if n%24 == hour && !take(c, at(hour)) {
						missed++
					}
				}
			}
		}
		testkit.Equal(t, fmt.Sprintf("seed %d: refused of %d; budget %d, share %d", seed, needs, p.day, share), missed, 0)
		testkit.Between(t, seed, p.spent, 0, p.day)
	}
}

func TestAnHourHasSearchesForThoseWhoComeLater(t *testing.T) {
	spent := 0
	s := NewShares(10, func(time.Time) (Budget, bool) {
		return Budget{Day: 100, Left: 100 - spent, Hour: 25, Now: 25 - spent}, true
	}, nil)
	first, second := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")
	take := func(client netip.Addr) (got int) {
		for s.Take(client, at(12)) && spent < 25 {
			got++
			spent++
		}
		return got
	}
	testkit.Equal(t, "the first client takes", take(first), 20)
	b, _ := s.For(first, at(12))
	other, _ := s.For(second, at(12))
	testkit.Equal(t, "something is left for it, of the day, and for another", []any{b.any(), b.Day, other.Now}, []any{false, 100, 2})
	testkit.Equal(t, "another takes", take(second), 2)
	testkit.Equal(t, "a third takes", take(netip.MustParseAddr("192.0.2.3")), 2)
}

// A clock that was ahead for weeks does not hide the days that come before that time has come.
func TestDaysAreKnownAfterAClockThatWasAhead(t *testing.T) {
	for name, days := range map[string]int{"a week": 8, "three weeks": 21} {
		s, day := walled(3), time.Date(2026, 12, 1, 12, 0, 0, 0, time.Local)
		for i := range days {
			takes(s, "192.0.2.1", day.AddDate(0, 1, i), 1)
		}
		for i := range maxUses {
			now := day.AddDate(0, 0, i)
			takes(s, "192.0.2.1", now, 3)
			for before := range i { // but for the day on which the clock is set right
				if want := (Use{dateOf(now.AddDate(0, 0, -before)), 1, 3, 0}); !slices.Contains(s.Uses(now), want) {
					t.Fatalf("ahead for %s, day %d: %+v is not in %+v", name, i, want, s.Uses(now))
				}
			}
		}
	}
}

func TestUsesOfTheLastDaysAreJoined(t *testing.T) {
	var all []Use
	for i := range keptUses + 2 {
		all = JoinUses(all, []Use{{Date: fmt.Sprintf("2026-12-%02d", i+1), Clients: i, Kept: 5}})
	}
	all = JoinUses([]Use{{Date: "2026-12-30", Clients: 3, Kept: 9, Refused: 1}}, all)
	testkit.Equal(t, "days", []any{len(all), all[keptUses-1], all[0].Date}, []any{keptUses, (Use{"2026-12-30", 29, 9, 1}), "2026-12-03"})
}

// On 32 bits, too: GOARCH=386.
func TestAShareOfALargeBudgetIsThatPercentage(t *testing.T) {
	testkit.Equal(t, "searches of a share", (Budget{Day: 100_000_000}).share(25), 25_000_000)
}
