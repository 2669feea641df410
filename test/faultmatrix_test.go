package test

import (
	"flag"
	"fmt"
	"maps"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/coredns-safebrowsing/safebrowsing/internal/config"
	"github.com/coredns-safebrowsing/safebrowsing/internal/engine"
	"github.com/coredns-safebrowsing/safebrowsing/internal/logtest"
	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol"
	"github.com/coredns-safebrowsing/safebrowsing/internal/relay"
	"github.com/coredns-safebrowsing/safebrowsing/updater"
)

var wholeMatrix = flag.Bool("matrix.all", false, "try each fault in each protocol and with a relay; without it each fault in one cell")

// phases are the moments of a fault.
var phases = []string{"first load", "partial update", "search"}

// columns are the ways to a server. A relay speaks version 5 to both sides.
var columns = []string{"v5", "v4", "webrisk", "relay"}

// cell is one fault in one phase, on one way to the server.
type cell struct {
	column, phase, name string
	fault               transportFault

	t     *testing.T
	w     *world
	box   *middlebox
	lines *logtest.Lines
	extra []string // of the Corefile
}

// Each fault of the connection or of HTTP, in each phase: the last good lists and what was
// confirmed stay in force, all other names are answered at once, never with SERVFAIL, the
// log says what happened and until when, a metric counts it, and the next request comes
// neither before the back-off has ended nor more than a day later.
func TestFaultMatrix(t *testing.T) {
	skipIfShort(t, "starts a server for each fault")
	lines := logtest.Capture(t)
	faults := transportFaults()
	rows := make(map[string]string)
	for i, name := range slices.Sorted(maps.Keys(faults)) {
		for j, phase := range phases {
			for k, column := range columns {
				if !*wholeMatrix && ((i+j)%len(columns) != k || (i+2*j)%len(phases) != 0) {
					continue
				}
				c := &cell{column: column, phase: phase, name: name, fault: faults[name], lines: lines}
				key := fmt.Sprintf("%s/%s/%s", name, phase, column)
				t.Run(key, func(t *testing.T) { rows[key] = c.run(t) })
			}
		}
	}
	var table strings.Builder
	for _, key := range slices.Sorted(maps.Keys(rows)) {
		fmt.Fprintf(&table, "%-46s %s\n", key, rows[key])
	}
	t.Logf("%d cells\n%s", len(rows), &table)
}

// run returns what was seen.
func (c *cell) run(t *testing.T) string {
	c.t, c.w = t, newWorld(t)
	c.lines.Forget()
	var ca string
	c.box, ca = newMiddlebox(t, c.w.google, c.fault.expired)
	c.w.endpoint = c.box.URL
	if ca != "" {
		c.extra = append(c.extra, "endpoint_ca "+ca)
	}
	if c.column != "relay" {
		c.w.protocol = map[string]*protocol.Dialect{"v5": protocol.DialectV5, "v4": protocol.DialectV4, "webrisk": protocol.DialectWebRisk}[c.column]
	}
	if c.phase == "partial update" {
		for _, list := range []string{"se-4b", "mw-4b", "uws-4b"} {
			c.w.google.SetMinimumWait(list, time.Second)
		}
	}
	c.w.threaten("known.example.com/", "evil.example.com/")
	var slowest time.Duration
	switch c.phase {
	case "first load":
		slowest = c.firstLoad()
	case "partial update":
		slowest = c.partialUpdate()
	default:
		slowest = c.search()
	}
	return fmt.Sprintf("clean names in %3d ms at most; %s", slowest.Milliseconds(), c.said())
}

// start starts CoreDNS, and a relay in between if there is to be one.
func (c *cell) start() {
	c.t.Helper()
	if c.column == "relay" && c.w.endpoint == c.box.URL {
		settings := config.Settings{Endpoint: c.box.URL, Protocol: protocol.DialectV5, Lists: "se-4b mw-4b uws-4b", DB: c.t.TempDir()}
		for _, e := range c.extra {
			pem, err := os.ReadFile(strings.TrimPrefix(e, "endpoint_ca "))
			if err != nil {
				c.t.Fatal(err)
			}
			settings.CA = string(pem)
		}
		r, err := relay.New(relay.Config{Settings: settings, Listen: "127.0.0.1:0", Edge: engine.Edge{FirstContact: func() time.Duration { return 0 }}})
		if err != nil {
			c.t.Fatal(err)
		}
		c.t.Cleanup(r.Close)
		server := httptest.NewServer(r)
		c.t.Cleanup(server.Close)
		c.w.endpoint, c.extra = server.URL, nil
	}
	c.w.start(c.w.corefile(append(c.extra, "confirm_timeout 1s")...))
}

func (c *cell) firstLoad() time.Duration {
	c.box.breaks(c.fault, false)
	before := c.counted()
	c.start()
	end := c.askAllTheTime()
	c.wantTold(before)
	c.w.wantPassed("evil.example.com.", dns.TypeA)
	c.wantNext()
	return end()
}

