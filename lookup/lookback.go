package lookup

import (
	"cmp"
	"context"
	"encoding/binary"
	"maps"
	"slices"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/prefixset"
)

// Late is an expression of a name that a client asked for before the server confirmed it as a threat.
type Late struct {
	Pair   Pair      // as Passed.Note returned it
	Client uint32    // tells clients apart: 18 bits of a keyed hash
	Asked  time.Time // first, to the minute
	Hash   FullHash  // of the expression
	List   string
	Threat Threat
}

func (l Late) compare(other Late) int {
	return cmp.Or(l.Asked.Compare(other.Asked), cmp.Compare(l.Pair, other.Pair))
}

const (
	lookAgain   = time.Minute      // after what was not confirmed
	lookAnyway  = 5 * time.Minute  // to forget what is old
	mostLate    = MaxPrefixes      // prefixes of one LookBack
	idleWaiting = 30 * time.Second // for a time without queries that wait
)

// LookBack compares p with the lists in force, if they have changed since the last call, and asks the
// server about the prefixes that they hold. It returns what the server confirms as a threat, each
// pair and expression once, and forgets what the server has answered about. What the server has not
// answered about is asked again by later calls.
//
// Searches wait until none waits for a query, and are made by Search: merged with searches of
// queries, within the back-off and the budget that the Searcher keeps, and admitted by admit, which
// may be nil. Call it every few seconds: it does nothing if there is nothing to do. A second call
// at the same time does nothing.
func (c *Checker) LookBack(ctx context.Context, p *Passed, admit Admit) (late []Late, err error) {
	if !p.looking.TryLock() {
		return nil, nil
	}
	defer p.looking.Unlock()
	current, now := c.cfg.Database.snapshot(), time.Now()
	since := now.Sub(p.lookedAt)
	again := (p.left || p.unsure.Load()) && (since >= lookAgain || since < 0)
	if len(current.lists) == 0 || current == p.looked && !again {
		return nil, nil
	}
	p.unsure.Store(false)
	found, all := p.listed(holdsPrefix(current.lists), now, mostLate)
	p.looked, p.lookedAt, p.left = current, now, !all
	for batch := range slices.Chunk(slices.Sorted(maps.Keys(found)), c.cfg.PerSearch) {
		some, err := c.lookBackAt(ctx, p, batch, found, admit)
		if late = append(late, some...); err != nil {
			p.left = true
			return late, err
		}
	}
	return late, nil
}

// lookBackAt asks about prefixes, and settles those that have an answer.
func (c *Checker) lookBackAt(ctx context.Context, p *Passed, batch []uint32, found map[uint32][]passedOne, admit Admit) ([]Late, error) {
	quiet, cancel := context.WithTimeoutCause(ctx, idleWaiting, ErrLimited)
	defer cancel()
	if c.Idle(quiet) != nil {
		return nil, cmp.Or(ctx.Err(), context.Cause(quiet), ErrClosed)
	}
	var prefixes []Prefix
	for _, prefix := range batch {
		prefixes = append(prefixes, Prefix(binary.BigEndian.AppendUint32(nil, prefix)))
	}
	var late []Late
	answers, err := c.Search(ctx, prefixes, false, admit.All(), nil)
	for i, a := range answers {
		threats := c.threatsIn(a)
		for _, one := range found[batch[i]] {
			at := slices.IndexFunc(threats, func(t ThreatHash) bool { return p.check(&t.Hash) == one.check })
			switch {
			case at >= 0:
				one.Hash = threats[at].Hash
				one.Threat, _ = threats[at].Threats.split()
				one.List, _ = c.prefixOf(c.cfg.Database.Lists(), one.Hash)
				late = append(late, one.Late)
				p.settle(&one, true)
			case a.Err == nil && a.From == FromCache && c.cfg.Mode == RealTime: // it may be from before a list had the name
				p.left = true
			case a.Err == nil:
				p.settle(&one, false)
			}
		}
	}
	slices.SortFunc(late, Late.compare)
	return late, err
}

// threatsIn returns the threats in an answer, each full hash once.
func (c *Checker) threatsIn(a PrefixAnswer) (all []ThreatHash) {
	for _, t := range a.Threats {
		threat, ok := c.threatIn(serverAnswer{threats: a.Threats}, t.Hash)
		if ok && !slices.ContainsFunc(all, func(other ThreatHash) bool { return other.Hash == t.Hash }) {
			all = append(all, threat)
		}
	}
	return all
}

// holdsPrefix returns a function that reports whether a list of threats holds a prefix of four bytes or
// an entry below it.
func holdsPrefix(lists []List) func(prefix uint32) bool {
	var sets, wide []*prefixset.Set
	for _, l := range lists {
		if widths := l.Set.Widths(); !l.LikelySafe && len(widths) > 0 {
			sets = append(sets, l.Set)
			if slices.Max(widths) > minPrefix {
				wide = append(wide, l.Set)
			}
		}
	}
	var hash [32]byte
	return func(prefix uint32) bool {
		binary.BigEndian.PutUint32(hash[:], prefix)
		return slices.ContainsFunc(sets, func(s *prefixset.Set) bool { return s.Contains(&hash) }) ||
			slices.ContainsFunc(wide, func(s *prefixset.Set) bool { return len(s.Under([minPrefix]byte(hash[:]), 1)) > 0 })
	}
}
