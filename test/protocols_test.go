package test

import (
	"crypto/sha256"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol"
	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol/pb/sbv5"
	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
)

type move struct {
	from, to *protocol.Dialect
	restart  bool // else by a reload
	memory   bool // db is off
	otherKey bool
}

func (m move) String() string {
	return fmt.Sprintf("%s to %s, restart %t, db off %t, other key %t", m.from, m.to, m.restart, m.memory, m.otherKey)
}

// moves returns all moves that lists can survive: with db off they end with the process.
func moves() (all []move) {
	for _, from := range protocol.Dialects() {
		for _, to := range protocol.Dialects() {
			for _, m := range []move{{}, {memory: true}, {restart: true}} {
				m.from, m.to = from, to
				if from != to {
					all = append(all, m)
					m.otherKey = true
					all = append(all, m)
				}
			}
		}
	}
	return all
}

// begin puts the first protocol's lists in force.
func (m move) begin(t *testing.T) *world {
	if m.otherKey && !m.restart && !m.memory {
		testkit.Long(t)
	}
	w := newWorld(t)
	if m.memory {
		w.db = "off"
	}
	w.protocol = m.from
	w.google.SetKey("ONE")
	w.threaten("evil.example.com/")
	w.start(w.corefile("api_key ONE"))
	w.updated(w.perUpdate(3))
	w.wantBlocked("evil.example.com.", dns.TypeA, w.blames("social engineering"))
	return w
}

func (m move) make(t *testing.T, w *world) {
	t.Helper()
	key := "ONE"
	if m.otherKey {
		key = "TWO"
	}
	w.protocol = m.to
	w.google.SetKey(key)
	if !m.to.Continues(m.from) {
		w.google.ClientStarted() // it has no version any more
	}
	corefile := w.corefile("api_key " + key)
	if !m.restart {
		testkit.Must(t, w.reload(corefile))
		return
	}
	w.stop()
	w.start(corefile)
}

func TestListsOfTheOtherProtocolTakeTheirPlace(t *testing.T) {
	t.Parallel()
	for _, m := range moves() {
		t.Run(m.String(), func(t *testing.T) {
			t.Parallel()
			w := m.begin(t)
			before := w.perUpdate(3)
			w.threaten("evil.example.com/", "new.example.com/")
			m.make(t, w)
			testkit.Until(w.t, "the lists of the other protocol", func() bool {
				w.wantBlocked("evil.example.com.", dns.TypeA, w.blames("social engineering"))
				return isBlocked(w.ask("new.example.com.", dns.TypeA))
			})
			w.updated(before + w.perUpdate(3))
			asked := len(w.fetches())
			for i, r := range w.fetches() {
				// The first protocol has none, and the other one continues from its lists if it knows them. Those in memory are a key's own.
				known := m.to.Continues(m.from) && i >= before && !(m.memory && m.otherKey)
				testkit.Equal(t, fmt.Sprintf("request %d, %s, has versions", i, r.Method), len(r.Versions) > 0, known)
			}
			if m.otherKey || testing.Short() {
				return
			}
			// Each protocol has waits of its own, which hold when it comes back. By another key the server would be asked at once.
			m.from, m.to = m.to, m.from
			m.make(t, w)
			w.wantBlocked("evil.example.com.", dns.TypeA, w.blames("social engineering"))
			testkit.Equal(t, "requests before the minimum waits are over", len(w.fetches()), asked)
		})
	}
}

// firstContact makes engines that start from now on wait that long.
func firstContact(t *testing.T, d time.Duration) {
	before := engines.SetFirstContact(func() time.Duration { return d })
	t.Cleanup(func() { engines.SetFirstContact(before) })
}

func newRiskWorld(t *testing.T, expressions ...string) *world {
	w := threatened(t, expressions...)
	w.protocol = protocol.DialectWebRisk
	return w
}

// Four bytes are sent however long an entry of a list is, coded or raw, also after a restart.
func TestFourBytesAreSentHoweverLongAnEntryIs(t *testing.T) {
	for _, raw := range []bool{false, true} {
		t.Run(fmt.Sprintf("raw %t", raw), func(t *testing.T) {
			w := newRiskWorld(t)
			w.google.SetRawAdditions(raw)
			widths := map[string]int{"four": 4, "five": 5, "seven": 7, "sixteen": 16, "full": 32}
			var entries [][]byte
			for name, width := range widths {
				hash := sha256.Sum256([]byte(name + ".example.com/"))
				entries = append(entries, hash[:width])
				w.google.AddThreat(name+".example.com/", sbv5.ThreatType_MALWARE)
			}
			w.google.Publish("mw-4b", entries)
			w.start(w.corefile())
			w.updated(w.perUpdate(3))
			for range 2 {
				for name := range widths {
					w.wantBlocked(name+".example.com.", dns.TypeA, "suspected malware (Web Risk)")
				}
				w.restart(w.corefile())
			}
			for _, r := range w.searches() {
				testkit.Equal(t, "prefixes, bytes of the first", [2]int{len(r.Prefixes), len(r.Prefixes[0])}, [2]int{1, 4})
			}
		})
	}
}