func (c *cell) partialUpdate() time.Duration {
	c.start()
	c.w.updated(c.w.perUpdate(3))
	c.w.eventually("the lists", func() bool { return isBlocked(c.w.ask("known.example.com.", dns.TypeA)) })
	before := c.counted()
	end := c.askAllTheTime()
	c.box.breaks(c.fault, false)
	c.w.threaten("known.example.com/", "evil.example.com/", "new.example.com/")
	c.wantTold(before)
	c.w.wantBlocked("known.example.com.", dns.TypeA, c.w.blames("social engineering"))
	if c.fault.answer != nil { // searches still work
		c.w.wantBlocked("evil.example.com.", dns.TypeA, c.w.blames("social engineering"))
	}
	c.wantNext()
	return end()
}

func (c *cell) search() time.Duration {
	c.start()
	c.w.updated(c.w.perUpdate(3))
	c.w.eventually("the lists", func() bool { return isBlocked(c.w.ask("known.example.com.", dns.TypeA)) })
	before := c.counted()
	end := c.askAllTheTime()
	c.box.breaks(c.fault, true)
	c.w.wantPassed("evil.example.com.", dns.TypeA)
	c.w.wantBlocked("known.example.com.", dns.TypeA, c.w.blames("social engineering"))
	if !c.fault.endless {
		c.wantTold(before)
	}
	if until := c.w.engine().SearchHold().Until; time.Until(until) > 25*time.Hour {
		c.t.Errorf("Expected confirmations within a day, got %s", until)
	}
	return end()
}

// askAllTheTime asks for clean names until end is called, which returns how long the slowest
// answer took.
func (c *cell) askAllTheTime() (end func() time.Duration) {
	stop, address := make(chan struct{}), c.w.address("udp")
	var wg sync.WaitGroup
	var slowest time.Duration
	wg.Go(func() {
		client := &dns.Client{Timeout: 5 * time.Second}
		for n := 0; ; n++ {
			m, took, err := client.Exchange(new(dns.Msg).SetQuestion(fmt.Sprintf("clean%d.example.net.", n), dns.TypeA), address)
			if err != nil || m.Rcode != dns.RcodeSuccess {
				c.t.Errorf("Expected an answer for a clean name, got %v and\n%v", err, m)
			}
			slowest = max(slowest, took)
			select {
			case <-stop:
				return
			case <-time.After(10 * time.Millisecond):
			}
		}
	})
	return func() time.Duration {
		close(stop)
		wg.Wait()
		if slowest > 3*time.Second {
			c.t.Errorf("Expected clean names to be answered at once, the slowest took %s", slowest)
		}
		return slowest
	}
}

func (c *cell) counted() float64 {
	return logtest.Metric(c.t, "requests_total", "outcome", c.fault.outcome)
}

// wantTold waits until the log and the metric tell the fault.
func (c *cell) wantTold(before float64) {
	c.t.Helper()
	if c.fault.endless {
		c.w.eventually("the request", func() bool { return c.box.asked.Load() > 0 })
		return
	}
	c.w.eventually("a log line", func() bool { return c.said() != "" })
	c.w.eventually("the metric for "+c.fault.outcome, func() bool { return c.counted() > before })
	for _, line := range c.lines.About("Cannot update lists") {
		logtest.WantParts(c.t, line, "[ERROR]", "The lists in force stay in force. Next try not before 20")
	}
}

// said returns the line about the fault, without its beginning.
func (c *cell) said() string {
	for _, text := range []string{"Cannot update lists", "The server refuses list", "Confirmations are paused", "A confirmation failed"} {
		if got := c.lines.About(text); len(got) > 0 {
			_, line, _ := strings.Cut(strings.TrimSpace(got[0]), "plugin/safebrowsing: ")
			line = strings.NewReplacer(c.box.URL, "SERVER", c.w.endpoint, "RELAY").Replace(line)
			return line[:min(len(line), 120)]
		}
	}
	return ""
}

// wantNext says when the lists are requested next: not before the shortest back-off has
// ended, and within a day.
func (c *cell) wantNext() {
	c.t.Helper()
	if c.fault.endless || c.column == "relay" {
		return // a relay gives its own waits: see internal/relay
	}
	lists, err := updater.Status(c.w.db)
	if err != nil || len(lists) == 0 {
		c.t.Errorf("Expected lists, got %v, %v", lists, err)
	}
	for _, l := range lists {
		least := max(15*time.Minute, c.fault.longest) - time.Minute
		if wait := time.Until(l.NotBefore); (wait < least || wait > 25*time.Hour) && l.Failures > 0 {
			c.t.Errorf("Expected list %s to wait for %s, got %s", l.Name, least, wait)
		}
	}
}
