package status

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/say"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

// Dollars prints what searches cost, without the currency.
func Dollars(searches int) string {
	cents := int64(searches) * (100 / lookup.SearchesPerDollar)
	return fmt.Sprintf("%d.%02d", cents/100, cents%100)
}

// Cost says in a sentence without its full stop what today's searches cost; "": nothing. The
// searches that a process has reserved count.
func (s *Service) Cost() string {
	if !s.Paid || s.Budget == 0 {
		return ""
	}
	return fmt.Sprintf("Today %s, %s US-$ of at most %s", say.Count(s.Spent, "search", "searches"), Dollars(s.Spent), Dollars(s.Budget))
}

// Costly is a name that searches were made for.
type Costly struct {
	Name     string `json:"name"`
	Searches int    `json:"searches"`
}

// Dollars prints what the searches cost.
func (c Costly) Dollars() string { return Dollars(c.Searches) }

// maxCostly is the most names that are counted.
const maxCostly = 512

// Costs counts the searches of each name, or of each prefix, on one day, in memory only. When there are
// too many names, a new one takes the place of the one with the fewest, and of its count. The zero
// value is ready to use; it is safe for concurrent use.
type Costs struct {
	mu       sync.Mutex
	date     string
	searches map[string]int
}

// Searched counts searches for a name.
func (c *Costs) Searched(name string, n int, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.turn(now)
	if _, ok := c.searches[name]; !ok && len(c.searches) == maxCostly {
		fewest := ""
		for other, m := range c.searches {
			if least := c.searches[fewest]; fewest == "" || m < least || m == least && other < fewest {
				fewest = other
			}
		}
		n += c.searches[fewest]
		delete(c.searches, fewest)
	}
	c.searches[name] += n
}

// Most returns the n names with the most searches today, the highest first.
func (c *Costs) Most(now time.Time, n int) (all []Costly) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.turn(now)
	for name, n := range c.searches {
		all = append(all, Costly{name, n})
	}
	slices.SortFunc(all, func(a, b Costly) int { return cmp.Or(b.Searches-a.Searches, cmp.Compare(a.Name, b.Name)) })
	return all[:min(len(all), n)]
}

// turn forgets another day. The caller holds mu.
func (c *Costs) turn(now time.Time) {
	if date := now.Local().Format(time.DateOnly); date != c.date || c.searches == nil {
		c.date, c.searches = date, make(map[string]int)
	}
}
