package protocol

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

// searchPath is that of hashes.search.
const searchPath = "/v5/hashes:search"

// FormatBudget returns the value of BudgetHeader, a dictionary of integers (RFC 9651), for example
//
//	day=100, left=75, hour=25, now=5
//
// They are the fields of a lookup.Budget.
func FormatBudget(b lookup.Budget) string {
	return fmt.Sprintf("day=%d, left=%d, hour=%d, now=%d", b.Day, b.Left, b.Hour, b.Now)
}

// ParseBudget reads the value of BudgetHeader. It reports whether it is one: numbers of a budget,
// in any order. Other members are ignored.
func ParseBudget(value string) (b lookup.Budget, ok bool) {
	for member := range strings.SplitSeq(value, ",") {
		name, text, _ := strings.Cut(strings.TrimSpace(member), "=")
		n, err := strconv.ParseUint(text, 10, 31)
		field := map[string]*int{"day": &b.Day, "left": &b.Left, "hour": &b.Hour, "now": &b.Now}[name]
		if field == nil {
			continue
		}
		if err != nil {
			return lookup.Budget{}, false
		}
		*field = int(n)
	}
	ok = 0 < b.Hour && b.Hour <= b.Day && b.Left <= b.Day && b.Now <= b.Left
	return b, ok
}

// Announced is what a relay has said last about its budget. The zero value has heard nothing. It
// is safe for concurrent use.
type Announced struct {
	mu sync.Mutex
	b  lookup.Budget // zero: the relay has none
	at time.Time
}

// announcementLife is for how long an announcement counts: a relay whose budget is raised is asked
// again within a minute. A question that it refuses costs nothing.
const announcementLife = time.Minute

// Left returns what is left of the budget at now, as far as is known; known is false if there is
// none. Once the announcement is old, one search at a time may be made that brings a new one.
func (a *Announced) Left(now time.Time) (b lookup.Budget, known bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch age := now.Sub(a.at); {
	case a.b == lookup.Budget{}:
		return a.b, false
	case age < 0 || age >= announcementLife:
		return a.b.Stale(), true
	}
	return a.b, true
}

// hear notes the announcement of an answer to hashes.search, or that there is none.
func (a *Announced) hear(h http.Header, now time.Time) {
	b, _ := ParseBudget(h.Get(BudgetHeader))
	a.mu.Lock()
	defer a.mu.Unlock()
	a.b, a.at = b, now
}

// Announcer is a Client that knows what a relay has announced.
type Announcer interface {
	// Announce makes the client note announcements in a, from now on. Call it before the first search.
	Announce(a *Announced)
}

// Announce implements Announcer.
func (c *caller) Announce(a *Announced) { c.announced.Store(a) }

// Announce implements Announcer. The endpoint that has answered last counts.
func (f *Failover) Announce(a *Announced) {
	for _, e := range f.endpoints {
		if client, ok := e.client.(Announcer); ok {
			client.Announce(a)
		}
	}
}

// listen notes what an answer announces, unless Google runs the server.
func (c *caller) listen(path string, answer *http.Response) {
	if a := c.announced.Load(); a != nil && path == searchPath && !c.google {
		a.hear(answer.Header, time.Now())
	}
}