// What extended coverage finds can be watched before it blocks: the list is in the log line, though the threat is the same as
// for se-4b.
func TestMonitorTellsExtendedCoverageApart(t *testing.T) {
	lines := testkit.Capture(t)
	w := newRiskWorld(t, "sure.example.com/")
	w.publish("se-ext-4b", "maybe.example.com/")
	w.google.SetMinimumWait("se-ext-4b", time.Hour)
	w.google.AddExtendedThreat("maybe.example.com/")
	w.start(w.corefile("lists se-4b se-ext-4b", "monitor"))
	w.updated(w.perUpdate(2))
	for name, list := range map[string]string{"www.maybe.example.com.": "se-ext-4b", "www.sure.example.com.": "se-4b"} {
		w.wantPassed(name, dns.TypeA)
		line := "Monitor: " + name + " A for 127.0.0.1 would be blocked: suspected social engineering (Web Risk)"
		testkit.Until(w.t, "the line", func() bool { return len(lines.About(line)) == 1 })
		testkit.WantParts(t, lines.Only(t, line), ", list "+list+", decided by server")
	}
}

// Whoever pays sees which names cost most today, if pages may show names.
func TestTheNamesThatCostMostAreShown(t *testing.T) {
	if !apart(t) {
		return
	}
	testkit.SameDay(t)
	lines := testkit.Capture(t)
	w := newRiskWorld(t, "evil.example.com/")
	w.run("status 127.0.0.1:0 names", "budget 100")
	w.wantBlocked("evil.example.com.", dns.TypeA, w.blames("social engineering"))
	url := w.pageURL(lines)
	w.made(url, "cost most today")
	wantPage(t, get(t, url+"status.json"), []string{`"costly":[{"name":"evil.example.com","searches":1}]`}, nil)
}

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

// wantSpent fails unless this number of searches was made, and that number is left of the day's budget.
func (w *world) wantSpent(when string, searches, left int) {
	w.t.Helper()
	got := [2]int{len(w.searches()), int(testkit.Metric(w.t, "budget_remaining", "endpoint", w.endpoint))}
	testkit.Equal(w.t, when+": searches, and what is left", got, [2]int{searches, left})
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
			w.wantBlocked("known.example.", dns.TypeA, w.blames("social engineering"))
			for _, name := range names[:4] {
				w.wantPassed(name, dns.TypeA)
			}
			until := testkit.Metric(t, "search_not_before_timestamp_seconds", "endpoint", w.endpoint)
			testkit.Between(t, "the gauge of paused confirmations", until, float64(time.Now().Unix()), float64(time.Now().Unix()+90_000))
			w.wantSpent("five names", 5, 0)
			if m := w.ask(names[4], dns.TypeA); m.Rcode != dns.RcodeSuccess || m.Answer[0].Header().Ttl > 5 {
				t.Errorf("Expected to pass with a short TTL, got\n%v", m)
			}
			w.wantBlocked("known.example.", dns.TypeA, w.blames("social engineering")) // the answer is cached
			testkit.WantParts(t, w.why(strings.TrimSuffix(names[5], ".")), "passes for now", "the day's budget of 5 searches is spent")
			lines.Only(t, "4 of the day's 5 searches are spent")
			lines.Only(t, "budget of 5 searches is spent")
			testkit.Must(t, w.reload(w.corefile(five, "explain", "ttl 30s", "cache 1000")))
			w.wantPassed(names[6], dns.TypeA)
			w.stop()
			w.run(five, "explain")
			w.wantPassed(names[7], dns.TypeA)
			w.wantSpent("after a reload and a restart", 5, 0)
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

// One client cannot spend what the others need.
func TestAClientSpendsItsShareOfTheBudget(t *testing.T) {
	testkit.SameDay(t)
	lines := testkit.Capture(t)
	w := newRiskWorld(t)
	names := w.suspicious(20)
	now := time.Now() // a day after one on which clients needed their shares
	today, yesterday := now.Format(time.DateOnly), now.AddDate(0, 0, -1).Format(time.DateOnly)
	raw := fmt.Sprintf(`{"day":%q,"spent":{%q:0},"uses":[{"date":%q,"clients":10,"kept":30}]}`, today, today, yesterday)
	writeFile(t, w.db, "budget-webrisk.json", raw)
	w.run("budget 20 15%", "limit off")
	before := testkit.Metric(t, "verdicts_total", "decided_by", "budget")
	for _, name := range names[:10] {
		w.askFrom("127.0.0.2", name)
	}
	w.wantSpent("one client, 15 % of 20", 3, 17)
	testkit.Equal(t, "names that the budget decides", testkit.Metric(t, "verdicts_total", "decided_by", "budget")-before, 7)
	testkit.WantParts(t, lines.Only(t, "has spent its share"), "[WARNING]", "In part: client 127.0.0.2 ", "(3 of 20)", "at midnight at the latest", `If it forwards for others, write "budget 20 100%"`)
	w.askFrom("127.0.0.3", names[10])
	w.wantSpent("another client", 4, 16)
}
