package test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol"
	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
)

// suspicious publishes a list with n hosts that the server does not confirm, and with
// more expressions. It returns the names of the hosts.
func (w *world) suspicious(n int, expressions ...string) (names []string) {
	for i := range n {
		names = append(names, fmt.Sprintf("collides%d.example.", i))
		expressions = append(expressions, fmt.Sprintf("collides%d.example/", i))
	}
	w.publish("se-4b", expressions...)
	return names
}

func (w *world) askFrom(address, name string) *dns.Msg {
	w.t.Helper()
	answer, _, err := clientAt(address).Exchange(query(name, dns.TypeA), w.address("udp"))
	if err != nil {
		w.t.Fatalf("Asking for %s from %s: %v", name, address, err)
	}
	return answer
}

func (w *world) left() int {
	w.t.Helper()
	return int(testkit.Metric(w.t, "budget_remaining", "endpoint", w.endpoint))
}

// A day's budget is spent once, whatever is reloaded or restarted.
func TestABudgetHoldsOverReloadsAndRestarts(t *testing.T) {
	for _, d := range protocol.Dialects() {
		t.Run(d.Name, func(t *testing.T) {
			testkit.SameDay(t)
			lines := testkit.Capture(t)
			w := newWorld(t)
			w.protocol = d
			w.threaten("known.example/")
			names := w.suspicious(9, "known.example/")
			w.google.SetBudget(5, time.Now().Add(-time.Hour))
			const five = "budget 5 100%"
			w.run(five, "explain")
			w.wantBlocked("known.example.", dns.TypeA, "suspected social engineering ("+d.Service+")")
			for _, name := range names[:4] {
				w.wantPassed(name, dns.TypeA)
			}
			if until := testkit.Metric(t, "search_not_before_timestamp_seconds", "endpoint", w.endpoint); until < float64(time.Now().Unix()) {
				t.Errorf("Expected the gauge to say that confirmations are paused, got %v", until)
			}
			if got := w.left(); got != 0 || len(w.searches()) != 5 {
				t.Fatalf("Expected the budget to be spent, got %d left after %d searches", got, len(w.searches()))
			}
			if m := w.ask(names[4], dns.TypeA); m.Rcode != dns.RcodeSuccess || m.Answer[0].Header().Ttl > 5 {
				t.Errorf("Expected to pass with a short TTL, got\n%v", m)
			}
			w.wantBlocked("known.example.", dns.TypeA, "suspected social engineering ("+d.Service+")") // the answer is cached
			testkit.WantParts(t, w.why(strings.TrimSuffix(names[5], ".")), "passes for now", "the day's budget of 5 searches is spent")
			testkit.WantParts(t, lines.Only(t, "of the day's 5 searches are spent"), "[WARNING]", "4 of the day's 5", "When all are spent, suspected names pass until ", "Raise budget")
			testkit.WantParts(t, lines.Only(t, "budget of 5 searches is spent"), "[WARNING]", "Suspected names pass until", "Raise budget")
			testkit.Must(t, w.reload(w.corefile(five, "explain", "ttl 30s", "cache 1000")))
			w.wantPassed(names[6], dns.TypeA)
			w.stop()
			w.run(five, "explain")
			w.wantPassed(names[7], dns.TypeA)
			if got := len(w.searches()); got != 5 || w.left() != 0 {
				t.Errorf("Expected no more searches after a reload and a restart, got %d", got)
			}
			testkit.Until(w.t, "the line of the second start", func() bool { return len(lines.About("0 left today")) > 0 })
			testkit.WantParts(t, strings.Join(lines.About(d.Title+" is on"), "\n"), "budget of 5 searches a day, 5 left today",
				"[WARNING] plugin/safebrowsing: "+d.Title, "budget of 5 searches a day, 0 left today; confirmations are paused until ", " (the day's budget of 5 searches is spent)")
			testkit.Must(t, w.reload(w.corefile("budget 7 100%")))
			w.google.SetBudget(7, time.Now().Add(-time.Hour))
			testkit.Until(w.t, "a search with the higher budget", func() bool {
				w.wantPassed(names[8], dns.TypeA)
				return len(w.searches()) == 6
			})
		})
	}
}

// usedBefore writes a count with nothing spent today, after a day on which clients needed
// their shares.
func (w *world) usedBefore(clients, kept int) {
	w.t.Helper()
	now := time.Now()
	today, yesterday := now.Format(time.DateOnly), now.AddDate(0, 0, -1).Format(time.DateOnly)
	raw := fmt.Sprintf(`{"day":%q,"spent":{%q:0},"uses":[{"date":%q,"clients":%d,"kept":%d}]}`, today, today, yesterday, clients, kept)
	testkit.Must(w.t, os.WriteFile(filepath.Join(w.db, "budget-webrisk.json"), []byte(raw), 0o600))
}

// One client cannot spend what the others need.
func TestAClientSpendsItsShareOfTheBudget(t *testing.T) {
	testkit.SameDay(t)
	lines := testkit.Capture(t)
	w := newWorld(t)
	w.protocol = protocol.DialectWebRisk
	names := w.suspicious(20)
	w.usedBefore(10, 30)
	w.run("budget 20 15%", "limit off")
	before := testkit.Metric(t, "verdicts_total", "decided_by", "budget")
	for _, name := range names[:10] {
		w.askFrom("127.0.0.2", name)
	}
	testkit.Equal(t, "searches for one client, 15 % of 20", len(w.searches()), 3)
	testkit.Equal(t, "names that the budget decides", testkit.Metric(t, "verdicts_total", "decided_by", "budget")-before, 7)
	testkit.WantParts(t, lines.Only(t, "has spent its share"), "[WARNING]", "In part: client 127.0.0.2 ", "(3 of 20)", "at midnight at the latest", `If it forwards for others, write "budget 20 100%"`)
	w.askFrom("127.0.0.3", names[10])
	if got := len(w.searches()); got != 4 || w.left() != 16 {
		t.Errorf("Expected another client to cause a search, got %d and %d left", got, w.left())
	}
}
