package test

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/coredns-safebrowsing/safebrowsing/internal/engine"
	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol"
	"github.com/coredns-safebrowsing/safebrowsing/internal/protocoltest"
	"github.com/coredns-safebrowsing/safebrowsing/internal/relay"
	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
	"github.com/coredns-safebrowsing/safebrowsing/updater"
)

// cell is one fault in one phase, on one way to the server.
type cell struct {
	column, phase string
	fault         fault
	lines         *testkit.Lines

	t       *testing.T
	w       *world
	box     *middlebox
	names   *nameServer // of the endpoint
	relayDB string      // "": no relay has started
	extra   []string    // of the Corefile
	seen    seen
}

type seen struct {
	queries int
	slowest time.Duration
	peak    int // MiB of memory, in addition to those before
	line    string
}

func (s seen) String() string {
	return fmt.Sprintf("clean names in %3d ms, %3d MiB; %s", s.slowest.Milliseconds(), s.peak, s.line)
}

func (c *cell) run(t *testing.T) seen {
	c.t, c.w = t, newWorld(t)
	if c.fault.run != nil {
		c.w = newWorldJudged(t, forgiving{t})
	}
	c.lines.Forget()
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("The log:\n%s", strings.Join(c.lines.About(""), "\n"))
		}
	})
	grown := measureMemory(t)
	var ca string
	c.box, ca = newMiddlebox(t, c.w.google, c.fault.expired)
	c.w.endpoint = c.box.URL
	if ca != "" {
		c.extra = append(c.extra, "tls "+ca)
	}
	if c.fault.name != nil {
		c.names = newNameServer(t)
		c.w.endpoint = strings.Replace(c.box.URL, "127.0.0.1", "server.example", 1)
		c.extra = append(c.extra, "resolver "+c.names.address)
	}
	if c.column != throughRelay {
		c.w.protocol, _ = protocol.ParseDialect(c.column)
	}
	if c.phase == partialUpdate {
		setMinimumWaits(c.w.google, time.Second)
	}
	c.w.threaten("known.example.com/", "evil.example.com/")
	if c.fault.run != nil {
		c.fault.run(c)
		return c.seen
	}
	map[string]func(){firstLoad: c.firstLoad, partialUpdate: c.partialUpdate, inSearch: c.search}[c.phase]()
	c.seen.line = c.said()
	c.seen.peak = grown()
	return c.seen
}

func (c *cell) start() {
	c.t.Helper()
	if c.column == throughRelay {
		c.startRelay()
	}
	properties := c.extra
	if c.fault.endless && c.phase == inSearch {
		properties = append(properties, "confirm_timeout 1s") // nothing else ends the wait
	}
	c.w.start(c.w.corefile(properties...))
}

func (c *cell) startRelay() {
	c.t.Helper()
	c.relayDB = c.t.TempDir()
	settings := relaySettings(c.w.endpoint, c.relayDB)
	for _, e := range c.extra {
		word, value, _ := strings.Cut(e, " ")
		if word == "resolver" {
			settings.Resolvers = value
			continue
		}
		settings.CA = testkit.Read(c.t, value)
	}
	r, err := newRelay(settings, "127.0.0.1:0")
	testkit.Must(c.t, err)
	c.t.Cleanup(r.Close)
	server := httptest.NewServer(r)
	c.t.Cleanup(server.Close)
	c.w.endpoint, c.extra = server.URL, nil
}

func relaySettings(endpoint, db string) engine.Settings {
	return engine.Settings{Endpoint: endpoint, Protocol: protocol.DialectV5.Name, Lists: "se-4b mw-4b uws-4b", DB: db}
}

func newRelay(settings engine.Settings, address string) (*relay.Relay, error) {
	return relay.New(relay.Config{Settings: settings, Listen: address, Edge: engine.Edge{FirstContact: atOnce}})
}

// relayVariable makes a child serve a relay, too: the address, the endpoint and the folder.
const relayVariable = "SAFEBROWSING_TEST_RELAY"

func serveRelay(l net.Listener, endpoint, db string) error {
	r, err := newRelay(relaySettings(endpoint, db), l.Addr().String())
	if err != nil {
		return err
	}
	return http.Serve(l, r)
}

// forgiving lets a client confirm a name again. A cached answer ends when either clock says so,
// and one that jumps ahead ends all: see lookup/cache.go. All other rules hold.
type forgiving struct{ *testing.T }

func (f forgiving) Errorf(format string, args ...any) {
	f.Helper()
	if text := fmt.Sprintf(format, args...); protocoltest.Excuse(text) != "the client was restarted" {
		f.T.Error(text)
	}
}

// breaks begins the fault, in searches or in all other requests.
func (c *cell) breaks(search bool) {
	if f, ok := c.fault.spoils[c.column]; ok {
		c.w.google.Break(map[bool]string{true: "search", false: "update"}[search], 1000, f)
	}
	if c.fault.odd != nil {
		c.fault.odd(c.w.google)
	}
	if c.names != nil {
		c.names.breaks(c.fault.name)
		c.box.CloseClientConnections() // a connection that is open needs no name
	}
	c.box.breaks(c.fault.transportFault, search)
}

