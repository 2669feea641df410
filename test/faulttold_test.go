package test

import (
	"slices"
	"strings"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
	"github.com/coredns-safebrowsing/safebrowsing/updater"
)

// What the log, the metrics and the schedule must say about a fault.

// outcomes are the values of the label outcome that a fault may have.
var outcomes = []string{"success", "refused", "quota", "server_error", "malformed", "unreachable"}

// counted returns how many requests had each outcome.
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
	switch {
	case c.fault.outcome != "":
		return c.fault.outcome
	case len(c.lines.About(rejected)) > 0:
		return "success"
	}
	return "malformed"
}

// wantTold waits until the log and the metric tell the fault.
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

// said returns the line about the fault, without its beginning.
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

// shortest and longest are the bounds of the time to the next request after a failure: the
// shortest first back-off, and the longest one with the shortest first one ("Request
// Frequency", back-off mode). A minute is for a slow machine.
const (
	shortest = 15*time.Minute - time.Minute
	longest  = 25 * time.Hour
	soon     = 6 * time.Minute // after a request that was not sent
)

// wantNext says when the lists are requested next: after a failure not before the shortest
// back-off has ended, and within a day. With a relay that is the rule of the relay, and the
// client, which asks the relay only, has a wait of less than a day too.
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

// wantWaits says when the lists of a folder are requested next. failed says that the server
// of this folder has the fault.
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

// wantNextSearch says when the next search is sent: within a day, and in that column, unless it was
// not sent, or after a refusal, not before the shortest back-off has ended. What a server that is down asks for
// counts for half an hour.
func (c *cell) wantNextSearch() {
	c.t.Helper()
	wait := time.Until(c.w.engine().SearchHold().Until)
	if wait > longest {
		c.t.Errorf("Expected confirmations within a day, got %s", wait)
	}
	paced := c.column == strictColumn && !c.fault.unsent || c.fault.outcome == "quota" && c.column != throughRelay
	asked := c.fault.longest
	if c.fault.outcome == "server_error" {
		asked = min(asked, 30*time.Minute)
	}
	if least := max(shortest, asked-time.Minute); paced && wait < least {
		c.t.Errorf("Expected the next search after %s, got %s", least, wait)
	}
}
