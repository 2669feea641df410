package updater_test

import (
	"context"
	"fmt"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/prefixset"
	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
	"github.com/coredns-safebrowsing/safebrowsing/updater"
)

// chargingServer knows threats, and counts the prefixes that it is asked about.
type chargingServer struct {
	threats []lookup.ThreatHash
	charged int
}

func (s *chargingServer) Search(_ context.Context, prefixes []lookup.Prefix) (lookup.Answer, error) {
	s.charged += len(prefixes)
	return lookup.Answer{TTL: 5 * time.Minute, Threats: s.threats}, nil
}

// One client that asks for many names that are in a list must not spend the money, nor the budget of the others.
func TestAFloodSpendsOnlyWhatOthersDoNotNeed(t *testing.T) {
	testkit.Long(t)
	const (
		budget, users = 1000, 10
		floodEvery    = 10 * time.Second // the flooder asks for a new name that is in a list
		floodNames    = int(24 * time.Hour / floodEvery)
		turn          = 18 // of these names; then a user asks, each of them twice an hour
	)
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Until(updater.NextDay(time.Now()))) // less is kept for others when the first day is a part of one
		server, listed := new(chargingServer), make(map[string]bool)
		list := func(name string) (hash lookup.FullHash) {
			hash = lookup.HashExpression(name + "/")
			listed[string(hash[:4])] = true
			return hash
		}
		for i := range floodNames {
			list(fmt.Sprintf("flood%d.example", i))
		}
		for i := range users {
			list(fmt.Sprintf("harmless%d.example", i))
			server.threats = append(server.threats, lookup.ThreatHash{Hash: list(fmt.Sprintf("threat%d.example", i)), Threats: lookup.AllThreats, TTL: 5 * time.Minute})
		}
		b := prefixset.NewBuilder(len(listed))
		for _, e := range sorted(listed) {
			must(t, b.Add([]byte(e), len(e)))
		}
		database := new(lookup.Database)
		database.Publish([]lookup.List{{Name: "se-4b", Set: b.Set()}})
		store := openStore(t, t.TempDir(), updater.Origin{Name: "https://sb.example"})
		schedule, err := updater.NewSchedule(store)
		must(t, err)
		ledger, err := updater.NewLedger(store)
		must(t, err)
		ledger.Spread()
		shares := ledger.Shares(budget, 10, nil)
		report := func(updater.Event) {}
		paced := updater.Pace(server, schedule, updater.SearchRules{Backoff: updater.Strikes}, report)
		c, err := lookup.NewChecker(lookup.Config{Database: database, Searcher: ledger.Limit(paced, budget, report), PerSearch: 1, Searches: 1})
		must(t, err)
		defer c.Close()
		limiter := lookup.PerClient(lookup.LeakyBucket{Rate: 10, Capacity: 20}.Admit)
		ask := func(client int, name string) lookup.Verdict {
			d, candidates := c.Check(lookup.FromQname(name))
			if candidates != nil {
				d = c.Confirm(candidates, lookup.AdmitBy(limiter, shares, netip.AddrFrom4([4]byte{192, 0, 2, byte(client)}))).Wait(t.Context())
			}
			return d.Verdict
		}
		for i := range floodNames {
			ask(0, fmt.Sprintf("flood%d.example.", i))
			if user := i / turn % users; i%turn == 0 && i/turn/users%2 == 0 {
				ask(1+user, fmt.Sprintf("harmless%d.example.", user))
			} else if i%turn == 0 && ask(1+user, fmt.Sprintf("threat%d.example.", user)) != lookup.Unsafe {
				t.Errorf("a threat passes after %s", time.Duration(i)*floodEvery)
			}
			time.Sleep(floodEvery)
		}
		testkit.Between(t, "searches of the budget, which is nearly spent", server.charged, budget*9/10, budget)
	})
}