func (c *cell) firstLoad() {
	c.breaks(false)
	before := c.counted()
	c.start()
	defer c.askAllTheTime()()
	if c.fault.good {
		c.eventuallyBlocked("evil.example.com.")
	} else {
		c.wantTold(before)
		c.w.wantPassed("evil.example.com.", dns.TypeA)
	}
	c.wantNext()
}

func (c *cell) partialUpdate() {
	c.startWithLists()
	before := c.counted()
	defer c.askAllTheTime()()
	c.breaks(false)
	c.w.threaten("known.example.com/", "evil.example.com/", "new.example.com/")
	if c.fault.good {
		c.eventuallyNew()
	} else {
		c.wantTold(before)
	}
	c.w.wantBlocked("known.example.com.", dns.TypeA, c.w.blames("social engineering"))
	if c.fault.sparesSearches() {
		c.w.wantBlocked("evil.example.com.", dns.TypeA, c.w.blames("social engineering"))
	}
	c.wantNext()
}

func (c *cell) search() {
	c.startWithLists()
	before := c.counted()
	defer c.askAllTheTime()()
	c.breaks(true)
	if c.fault.good {
		c.w.wantBlocked("evil.example.com.", dns.TypeA, c.w.blames("social engineering"))
	} else {
		c.w.wantPassed("evil.example.com.", dns.TypeA)
	}
	c.w.wantBlocked("known.example.com.", dns.TypeA, c.w.blames("social engineering"))
	if !c.fault.endless && !c.fault.good {
		c.wantTold(before)
		c.wantNextSearch()
	}
}

// startWithLists starts CoreDNS and waits until a name has been confirmed.
func (c *cell) startWithLists() {
	c.t.Helper()
	c.start()
	c.w.updated(c.w.perUpdate(3))
	c.eventuallyBlocked("known.example.com.")
}

func (c *cell) eventuallyBlocked(name string) {
	c.t.Helper()
	testkit.Until(c.w.t, "the lists with "+name, func() bool { return isBlocked(c.w.ask(name, dns.TypeA)) })
}

// eventuallyNew waits for the new version of the list. A client of a relay has it a minute later: then the relay's counts.
func (c *cell) eventuallyNew() {
	c.t.Helper()
	if c.relayDB == "" {
		c.eventuallyBlocked("new.example.com.")
		return
	}
	testkit.Until(c.w.t, "the new list of the relay", func() bool {
		lists, _ := updater.Status(c.relayDB)
		return slices.ContainsFunc(lists, func(l updater.ListStatus) bool { return l.Name == "se-4b" && l.Entries == 3 })
	})
}

func (c *cell) askAllTheTime() (end func()) {
	ctx, stop := context.WithCancel(context.Background())
	address := c.w.address("udp")
	var wg sync.WaitGroup
	wg.Go(func() {
		client := &dns.Client{Timeout: patience}
		for c.seen.queries = 1; ; c.seen.queries++ {
			m, took, err := client.Exchange(new(dns.Msg).SetQuestion(fmt.Sprintf("clean%d.example.net.", c.seen.queries), dns.TypeA), address)
			if err != nil || m.Rcode != dns.RcodeSuccess {
				c.t.Errorf("Expected an answer for a clean name, got %v and\n%v", err, m)
			}
			c.seen.slowest = max(c.seen.slowest, took)
			if !every(ctx, 10*time.Millisecond) {
				return
			}
		}
	})
	var starved time.Duration // the longest that the machine had no time for a goroutine which only sleeps
	wg.Go(func() {
		for woke := time.Now(); every(ctx, 10*time.Millisecond); woke = time.Now() {
			starved = max(starved, time.Since(woke))
		}
	})
	return func() {
		stop()
		wg.Wait()
		// On the way to an answer some four goroutines wait for the machine. All that is far less than confirm_timeout, the
		// shortest time that a fault takes.
		atOnce := min(3*time.Second+4*starved, 9*time.Second)
		testkit.Between(c.t, fmt.Sprintf("how long the slowest clean name took, while this machine slept for %s", starved), c.seen.slowest, 0, atOnce)
	}
}

// What the log, the metrics and the schedule must say about a fault.

var outcomes = []string{"success", "refused", "quota", "server_error", "malformed", "unreachable"}

func (c *cell) counted() map[string]float64 {
	n := make(map[string]float64)
	for _, o := range outcomes {
		n[o] = testkit.Metric(c.t, "requests_total", "outcome", o)
	}
	return n
}

// outcome returns the outcome that the metric must count. A request whose answer could be
// read has succeeded, even if a list in it was rejected.
func (c *cell) outcome() string {
	if c.fault.outcome == "" && len(c.lines.About(rejected)) > 0 {
		return "success"
	}
	return cmp.Or(c.fault.outcome, "malformed")
}

