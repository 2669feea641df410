package lookup

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync/atomic"
	"time"
)

// search is one request to the server.
type search struct {
	prefixes []Prefix // guarded by Checker.mu until the search begins, then immutable
	parts    []*part  // of prefixes
	refunds  []func() // call them if the search is not sent; guarded by Checker.mu
	lane     *lane
}

// part is the part of a search about one prefix. Every Confirmation that needs the prefix waits for
// it. It ends with its search, or before, see Tell.
type part struct {
	over    atomic.Bool   // set when the answer is written; read the rest only then
	done    chan struct{} // a value wakes one of those who wait; closed when the others may continue
	answer  serverAnswer
	earlier bool  // the answer is an EarlierAnswer
	err     error // with it the threats in the answer are known, and nothing else is
	refusal error // why only what is known is asked for; nil: the server is searched
}

// ended returns a part that has ended.
func ended(answer serverAnswer, err error) *part {
	p := &part{answer: answer, err: err}
	p.over.Store(true)
	return p
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
	s.lane.took = took
	s.lane.slots++
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
		c.putOff(prefix, p)
		delete(s.lane.pending, prefix)
		p.over.Store(true)
		over = append(over, p)
		if late := c.searching.pending[prefix]; s.lane == c.knowing && p.err == nil && late != nil { // its server is slow
			late.answer, late.earlier = p.answer, true
			delete(c.searching.pending, prefix)
			late.over.Store(true)
			over = append(over, late)
		}
	}
	return over
}

// tell ends the parts of a search about prefixes before the search ends. Of a prefix about which
// not all is known the threats are kept, and its part continues.
func (c *Checker) tell(s *search, prefixes []Prefix, answer Answer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	whole := make(map[Prefix]bool)
	for _, p := range prefixes {
		part, _, _ := answer.about(p, time.Now(), nil)
		if whole[p] = part.ttl >= 0; !whole[p] && len(part.threats) > 0 && s.lane.pending[p] != nil {
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
	if known := err == nil && len(answer.Earlier) == len(s.prefixes); known || unsent(err) {
		s.giveBack()
	}
}

// unsent reports whether a search with this error was not sent, or a relay has refused it.
func unsent(err error) bool {
	return errors.Is(err, ErrBackoff) || errors.Is(err, ErrLimited) || errors.Is(err, ErrBudget) || errors.Is(err, ErrClosed) || errors.Is(err, ErrNotSent)
}

// giveBack calls the refunds.
func (s *search) giveBack() {
	for _, refund := range s.refunds {
		refund()
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
	ctx, cancel := context.WithTimeout(c.ctx, c.cfg.Timeout)
	defer cancel()
	if s.lane == c.knowing {
		ctx = withOnlyKnown(ctx)
	}
	return c.cfg.Searcher.Search(withTell(ctx, func(prefixes []Prefix, answer Answer) { c.tell(s, prefixes, answer) }), s.prefixes)
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
func (c *Checker) putOff(p Prefix, of *part) {
	if of.refusal != nil {
		if of.earlier = true; of.err != nil { // no search of the server has answered
			of.err = of.refusal
			c.unknown.Add(p, time.Now())
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
