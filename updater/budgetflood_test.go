package updater_test

import (
	"context"
	"crypto/sha256"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/prefixset"
	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
	"github.com/coredns-safebrowsing/safebrowsing/updater"
)

const (
	floodEvery  = 10 * time.Second // the flooder asks for a new name that is in a list
	floodNames  = int(24 * time.Hour / floodEvery)
	floodBudget = 1000
	users       = 10
	usersEvery  = 30 * time.Minute // each user asks for a name that is in a list
	searchPrice = 0.05             // US$, of Web Risk
)

// chargingServer charges for each prefix.
type chargingServer struct {
	charged map[string]int // searches of the flooder's names, and of the users'
	kinds   map[lookup.Prefix]string
}

func (s *chargingServer) Search(_ context.Context, prefixes []lookup.Prefix) (lookup.Answer, error) {
	answer := lookup.Answer{TTL: 5 * time.Minute}
	for _, p := range prefixes {
		s.charged[s.kinds[p]]++
		for i := range users {
			if hash := lookup.HashExpression(fmt.Sprintf("threat%d.example/", i)); hash.Prefix(4) == p {
				answer.Threats = append(answer.Threats, lookup.ThreatHash{Hash: hash, Threats: lookup.AllThreats, TTL: 5 * time.Minute})
			}
		}
	}
	return answer, nil
}

// floodDatabase holds all names that are asked for in a day, and kinds says whose they are.
func floodDatabase(t *testing.T) (database *lookup.Database, kinds map[lookup.Prefix]string) {
	t.Helper()
	kinds = make(map[lookup.Prefix]string)
	add := func(kind, expression string) {
		sum := sha256.Sum256([]byte(expression))
		kinds[lookup.Prefix(sum[:4])] = kind
	}
	for i := range floodNames {
		add("flooder", fmt.Sprintf("flood%d.example/", i))
	}
	for i := range users {
		add("users", fmt.Sprintf("threat%d.example/", i))
		add("users", fmt.Sprintf("harmless%d.example/", i))
	}
	var entries []string
	for p := range kinds {
		entries = append(entries, string(p))
	}
	slices.Sort(entries)
	b := prefixset.NewBuilder(len(entries))
	for _, e := range entries {
		must(t, b.Add([]byte(e), len(e)))
	}
	database = new(lookup.Database)
	database.Publish([]lookup.List{{Name: "se-4b", Set: b.Set()}})
	return database, kinds
}

// floodedDay is what came of one day.
type floodedDay struct {
	flooder, users int // searches that were charged for
	blocked        int // threats that users asked for and that were blocked
	missed         int // threats that passed
}

// liveFlooded lives through a day with a flooder and users.
func liveFlooded(t *testing.T, budget int, shared bool) floodedDay {
	database, kinds := floodDatabase(t)
	srv := &chargingServer{charged: make(map[string]int), kinds: kinds}
	store, err := updater.OpenStore(t.TempDir(), updater.Origin{Name: "https://sb.example"})
	must(t, err)
	schedule, _ := updater.NewSchedule(store)
	ledger, err := updater.NewLedger(store)
	must(t, err)
	var shares *lookup.Shares
	if shared {
		ledger.Spread()
		shares = ledger.Shares(budget, 10, nil)
	}
	report := func(updater.Event) {}
	paced := updater.Pace(srv, schedule, updater.SearchRules{Backoff: updater.Strikes}, report)
	c, err := lookup.NewChecker(lookup.Config{Database: database, Searcher: ledger.Limit(paced, budget, report), PerSearch: 1, Searches: 1})
	must(t, err)
	defer c.Close()
	limiter := lookup.PerClient(lookup.LeakyBucket{Rate: 10, Capacity: 20}.Admit)
	ask := func(client int, name string) lookup.Decision {
		d, candidates := c.Check(lookup.FromQname(name))
		if candidates == nil {
			return d
		}
		address := netip.AddrFrom4([4]byte{192, 0, 2, byte(client)})
		return c.Confirm(candidates, lookup.AdmitBy(limiter, shares, address)).Wait(t.Context())
	}
	var day floodedDay
	for i := range floodNames {
		ask(0, fmt.Sprintf("flood%d.example.", i))
		if i%(int(usersEvery/floodEvery)/users) == 0 {
			turn := i / (int(usersEvery/floodEvery) / users)
			user := turn % users
			kind := []string{"harmless", "threat"}[turn/users%2]
			d := ask(1+user, fmt.Sprintf("%s%d.example.", kind, user))
			switch {
			case kind == "threat" && d.Verdict == lookup.Unsafe:
				day.blocked++
			case kind == "threat":
				day.missed++
			}
		}
		time.Sleep(floodEvery)
	}
	day.flooder, day.users = srv.charged["flooder"], srv.charged["users"]
	return day
}

// One client that asks for many names that are in a list must not spend the money, nor
// the budget of the others. To see the figures:
//
//	go test ./updater -run Flood -v
func TestAFloodSpendsOnlyWhatOthersDoNotNeed(t *testing.T) {
	testkit.Long(t)
	tests := []struct {
		name   string
		budget int
		shares bool
		check  func(d floodedDay) bool
	}{
		{"no budget", 0, false, func(d floodedDay) bool { return d.flooder == floodNames && d.missed == 0 }},
		{"a budget", floodBudget, false, func(d floodedDay) bool { return d.flooder+d.users == floodBudget && d.missed > d.blocked }},
		{"a budget and shares", floodBudget, true, func(d floodedDay) bool { return d.flooder+d.users <= floodBudget && d.missed == 0 }},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				d := liveFlooded(t, test.budget, test.shares)
				spent := d.flooder + d.users
				t.Logf("%-20s %5d searches, %7.2f US$: %5d of the flooder, %3d of %d users; %3d threats blocked, %3d passed",
					test.name, spent, float64(spent)*searchPrice, d.flooder, d.users, users, d.blocked, d.missed)
				if !test.check(d) || d.blocked+d.missed != int(24*time.Hour/usersEvery)*users/2 {
					t.Errorf("%s: %s", test.name, strings.TrimSpace(fmt.Sprintf("%+v", d)))
				}
			})
		})
	}
}