func (c *cell) wantTold(before map[string]float64) {
	c.t.Helper()
	if c.fault.endless {
		testkit.Until(c.w.t, "the request", func() bool { return c.box.asked.Load() > 0 || c.names != nil && c.names.asked.Load() > 0 })
		return
	}
	testkit.Until(c.w.t, "a log line", func() bool { return c.said() != "" })
	testkit.Until(c.w.t, "the metric for "+c.outcome(), func() bool { return c.counted()[c.outcome()] > before[c.outcome()] })
	for _, line := range c.lines.About(notUpdated) {
		stays := "The lists in force stay in force"
		if strings.Contains(line, "NO list is in force") && c.phase == firstLoad {
			stays = "blocks nothing until the first update"
		}
		testkit.WantParts(c.t, line, "[ERROR]", stays, ". Next try not before 20")
	}
	if c.names != nil && c.phase != inSearch { // who was asked, not the system's resolver
		testkit.Until(c.w.t, "a log line with the name server", func() bool { return len(c.lines.About(c.names.address)) > 0 })
	}
	for _, line := range c.lines.About(rejected) {
		testkit.WantParts(c.t, line, "[ERROR]", "The list stays in force as it was", "fetched again in full, not before 20")
	}
}

const (
	notUpdated = "Cannot update lists"
	rejected   = "rejected"
)

func (c *cell) said() string {
	for _, text := range []string{notUpdated, rejected, "The server refuses list", "Confirmations are paused", "A confirmation failed", "It is obeyed"} {
		if got := c.lines.About(text); len(got) > 0 {
			_, line, _ := strings.Cut(strings.TrimSpace(got[0]), "plugin/safebrowsing: ")
			line = strings.NewReplacer(c.box.URL, "SERVER", c.w.endpoint, "RELAY").Replace(line)
			return line[:min(len(line), 120)]
		}
	}
	return ""
}

// shortest and longest are the bounds of the time to the next request after a failure: the shortest first back-off, and
// the longest one with the shortest first one ("Request Frequency", back-off mode). A minute is for a slow machine.
const (
	shortest = 15*time.Minute - time.Minute
	longest  = 25 * time.Hour
	soon     = 6 * time.Minute // after a request that was not sent
)

// wantNext says when the lists are requested next: after a failure not before the shortest back-off has ended, and
// within a day. With a relay that is the rule of the relay, and its client has a wait of less than a day, too.
func (c *cell) wantNext() {
	c.t.Helper()
	if c.relayDB == "" {
		c.wantWaits(c.w.db, true)
		return
	}
	c.wantWaits(c.relayDB, true)
	if c.fault.good || c.phase == partialUpdate { // else the client may still wait for the first answer
		c.wantWaits(c.w.db, false)
	}
}

// wantWaits says when the lists of a folder are requested next. failed says that its server has the fault.
func (c *cell) wantWaits(db string, failed bool) {
	c.t.Helper()
	obeyed := c.fault.good && c.fault.longest > 0 && failed
	least := max(shortest, c.fault.longest-time.Minute)
	var lists []updater.ListStatus
	testkit.Until(c.w.t, "the schedule", func() bool {
		lists, _ = updater.Status(db)
		fails := slices.ContainsFunc(lists, func(l updater.ListStatus) bool { return l.Failures > 0 })
		early := slices.ContainsFunc(lists, func(l updater.ListStatus) bool { return time.Until(l.NotBefore) < least })
		// While a request is under way the file has what follows if it fails after it was sent.
		sent := slices.ContainsFunc(lists, func(l updater.ListStatus) bool { return time.Until(l.NotBefore) > soon })
		return len(lists) > 0 && (!failed && !c.fault.good || fails != c.fault.good) && (!obeyed || !early) && (!failed || !c.fault.unsent || !sent)
	})
	for _, l := range lists {
		switch wait := time.Until(l.NotBefore); {
		case wait > longest && !obeyed:
			c.t.Errorf("Expected list %s to be requested within a day, got %s", l.Name, wait)
		case failed && c.fault.unsent: // no failure of the server, and the next request is soon
		case l.Failures > 0 && wait < least:
			c.t.Errorf("Expected list %s to wait for %s, got %s", l.Name, least, wait)
		}
	}
}

// strictColumn is the protocol after each of whose failed searches a back-off follows; "": none.
var strictColumn string

// wantNextSearch says when the next search is sent: within a day, and in that column, unless it was not sent, or after
// a refusal, not before the shortest back-off has ended. What a server that is down asks for counts for half an hour.
func (c *cell) wantNextSearch() {
	c.t.Helper()
	wait := time.Until(c.w.engine().SearchHold().Until)
	testkit.Between(c.t, "the wait for confirmations", max(0, wait), 0, longest)
	paced := c.column == strictColumn && !c.fault.unsent || c.fault.outcome == "quota" && c.column != throughRelay
	asked := c.fault.longest
	if c.fault.outcome == "server_error" {
		asked = min(asked, 30*time.Minute)
	}
	if least := max(shortest, asked-time.Minute); paced && wait < least {
		c.t.Errorf("Expected the next search after %s, got %s", least, wait)
	}
}
