package lookup

import (
	"context"
	"slices"
	"time"
)

// A program that looks up many prefixes at once, such as one that measures what the lists hold, first
// asks what is known here, see Listing, and lets Search confirm the rest when no query waits, see
// Idle.

// Listing is what is known here about one prefix. The zero Listing is that no list holds it.
type Listing struct {
	Lists []string // that hold it, or an entry that begins with it
	Ask   int      // prefixes that the server would have to be asked about
}

// Listings returns what is known about prefixes of 4 bytes, in their order. It sends nothing. Lists of
// likely safe hosts do not count.
func (c *Checker) Listings(prefixes []Prefix) []Listing {
	lists, now := c.database.Lists(), time.Now()
	all := make([]Listing, len(prefixes))
	for i, p := range prefixes {
		for _, l := range lists {
			if !l.LikelySafe && len(l.Set.Under([minPrefix]byte([]byte(p)), 1)) > 0 {
				all[i].Lists = append(all[i].Lists, l.Name)
			}
		}
		if all[i].Lists != nil {
			all[i].Ask = c.unknownParts(c.prefixSearch(lists, p, false), now)
		}
	}
	return all
}

// unknownParts returns how many of the prefixes of a search have no answer, and none under way.
func (c *Checker) unknownParts(s prefixSearch, now time.Time) (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range s.prefixes {
		if known, _ := c.about(p, now); known == nil {
			n++
		}
	}
	return n
}

// PerSearch returns the most prefixes of one search.
func (c *Checker) PerSearch() int { return c.perSearch }

// Idle waits until no query waits for a search to begin, and half of the slots for searches are free. A
// search that is no query's then begins at once, and the next queries find a slot. It returns ErrClosed,
// or the error of ctx if that ends first.
func (c *Checker) Idle(ctx context.Context) error {
	for {
		c.mu.Lock()
		l := c.searching
		if c.closed {
			c.mu.Unlock()
			return ErrClosed
		}
		if l.idle() {
			c.mu.Unlock()
			return nil
		}
		changed := make(chan struct{})
		l.watchers = append(l.watchers, changed)
		c.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			c.unwatch(changed)
			return ctx.Err()
		}
	}
}

// unwatch forgets a channel of Idle.
func (c *Checker) unwatch(changed chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	l := c.searching
	l.watchers = slices.DeleteFunc(l.watchers, func(other chan struct{}) bool { return other == changed })
}

// idle reports whether nothing waits and half of the slots are free.
func (l *lane) idle() bool { return len(l.queue) == 0 && 2*l.slots >= l.searches }

// tellIdle wakes those who wait in Idle, to look again. The caller holds Checker.mu.
func (l *lane) tellIdle() {
	for _, changed := range l.watchers {
		close(changed)
	}
	l.watchers = nil
}
