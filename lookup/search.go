package lookup

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync/atomic"
	"time"
)

// search is one request to the server.
type search struct {
	prefixes []Prefix // guarded by Checker.mu until the search begins, then immutable
	parts    []*part  // of prefixes
	refunds  []func() // call them if the search is not sent; guarded by Checker.mu
	refusal  error    // why only what is known is asked for; nil: the server is searched
}

// part is the part of a search about one prefix. Every Confirmation that needs the prefix waits for
// it. It ends with its search, or before, see Tell.
type part struct {
	over    atomic.Bool   // set when the answer is written; read the rest only then
	done    chan struct{} // a value wakes one of those who wait; closed when the others may go on
	answer  serverAnswer
	earlier bool  // the answer is an EarlierAnswer
	err     error // with it the threats in the answer are known, and nothing else is
}

// ended returns a part that has ended.
func ended(answer serverAnswer, err error) *part {
	p := &part{answer: answer, err: err}
	p.over.Store(true)
	return p
}

// maxQueued is the most prefixes that wait for a free slot, in searches of at most
// Config.PerSearch prefixes. One client within its rate limit cannot fill the queue and
// so cannot lock other clients out.
const maxQueued = 4 * MaxPrefixes

// enqueue adds a prefix to a search in the queue, or to a new one if all are full. With a refusal it
// is one for what is known. If the queue is full too, the part fails with ErrLimited. refund, unless
// nil, is called if the prefix is not sent. The caller holds mu.
func (c *Checker) enqueue(prefix Prefix, refund func(), refusal error) *part {
	i := slices.IndexFunc(c.queue, func(s *search) bool {
		return len(s.prefixes) < c.perSearch && (s.refusal == nil) == (refusal == nil)
	})
	if i < 0 {
		if len(c.queue) >= maxQueued/c.perSearch {
			if refund != nil {
				refund()
			}
			return ended(serverAnswer{}, ErrLimited)
		}
		i = len(c.queue)
		c.queue = append(c.queue, &search{refusal: refusal})
	}
	s, p := c.queue[i], &part{done: make(chan struct{})}
	s.prefixes, s.parts = append(s.prefixes, prefix), append(s.parts, p)
	if refund != nil {
		s.refunds = append(s.refunds, refund)
	}
	c.pendingAs(s)[prefix] = p
	return p
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
		s.refund(Answer{}, ErrClosed)
		for _, p := range s.parts {
			p.err = ErrClosed
			p.over.Store(true)
			close(p.done)
		}
	}
	c.queue = nil
}

// run does one search. It ends when the server answers, at the timeout, or when
// Close cancels it; Close waits for it.
func (c *Checker) run(s *search) {
	begun := time.Now()
	answer, err := c.ask(s)
	c.wake(c.finish(s, answer, err, time.Since(begun)))
}

// finish ends a search that took so long, and returns the parts that have ended with it.
func (c *Checker) finish(s *search, answer Answer, err error, took time.Duration) []*part {
	c.mu.Lock()
	defer c.mu.Unlock()
	s.refund(answer, err)
	over := c.settle(s, nil, answer, err)
	c.took = took
	c.slots++
	c.begin()
	return over
}

// settle ends the parts of a search about prefixes, nil for all, unless they have ended, and returns
// them. The answers are kept even if no query waits any more. The caller holds mu, and then calls wake.
func (c *Checker) settle(s *search, prefixes map[Prefix]bool, answer Answer, err error) (over []*part) {
	received := time.Now()
	for i, prefix := range s.prefixes {
		p := s.parts[i]
		if p.over.Load() || prefixes != nil && !prefixes[prefix] {
			continue
		}
		p.answer, p.earlier, p.err = answer.about(prefix, received, err)
		if p.err == nil || len(p.answer.threats) > 0 {
			c.cache.put(prefix, p.answer)
		}
		c.putOff(s, prefix, p)
		delete(c.pendingAs(s), prefix)
		p.over.Store(true)
		over = append(over, p)
	}
	return over
}

// tell ends the parts of a search about prefixes before the search ends. Of a prefix about which
// not all is known the threats are kept, and its part goes on.
func (c *Checker) tell(s *search, prefixes []Prefix, answer Answer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	whole := make(map[Prefix]bool)
	for _, p := range prefixes {
		part, _, _ := answer.about(p, time.Now(), nil)
		if whole[p] = part.ttl >= 0; !whole[p] && len(part.threats) > 0 && c.pendingAs(s)[p] != nil {
			c.cache.put(p, part)
		}
	}
	if over := c.settle(s, whole, answer, nil); len(over) > 0 { // the search is under way, and so is its run
		c.wg.Go(func() { c.wake(over) })
	}
}

