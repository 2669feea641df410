package lookup

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"
)

// search is one request to the server. Every Confirmation that needs one of its
// prefixes waits for it.
type search struct {
	prefixes []Prefix      // guarded by Checker.mu until the search begins, then immutable
	over     atomic.Bool   // set when answer, earlier and err are written; read them by about, only then
	done     chan struct{} // a value wakes one of those who wait; closed when the others may go on
	answer   serverAnswer
	earlier  map[Prefix]EarlierAnswer // in place of answer and err
	err      error
	refunds  []func() // call them if the search is not sent; guarded by Checker.mu
}

// ended returns a search that has ended.
func ended(answer serverAnswer, err error) *search {
	s := &search{answer: answer, err: err}
	s.over.Store(true)
	return s
}

// maxQueued is the most prefixes that wait for a free slot, in searches of at most
// Config.PerSearch prefixes. One client within its rate limit cannot fill the queue and
// so cannot lock other clients out.
const maxQueued = 4 * MaxPrefixes

// enqueue adds a prefix to the last search in the queue, or to a new one if that is
// full. If the queue is full too, the search fails with ErrLimited. refund, unless nil,
// is called if the prefix is not sent. The caller holds mu.
func (c *Checker) enqueue(prefix Prefix, refund func()) *search {
	last := len(c.queue) - 1
	if last < 0 || len(c.queue[last].prefixes) == c.perSearch {
		if len(c.queue) >= maxQueued/c.perSearch {
			s := &search{err: ErrLimited}
			s.charge(refund)
			s.end()
			return s
		}
		c.queue = append(c.queue, &search{done: make(chan struct{})})
		last++
	}
	s := c.queue[last]
	s.prefixes = append(s.prefixes, prefix)
	s.charge(refund)
	c.pending[prefix] = s
	return s
}

// minSpacing is the least time between the beginnings of two searches that are under way
// together and not full. It is short for a user. In a flood it makes 200 searches a second
// out of thousands.
const minSpacing = 5 * time.Millisecond

// maxSpacing is the most time between them, while a server takes seconds: a query waits for its
// answer for only half a second by default, and the server may be fast again.
const maxSpacing = 50 * time.Millisecond

// begin starts waiting searches while slots are free. A search that still waits
// collects the prefixes of later queries. The caller holds mu.
func (c *Checker) begin() {
	for len(c.queue) > 0 && c.slots > 0 {
		now := time.Now()
		if wait := c.spacing(now); wait > 0 {
			c.beginAfter(wait)
			return
		}
		s := c.queue[0]
		c.queue = slices.Delete(c.queue, 0, 1)
		c.slots--
		c.begun = now
		c.wg.Go(func() { c.run(s) })
	}
}

// spacing returns how long the next search collects prefixes before it begins. It begins
// at once if it is full or no other one is under way. Else the slots are spread evenly over
// the time that a search takes: with many queries, all slots would otherwise be taken by
// searches for one prefix each. Their answers would come, and wake the queries that wait, at
// the same time, and queries for clean names would have to wait for the processor. The caller
// holds mu.
func (c *Checker) spacing(now time.Time) time.Duration {
	if c.slots == c.searches || len(c.queue[0].prefixes) == c.perSearch {
		return 0
	}
	return c.begun.Add(min(max(minSpacing, c.took/time.Duration(c.searches)), maxSpacing)).Sub(now)
}

// beginAfter calls begin after a while. A later call replaces the time. The caller holds mu.
func (c *Checker) beginAfter(wait time.Duration) {
	if c.next != nil {
		c.next.Reset(wait)
		return
	}
	c.next = time.AfterFunc(wait, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.begin()
	})
}

// drop ends the searches that wait for a free slot. The caller holds mu.
func (c *Checker) drop() {
	for _, s := range c.queue {
		s.err = ErrClosed
		s.end()
		close(s.done)
	}
	c.queue = nil
}

// run does one search. It ends when the server answers, at the timeout, or when
// Close cancels it; Close waits for it.
func (c *Checker) run(s *search) {
	begun := time.Now()
	answer, err := c.ask(s.prefixes)
	c.finish(s, answer, err, time.Since(begun))
	c.wake(s)
}

