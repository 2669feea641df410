package main

import (
	"encoding/json"
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

// An access provider of ten million lines: the arithmetic by hand.
func TestAPlanOfAProvider(t *testing.T) {
	p := defaults().plan()
	for what, x := range map[string]struct{ got, want float64 }{
		"queries a second":            {p.Rate, 463_000},
		"at the peak":                 {p.PeakRate, 1.02e6},
		"cores":                       {p.Cores, 23.4},
		"cores behind a cache":        {p.CoresBehind, 3.51},
		"cores of the cache":          {p.CacheCores, 8.15},
		"one name in":                 {p.OneIn, 252},
		"a full update":               {p.Full, 9.87e6},
		"updates a day":               {p.Daily, 6.8e6},
		"bits a second of all":        {p.FleetRate, 0.316e6},
		"bits a second, cold":         {p.ColdRate, 658e6},
		"searches a day":              {p.Tiers[0].Searches, 0.853e6},
		"dollars a day":               {p.Tiers[0].Dollars, 42_600},
		"dollars a line and year":     {p.Tiers[0].Line, 1.56},
		"searches, four regions":      {p.Tiers[1].Searches, 2.28e6},
		"searches saved by an hour":   {p.Saved.Searches, 0.238e6},
		"dollars of that":             {p.Saved.Dollars, 11_900},
		"searches a second to Google": {p.Tiers[0].Rate, 9.9},
	} {
		if !near(x.got, x.want, 0.01) {
			t.Errorf("%s: got %v, want %v", what, x.got, x.want)
		}
	}
	for life, want := range map[float64]float64{24: 0.397e6, 0.5: 1.33e6, 1.0 / 12: 6.09e6} {
		n := defaults()
		n.Life = life
		if got := n.plan().Tiers[0].Searches; !near(got, want, 0.01) {
			t.Errorf("answers of %v hours: %v searches, want %v", life, got, want)
		}
	}
}

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

func TestNumbersOfAPlanAreChecked(t *testing.T) {
	for args, want := range map[string]string{
		"-popular 5":          "a share, from 0 to 1",
		"-lines 0":            "a number above 0",
		"-lines NaN":          "a number above 0",
		"-queries +Inf":       "a number above 0",
		"-life 25":            "up to 24 hours",
		"-price -1":           "0 to 1 US-$",
		"-entries 5e9":        "no more than 4294967295 prefixes",
		"-names 1e12":         "cannot ask for that number of names",
		"-zipf -1":            "an exponent is near 1",
		"-from /nowhere/here": "no such file",
		"more":                "takes flags only",
	} {
		if status, _, errOut := invoke(t, append([]string{"plan"}, strings.Fields(args)...)...); status != 2 || !strings.Contains(errOut, want) {
			t.Errorf("plan %s: exit status %d, %q, want %q", args, status, errOut, want)
		}
	}
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
	status, out, errOut := invoke(t, "plan", "-json", "-from", file, "-lines", "50")
	var p planned
	if err := json.Unmarshal([]byte(out), &p); status != 0 || err != nil {
		t.Fatalf("exit status %d, %v, %s", status, err, errOut)
	}
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
	_, out, _ = feed(t, relay, "plan", "-json", "-from", "-")
	p = planned{}
	if err := json.Unmarshal([]byte(out), &p); err != nil || p.Measured == nil || p.Network.Nodes != 7 || p.Network.Lines != defaults().Lines ||
		!near(p.Measured.Popular*4, p.Measured.Searches, 1e-9) {
		t.Errorf("from a relay: got %+v, measured %+v, %v", p, p.Measured, err)
	}
	if _, out, _ := feed(t, relay, "plan", "-from", "-"); !strings.Contains(out, "answers that live twice as long would save ") || !strings.Contains(out, " a month\n") {
		t.Errorf("from a relay: got %s", out)
	}
	for broken, want := range map[string]string{"": "is missing", "{": "not the text format", "process_start_time_seconds 9e9\n": "less than a minute"} {
		if status, _, errOut := feed(t, broken, "plan", "-from", "-"); status != 2 || !strings.Contains(errOut, want) {
			t.Errorf("metrics %q: exit status %d, %q, want %q", broken, status, errOut, want)
		}
	}
}

// The page for providers has what the command prints.
func TestThePageForProvidersHasThePlan(t *testing.T) {
	_, out, _ := invoke(t, "plan")
	page, err := os.ReadFile("../../docs/provider.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(page), "\n~~~ txt\n"+out+"~~~\n") {
		t.Errorf("docs/provider.md has another table than\n%s", out)
	}
}