// atOnce is how many queries wake at once. Each of them then writes its answer, which takes
// some 50 µs of a processor, and a query for a clean name that comes meanwhile runs after them.
const atOnce = 16

// wake wakes the queries that wait for parts of a search, the first to come for a part first, and only
// a few in a millisecond. It sleeps in between and does not just yield: while goroutines are ready, Go's
// scheduler does not look for packets that have come.
func (c *Checker) wake(parts []*part) {
	n := 0
	for _, p := range parts {
		for c.ctx.Err() == nil && p.wakeOne() {
			if n++; n%atOnce != 0 {
				continue
			}
			select {
			case <-time.After(time.Millisecond):
			case <-c.ctx.Done():
			}
		}
		close(p.done)
	}
}

// wakeOne wakes one of those who wait for p, and reports whether there was one. Those who still
// come see that it is over.
func (p *part) wakeOne() bool {
	select {
	case p.done <- struct{}{}:
		return true
	default:
		return false
	}
}

// refund calls the refunds if the search was not sent, or a relay has refused it. The caller holds
// Checker.mu, and lets those who wait go on.
func (s *search) refund(answer Answer, err error) {
	unsent := func(reason error) bool { return errors.Is(err, reason) }
	known := err == nil && len(answer.Earlier) == len(s.prefixes)
	if known || slices.ContainsFunc([]error{ErrBackoff, ErrLimited, ErrBudget, ErrClosed}, unsent) {
		for _, refund := range s.refunds {
			refund()
		}
	}
}

// ask calls the Searcher with the timeout. A panic of the Searcher becomes an error:
// it must not stop the name server.
func (c *Checker) ask(s *search) (answer Answer, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("searching full hashes: panic: %v", r)
		}
	}()
	ctx, cancel := context.WithTimeout(c.ctx, c.timeout)
	defer cancel()
	if s.refusal != nil {
		ctx = withOnlyKnown(ctx)
	}
	return c.searcher.Search(withTell(ctx, func(prefixes []Prefix, answer Answer) { c.tell(s, prefixes, answer) }), s.prefixes)
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

// about returns the part of the answer of a search about p, that was received with err, and whether
// it is an EarlierAnswer. With an error the threats in the part are known, and nothing else is.
func (a Answer) about(p Prefix, received time.Time, err error) (part serverAnswer, earlier bool, _ error) {
	e, earlier := a.Earlier[p]
	switch {
	case earlier:
		part = serverAnswer{received: e.Received, ttl: e.TTL, threats: e.Threats}
		if e.TTL >= 0 {
			err = nil
		}
	case err == nil:
		part = serverAnswer{received: received, ttl: a.TTL, threats: a.Threats}
	}
	return part.only(p), earlier, err
}

// maxPutOff is the most prefixes whose wait is remembered.
const maxPutOff = maxQueued

// putOff notes until when a relay has no answer about a prefix, which its part says. Another error
// is not noted. The caller holds mu.
func (c *Checker) putOff(s *search, p Prefix, of *part) {
	if s.refusal != nil {
		if of.earlier = true; of.err != nil { // no search of the server has answered
			of.err = s.refusal
			c.knowing.unknown.Add(p, time.Now())
		}
		return
	}
	unanswered, ok := errors.AsType[*UnansweredError](of.err)
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

// waiting returns a part that has ended if a prefix waits since a relay has no answer about it, and
// nil otherwise. The caller holds mu.
func (c *Checker) waiting(p Prefix, now time.Time) *part {
	if err, ok := c.unanswered.Get(p); ok && now.Before(err.Until) {
		return ended(serverAnswer{}, err)
	}
	return nil
}

// finished waits until the part or ctx ends, and reports whether the part has
// ended. If both have, the part counts: one late search must not hide a threat
// that another search has found.
func (p *part) finished(ctx context.Context) bool {
	if !p.over.Load() {
		oneEnds(ctx, []*part{p})
	}
	return p.over.Load()
}

// underWay reports whether a part has not ended.
func (p *part) underWay() bool { return p != nil && !p.over.Load() }

// oneEnds waits until one of the parts that are under way ends, or ctx does.
func oneEnds(ctx context.Context, parts []*part) {
	on := func(c any) reflect.SelectCase {
		return reflect.SelectCase{Dir: reflect.SelectRecv, Chan: reflect.ValueOf(c)}
	}
	cases := []reflect.SelectCase{on(ctx.Done())}
	for _, p := range parts {
		if p.underWay() {
			cases = append(cases, on(p.done))
		}
	}
	if len(cases) > 1 {
		reflect.Select(cases)
	}
}