// finish ends a search that took so long. The answer is kept even if no query waits any more.
func (c *Checker) finish(s *search, answer Answer, err error, took time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s.err = err
	s.answer = serverAnswer{received: time.Now(), ttl: answer.TTL, threats: answer.Threats}
	s.earlier = answer.Earlier
	for _, p := range s.prefixes {
		known, err := s.about(p)
		if err == nil || len(known.threats) > 0 {
			c.cache.put(p, known)
		}
		c.putOff(p, err)
		delete(c.pending, p)
	}
	s.end()
	c.took = took
	c.slots++
	c.begin()
}

// atOnce is how many queries wake at once. Each of them then writes its answer, which takes
// some 50 µs of a processor, and a query for a clean name that comes meanwhile runs after them.
const atOnce = 16

// wake wakes the queries that wait for a search, the first to come first, and only a few in a
// millisecond. It sleeps in between and does not just yield: while goroutines are ready, Go's
// scheduler does not look for packets that have come.
func (c *Checker) wake(s *search) {
	defer close(s.done)
	for n := 1; ; n++ {
		select {
		case s.done <- struct{}{}:
		default: // those who still come see that the search is over
			return
		}
		if n%atOnce != 0 {
			continue
		}
		select {
		case <-time.After(time.Millisecond):
		case <-c.ctx.Done():
			return
		}
	}
}

// charge adds a refund, unless it is nil. The caller holds Checker.mu.
func (s *search) charge(refund func()) {
	if refund != nil {
		s.refunds = append(s.refunds, refund)
	}
}

// end calls the refunds if the search was not sent, or a relay has refused it. The caller holds
// Checker.mu, and lets those who wait go on.
func (s *search) end() {
	unsent := func(reason error) bool { return errors.Is(s.err, reason) }
	known := s.err == nil && len(s.earlier) == len(s.prefixes)
	if known || slices.ContainsFunc([]error{ErrBackoff, ErrLimited, ErrBudget, ErrClosed}, unsent) {
		for _, refund := range s.refunds {
			refund()
		}
	}
	s.over.Store(true)
}

// ask calls the Searcher with the timeout. A panic of the Searcher becomes an error:
// it must not stop the name server.
func (c *Checker) ask(prefixes []Prefix) (answer Answer, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("searching full hashes: panic: %v", r)
		}
	}()
	ctx, cancel := context.WithTimeout(c.ctx, c.timeout)
	defer cancel()
	return c.searcher.Search(ctx, prefixes)
}

// only returns the answer with the threats behind p. It drops the others: the server
// sometimes sends full hashes that the client did not ask for.
func (a serverAnswer) only(p Prefix) serverAnswer {
	all := a.threats
	a.threats = nil
	for _, t := range all {
		if p.begins(t.Hash) {
			a.threats = append(a.threats, t)
		}
	}
	return a
}

// about returns the part of the answer about p. With an error the threats in the answer are
// known, and nothing else is. The search has ended.
func (s *search) about(p Prefix) (answer serverAnswer, err error) {
	answer, err = s.answer, s.err
	if e, ok := s.earlier[p]; ok {
		answer = serverAnswer{received: e.Received, ttl: e.TTL, threats: e.Threats}
		if e.TTL >= 0 {
			err = nil
		}
	} else if err != nil {
		answer = serverAnswer{}
	}
	return answer.only(p), err
}

// maxPutOff is the most prefixes whose wait is remembered.
const maxPutOff = maxQueued

// putOff notes until when a relay has no answer about a prefix. Another err is not noted.
// The caller holds mu.
func (c *Checker) putOff(p Prefix, err error) {
	unanswered, ok := errors.AsType[*UnansweredError](err)
	if !ok {
		c.unanswered.Remove(p)
		return
	}
	until := time.Now().Add(MaxUnanswered)
	if unanswered.Until.Before(until) {
		until = unanswered.Until
	}
	c.unanswered.Add(p, &UnansweredError{Until: until, Reason: unanswered.Reason})
}

// waiting returns a finished search if a prefix waits since a relay has no answer about it, and
// nil otherwise. The caller holds mu.
func (c *Checker) waiting(p Prefix, now time.Time) *search {
	if err, ok := c.unanswered.Get(p); ok && now.Before(err.Until) {
		return ended(serverAnswer{}, err)
	}
	return nil
}

// finished waits until the search or ctx ends, and reports whether the search has
// ended. If both have, the search counts: one late search must not hide a threat
// that another search has found.
func (s *search) finished(ctx context.Context) bool {
	if s.over.Load() {
		return true
	}
	select {
	case <-s.done:
	case <-ctx.Done():
	}
	return s.over.Load()
}
