package lookup

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
)

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
