package lookup

import (
	"context"
	"fmt"
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
		{"another site", "2001:db8:0:100::1", evening, 1, 1},
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
		admits(admit, ErrLimited)
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
