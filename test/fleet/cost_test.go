package fleet

import (
	"flag"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
)

var processes = flag.Int("processes", 8, "how many CoreDNS are clients of a relay at once; nightly 64")

// What reaches the server behind a relay is what one client costs, however many there are. The relay is a process. So are the clients
// of the first rows; 500 clients are engines in this process, with sockets of their own. Each client has a judging server of its own
// when there is no relay.
func TestAFleetCostsWhatOneClientCosts(t *testing.T) {
	testkit.Long(t)
	for _, tc := range []struct {
		clients, names int
		start          func(testing.TB, []string) []client
	}{
		{1, 90, startResolvers},
		{*processes, 90, startResolvers},
		{500, 30, inThisProcess},
	} {
		t.Run(fmt.Sprint(tc.clients), func(t *testing.T) {
			names := population(tc.names)
			alone := measure(t, tc.clients, names, tc.start, false)
			behind := measure(t, tc.clients, names, tc.start, true)
			t.Logf("%d clients, %d names: %+v without a relay, %+v behind one", tc.clients, tc.names, alone, behind)
			one := cost{1, listed(names), listed(names)}
			wantCosts(t, "without a relay", alone, cost{tc.clients, tc.clients * one.searches, tc.clients * one.prefixes})
			wantCosts(t, "behind a relay", behind, one)
		})
	}
}

// wantCosts wants the fetches of another cost, and its prefixes give or take 5 %. Searches may be fewer: prefixes share them.
func wantCosts(t *testing.T, what string, got, want cost) {
	t.Helper()
	testkit.Equal(t, what+": requests for lists", got.fetches, want.fetches)
	testkit.Between(t, what+": searches", got.searches*20, 0, want.searches*21)
	testkit.Between(t, what+": prefixes", got.prefixes*20, want.prefixes*19, want.prefixes*21)
}

func inThisProcess(t testing.TB, endpoints []string) []client {
	return asClients(startEmbedded(t, endpoints))
}

func asClients(engines []*embedded) (all []client) {
	for _, c := range engines {
		all = append(all, c)
	}
	return all
}

// measure lets n clients decide about names and returns what that costs.
func measure(t *testing.T, n int, names []name, start func(testing.TB, []string) []client, relayed bool) (c cost) {
	t.Helper()
	t.Run(fmt.Sprintf("relay %t", relayed), func(t *testing.T) { // the clients end with this test
		var servers []*judged
		var endpoints []string
		for len(servers) < n && (len(servers) == 0 || !relayed) {
			g := judge(t, names, nil)
			servers, endpoints = append(servers, g), append(endpoints, g.url)
		}
		if relayed {
			endpoints = slices.Repeat([]string{startRelay(t, servers[0].url).url}, n)
		}
		decideAll(t, start(t, endpoints), names)
		c = costOf(servers...)
	})
	return c
}

// decideAll lets all clients decide about all names, at the same time and each beginning with another name.
func decideAll[C client](t testing.TB, clients []C, names []name) {
	t.Helper()
	var wg sync.WaitGroup
	for i, c := range clients {
		wg.Go(func() {
			for _, name := range rotated(names, i, len(clients)) {
				if got, err := c.verdict(name.host); got != name.verdict() {
					t.Errorf("client %d, %s: verdict %s, want %s: %v", i, name.host, got, name.verdict(), err)
				}
			}
		})
	}
	wg.Wait()
}
