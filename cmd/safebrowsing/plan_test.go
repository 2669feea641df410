package main

import (
	"flag"
	"math"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
)

var planQueries = flag.Int("plan.queries", 20, "queries of a line in TestAPlanIsThatOfASimulatedDay; 4000: a real day")

// defaults returns the network of the defaults.
func defaults() (n provision) {
	for _, s := range sources {
		*s.field(&n) = s.value
	}
	return n
}

// near reports whether two numbers differ by a share at most.
func near(got, want, share float64) bool { return math.Abs(got-want) <= share*math.Abs(want) }

// A day of 100,000 lines that ask for names by Zipf's law, in a cache or several, is simulated; the
// day before fills them.
func TestAPlanIsThatOfASimulatedDay(t *testing.T) {
	testkit.Long(t)
	n := defaults()
	n.Lines, n.Queries, n.Names, n.Zipf, n.Entries = 100_000, float64(*planQueries), 1e6, 1.05, 200e6
	for _, x := range []struct{ life, caches float64 }{{1, 1}, {1, 4}, {24, 1}, {1.0 / 12, 1}} {
		got, want := n.tier("", x.caches, x.life).Searches, simulated(n, x.life, int(x.caches))
		t.Logf("answers live %.2f hours, %v caches: planned %.0f searches a day, simulated %.0f", x.life, x.caches, got, want)
		if !near(got, want, 0.10) {
			t.Errorf("answers live %.2f hours, %v caches: planned %.0f searches a day, simulated %.0f", x.life, x.caches, got, want)
		}
	}
}

// simulated returns the searches of the second of two days.
func simulated(n provision, life float64, caches int) (searches float64) {
	r := rand.New(rand.NewPCG(1, 2))
	zipf := rand.NewZipf(r, n.Zipf, 1, uint64(n.Names)-1)
	collides := make([]bool, int(n.Names))
	for i := range collides {
		collides[i] = r.Float64() < n.collides()
	}
	day := int(n.Lines * n.Queries)
	lives := int(float64(day) * life / 24) // in queries
	until := make(map[uint64]int)
	for now := range 2 * day {
		name := zipf.Uint64()
		if at := name*uint64(caches) + uint64(r.IntN(caches)); collides[name] && until[at] <= now {
			until[at] = now + lives
			if now >= day {
				searches++
			}
		}
	}
	return searches
}

func TestAPlanTakesWhatMetricsTell(t *testing.T) {
	text := `process_start_time_seconds 1.7e9
process_cpu_seconds_total 5000
coredns_dns_requests_total{proto="udp"} 9e7
coredns_dns_requests_total{proto="tcp"} 1e7
coredns_safebrowsing_list_entries{list="se-4b"} 4e6
coredns_safebrowsing_list_entries{list="mw-4b"} 1e6
coredns_safebrowsing_requests_total{method="search",outcome="success"} 100
coredns_safebrowsing_requests_total{method="fetch",outcome="success"} 900
`
	file := testkit.Write(t, t.TempDir(), "metrics", text)
	p := decode[planned](t, run(t, "plan", "-json", "-from", file, "-lines", "50").want(0).out)[0]
	if n := p.Network; n.Lines != 50 || n.Entries != 5e6 || !near(n.CPU, 50, 1e-9) || n.Nodes != 1 || n.Names > n.Lines*n.Queries {
		t.Errorf("got %+v", n)
	}
	if m := p.Measured; m == nil || !near(m.Searches/m.Queries, 1e-6, 1e-9) || !near(m.Dollars, m.Searches/20, 1e-9) || !near(m.Month/m.Dollars, 30.44, 1e-3) {
		t.Errorf("got %+v", m)
	}
	relay := `process_start_time_seconds 1.7e9
safebrowsing_relay_clients 7
safebrowsing_relay_searches_total{reason="popular"} 25
safebrowsing_relay_searches_total{reason="new"} 75
coredns_safebrowsing_requests_total{method="search",outcome="success"} 100
`
	p = decode[planned](t, fed(t, relay, "plan", "-json", "-from", "-").want(0).out)[0]
	if p.Measured == nil || p.Network.Nodes != 7 || p.Network.Lines != defaults().Lines || !near(p.Measured.Popular*4, p.Measured.Searches, 1e-9) {
		t.Errorf("from a relay: got %+v, measured %+v", p, p.Measured)
	}
	fed(t, relay, "plan", "-from", "-").want(0, "answers that live twice as long would save ", " a month\n")
	for broken, want := range map[string]string{"": "is missing", "{": "not the text format", "process_start_time_seconds 9e9\n": "less than a minute"} {
		fed(t, broken, "plan", "-from", "-").want(2, want)
	}
}

// The page for providers has what the command prints.
func TestThePageForProvidersHasThePlan(t *testing.T) {
	_, out, _ := invoke(t, "plan")
	page, err := os.ReadFile("../../docs/provider.md")
	testkit.Must(t, err)
	if !strings.Contains(string(page), "\n~~~ txt\n"+out+"~~~\n") {
		t.Errorf("docs/provider.md has another table than\n%s", out)
	}
}
