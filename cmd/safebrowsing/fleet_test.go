package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/config"
	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
)

// blockOf returns a block of a document: the first one in a language after a text.
func blockOf(t *testing.T, document, after, language string) string {
	t.Helper()
	_, rest, found := strings.Cut(document, after)
	_, block, begins := strings.Cut(rest, "\n~~~ "+language+"\n")
	block, _, ends := strings.Cut(block, "\n~~~\n")
	if !found || !begins || !ends {
		t.Fatalf("there is no block of %s after %q", language, after)
	}
	return block + "\n"
}

// Two commands of the page start a relay; the doctor and a Corefile of the page reach it; the metrics of its alerts are there.
func TestTheSmallOfficeOfTheDocumentsWorks(t *testing.T) {
	page := read(t, filepath.Join("..", "..", "docs", "fleet.md"))
	office := "\n## In a small office\n"
	testkit.Long(t)
	programs, err := testkit.Build(t.TempDir(), "safebrowsing-relay")
	testkit.Must(t, err)
	w := newWorld(t)
	w.SetKey("GOOGLE")
	t.Chdir(t.TempDir())
	write(t, "safebrowsing.key", "GOOGLE\n")
	commands := strings.Split(strings.TrimSpace(blockOf(t, page, office, "sh")), "\n")
	if len(commands) != 2 {
		t.Fatalf("%d commands, want the two that the page promises: %q", len(commands), commands)
	}
	status, out := testkit.Run(t, "sh", "-c", commands[0])
	expect(t, commands[0]+": "+out, status, 0)
	t.Setenv(config.KeyVariable, "GOOGLE")
	run(t, "update", "-now", "-db", "relay", "-endpoint", w.endpoint).want(0)
	t.Setenv(config.KeyVariable, "")
	w.ClientStarted()
	args := strings.Fields(strings.Replace(commands[1], "192.168.1.2:8099", "127.0.0.1:0", 1))
	expect(t, "command", args[0], "safebrowsing-relay")
	p := testkit.Start(t, programs["safebrowsing-relay"], append(args[1:], "-endpoint", w.endpoint, "-admin", "127.0.0.1:0")...)
	_, metrics, _ := strings.Cut(strings.TrimSpace(p.Line("Metrics: ", time.Minute)), "Metrics: ")
	_, url, _ := strings.Cut(strings.TrimSpace(p.Line("    endpoint ", time.Minute)), "endpoint ")
	testkit.WantOK(t, strings.TrimSuffix(metrics, "/metrics")+"/readyz")
	expect(t, "its folder is there", exists("relay"), true)
	here := strings.NewReplacer("http://192.168.1.2:8099", url, "/etc/coredns/relay-client.key", "clients.key")
	doctor := strings.Fields(here.Replace(blockOf(t, page, "Check it from", "sh")))
	run(t, doctor[1:]...).want(0, "it accepts the key and offers 3 lists", "se-4b 2 entries, mw-4b 1 entry", "ok       confirm").quiet()
	write(t, "other.key", "OTHER\n")
	run(t, "doctor", "-endpoint", url, "-api-key-file", "other.key").want(1, "this relay needs a key", "from the file of its -client-key-file").not("OTHER")
	write(t, "Corefile", here.Replace(blockOf(t, page, office, "corefile")))
	_, found, _ := examine(t, "Corefile")
	wantIs(t, found["server"], isOK)
	write(t, "Corefile", strings.Replace(read(t, "Corefile"), "clients.key", "other.key", 1))
	_, found, _ = examine(t, "Corefile")
	wantIs(t, found["server"], isProblem, "→ api_key_file needs a key that the server knows")
	served := testkit.Body(t, metrics)
	// A plan as if the relay ran for an hour: with its one client, and with what its one search, of doctor, costs.
	begun := fmt.Sprintf("\nprocess_start_time_seconds %d\n", time.Now().Add(-time.Hour).Unix())
	hour := regexp.MustCompile(`\nprocess_start_time_seconds .*\n`).ReplaceAllString(served, begun)
	plan := decode[planned](t, fed(t, hour, "plan", "-json", "-from", "-").want(0).out)[0]
	m, n := plan.Measured, plan.Network
	expect(t, "clients, nodes, lines", [3]float64{m.Clients, n.Nodes, n.Lines}, [3]float64{1, 1, defaults().Lines})
	wantNear(t, "searches", m.Searches, 24, 0.01)
	wantNear(t, "dollars", m.Dollars, 1.2, 0.01)
	watched, _, _ := strings.Cut(blockOf(t, page, "\n## Watch it\n", "txt"), " ")
	testkit.WantParts(t, served, "\n"+watched, "\ncoredns_safebrowsing_list_last_success_timestamp_seconds{")
}

