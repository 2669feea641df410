package relay

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/engine"
	"github.com/coredns-safebrowsing/safebrowsing/internal/say"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

// Costs is what a relay has asked its server, as /costs of the admin address tells it.
type Costs struct {
	Since    time.Time      `json:"since"`    // the start of the relay
	Searches int            `json:"searches"` // prefixes that the server was asked about
	Reasons  map[string]int `json:"reasons"`  // of them, by the words of lookup.Reason
	Dollars  float64        `json:"dollars"`  // at list price; 0 if searches cost nothing
	Month    float64        `json:"dollars_a_month"`
	Today    []Dear         `json:"today"` // the prefixes that were asked about most often today, ten at most
}

// Dear is a prefix that the server was asked about again and again.
type Dear struct {
	Prefix   string `json:"prefix"`   // in hexadecimal
	Searches int    `json:"searches"` // at most, if there were many prefixes
}

const (
	dearest = 10
	month   = 365 * 24 * time.Hour / 12
)

// costs counts what a relay asks its server. It is safe for concurrent use.
type costs struct {
	since  time.Time
	paid   bool
	engine *engine.Engine // counts prefixes

	mu      sync.Mutex
	reasons map[lookup.Reason]int
}

// note counts a search of a prefix at now.
func (c *costs) note(prefix lookup.Prefix, why lookup.Reason, now time.Time) {
	c.engine.Costs.Searched(hex.EncodeToString([]byte(prefix)), 1, now)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.reasons == nil {
		c.reasons = make(map[lookup.Reason]int)
	}
	c.reasons[why]++
}

// sum returns what was asked until now.
func (c *costs) sum(now time.Time) Costs {
	s := Costs{Since: say.ByClock(c.since, now).UTC(), Reasons: make(map[string]int)}
	for _, m := range c.engine.Costs.Most(now, dearest) {
		s.Today = append(s.Today, Dear{m.Name, m.Searches})
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for r := range lookup.NumReasons {
		s.Reasons[r.String()] = c.reasons[r]
		s.Searches += c.reasons[r]
	}
	if c.paid {
		s.Dollars = float64(s.Searches) / lookup.SearchesPerDollar
		s.Month = s.Dollars * float64(month) / float64(max(now.Sub(c.since), time.Minute))
	}
	return s
}

// Text says how many searches there were, why, and what they cost, and names the prefixes that were
// asked about most often, if there are any.
func (c Costs) Text(now time.Time) (said, most string) {
	var reasons, dear []string
	for r := range lookup.NumReasons {
		reasons = append(reasons, fmt.Sprintf("%d %s", c.Reasons[r.String()], r))
	}
	said = fmt.Sprintf("%s (%s) since the start, %s ago", say.Count(c.Searches, "search", "searches"), strings.Join(reasons, ", "), now.Sub(c.Since).Round(time.Minute))
	if c.Dollars > 0 {
		said += fmt.Sprintf(": %.2f US-$, at this rate %.0f US-$ a month", c.Dollars, c.Month)
	}
	for _, d := range c.Today {
		one := fmt.Sprintf("%s %d", d.Prefix, d.Searches)
		if c.Dollars > 0 {
			one += fmt.Sprintf(" (%.2f US-$)", float64(d.Searches)/lookup.SearchesPerDollar)
		}
		dear = append(dear, one)
	}
	if len(dear) > 0 {
		most = "the prefixes that cost most today: " + strings.Join(dear, ", ")
	}
	return said, most
}

// ServeHTTP implements http.Handler.
func (c *costs) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(c.sum(time.Now())) // an error means that the client has gone away
}