var planQueries = flag.Int("plan.queries", 20, "queries of a line in TestAPlanIsThatOfASimulatedDay; 4000: a real day")

func defaults() (n provision) {
	for _, s := range sources {
		*s.field(&n) = s.value
	}
	return n
}

// wantNear wants two numbers to differ by a share at most.
func wantNear(t *testing.T, what string, got, want, share float64) {
	t.Helper()
	testkit.Between(t, what, got, want-share*want, want+share*want)
}

// A day of 100,000 lines that ask for names by Zipf's law, in a cache or several, is simulated; the day before fills them.
func TestAPlanIsThatOfASimulatedDay(t *testing.T) {
	testkit.Long(t)
	n := defaults()
	n.Lines, n.Queries, n.Names, n.Zipf, n.Entries = 100_000, float64(*planQueries), 1e6, 1.05, 200e6
	for _, x := range []struct{ life, caches float64 }{{1, 1}, {1, 4}, {24, 1}, {1.0 / 12, 1}} {
		got, want := n.tier("", x.caches, x.life).Searches, simulated(n, x.life, int(x.caches))
		t.Logf("answers live %.2f hours, %v caches: planned %.0f searches a day, simulated %.0f", x.life, x.caches, got, want)
		wantNear(t, "searches", got, want, 0.10)
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
	n, m := p.Network, p.Measured
	expect(t, "lines, entries, nodes", [3]float64{n.Lines, n.Entries, n.Nodes}, [3]float64{50, 5e6, 1})
	wantNear(t, "processor", n.CPU, 50, 1e-9)
	testkit.Between(t, "names", n.Names, 0, n.Lines*n.Queries)
	wantNear(t, "searches of a query", m.Searches/m.Queries, 1e-6, 1e-9)
	wantNear(t, "dollars", m.Dollars, m.Searches/20, 1e-9)
	wantNear(t, "dollars of a month", m.Month/m.Dollars, 30.44, 1e-3)
	relay := `process_start_time_seconds 1.7e9
safebrowsing_relay_clients 7
safebrowsing_relay_searches_total{reason="popular"} 25
safebrowsing_relay_searches_total{reason="new"} 75
coredns_safebrowsing_requests_total{method="search",outcome="success"} 100
`
	p = decode[planned](t, fed(t, relay, "plan", "-json", "-from", "-").want(0).out)[0]
	expect(t, "nodes, lines", [2]float64{p.Network.Nodes, p.Network.Lines}, [2]float64{7, defaults().Lines})
	wantNear(t, "popular searches", p.Measured.Popular*4, p.Measured.Searches, 1e-9)
	fed(t, relay, "plan", "-from", "-").want(0, "answers that live twice as long would save ", " a month\n")
	for broken, want := range map[string]string{"": "is missing", "{": "not the text format", "process_start_time_seconds 9e9\n": "less than a minute"} {
		fed(t, broken, "plan", "-from", "-").want(2, want)
	}
}

// Ctrl-C ends a command also while it waits for what nobody writes.
func TestACommandThatWaitsForInputCanBeInterrupted(t *testing.T) {
	waits, _ := io.Pipe()
	for _, args := range [][]string{{"plan", "-from", "-"}, {"expressions", "-"}} {
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(10*time.Millisecond, cancel)
		runIn(ctx, t, waits, args...).want(2, "context canceled")
	}
}

func TestThePageForProvidersHasThePlan(t *testing.T) {
	out := run(t, "plan").out
	expect(t, "ten names of each line", decode[planned](t, run(t, "plan", "-json", "-lines", "250000").want(0).out)[0].Network.Names, 2.5e6)
	testkit.WantParts(t, read(t, "../../docs/provider.md"), "\n~~~ txt\n"+out+"~~~\n")
}
