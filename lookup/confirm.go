package lookup

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// search is one request to the server. Every Confirmation that needs one of its
// prefixes waits for it.
type search struct {
	prefixes []Prefix      // guarded by Checker.mu until the search begins, then immutable
	done     chan struct{} // closed after answer, earlier and err are written; read them only then
	answer   serverAnswer
	earlier  map[Prefix]EarlierAnswer // in place of answer
	err      error
	refunds  []func() // call them if the search is not sent; guarded by Checker.mu
}

// Confirmation is a decision that waits for the server. It belongs to one query;
// call Wait once, from one goroutine.
type Confirmation struct {
	checker    *Checker
	candidates *Candidates
	admit      Admit     // may be nil
	searches   []*search // searches[i] is for candidate i; nil: not asked about yet
}

// Confirm asks the server about the candidates and returns at once. Confirmations
// that need the same prefix share one search. The search runs on when their queries
// have given up, and the cache keeps its answer.
//
// Before a new search Confirm calls admit, unless admit is nil. If admit returns an
// error, the candidates that need this search fail with it. If the search is not sent,
// its refund is called. The Checker is locked during both calls: they must return at
// once and must not call the Checker.
//
// If one search cannot ask about all candidates (Config.PerSearch), each search may cost
// money. Then Wait begins the next search, and only if those before found no threat.
func (c *Checker) Confirm(candidates *Candidates, admit Admit) *Confirmation {
	if all := candidates.all; len(all) > c.perSearch && all[0].start == 0 {
		// The exact host last, and so the shortest expression first: if that is a
		// threat, every host below it is.
		reordered := *candidates
		reordered.all = append(slices.Clone(all[1:]), all[0])
		candidates = &reordered
	}
	w := &Confirmation{checker: c, candidates: candidates, admit: admit, searches: make([]*search, len(candidates.all))}
	w.ask(0)
	return w
}

// ask sets the searches of the candidates from the i-th on, up to the first one that
// needs a second new search.
func (w *Confirmation) ask(i int) {
	c := w.checker
	c.mu.Lock()
	defer c.mu.Unlock()
	defer c.begin()
	var refund func()
	var err error
	for asked := 0; i < len(w.searches); i++ {
		candidate := w.candidates.all[i]
		s := c.known(candidate)
		switch {
		case s != nil:
			w.searches[i] = s
			continue
		case asked == c.perSearch:
			return
		case asked == 0 && w.admit != nil:
			refund, err = w.admit()
		}
		if s = failed(err); err == nil {
			s = c.enqueue(candidate.prefix, refund)
		}
		w.searches[i], refund = s, nil // one refund for all prefixes of the query
		asked++
	}
}

// search returns the search of candidate i. If there is none yet it asks, unless ctx
// has ended.
func (w *Confirmation) search(ctx context.Context, i int) *search {
	if w.searches[i] == nil {
		if ctx.Err() != nil {
			return new(search) // never ends
		}
		w.ask(i)
	}
	return w.searches[i]
}

// known returns the search for a candidate that needs no new one, or nil. The caller
// holds mu.
func (c *Checker) known(candidate candidate) *search {
	if s := c.pending[candidate.prefix]; s != nil {
		return s
	}
	if s := c.answered(candidate.hash); s != nil {
		return s
	}
	if c.closed {
		return failed(ErrClosed)
	}
	return nil
}

// answered returns a finished search if the answer about a full hash came in after
// Check had looked into the cache, and nil otherwise. The caller holds mu.
func (c *Checker) answered(hash FullHash) *search {
	answer, ok := c.cache.get(hash, time.Now())
	if !ok {
		return nil
	}
	s := &search{done: make(chan struct{}), answer: answer}
	close(s.done)
	return s
}

// failed returns a search that has ended with err.
func failed(err error) *search {
	s := &search{done: make(chan struct{}), err: err}
	close(s.done)
	return s
}

// maxQueued is the most prefixes that wait for a free slot, in searches of at most
// Config.PerSearch prefixes. One client within its rate limit cannot fill the queue and
// so cannot lock other clients out.
const maxQueued = 32 * MaxPrefixes

// enqueue adds a prefix to the last search in the queue, or to a new one if that is
// full. If the queue is full too, the search fails with ErrLimited. refund, unless nil,
// is called if the prefix is not sent. The caller holds mu.
func (c *Checker) enqueue(prefix Prefix, refund func()) *search {
	last := len(c.queue) - 1
	if last < 0 || len(c.queue[last].prefixes) == c.perSearch {
		if len(c.queue) >= maxQueued/c.perSearch {
			s := &search{done: make(chan struct{}), err: ErrLimited}
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

// begin starts waiting searches while slots are free. A search that still waits
// collects the prefixes of later queries. The caller holds mu.
func (c *Checker) begin() {
	for len(c.queue) > 0 && c.slots > 0 {
		s := c.queue[0]
		c.queue = slices.Delete(c.queue, 0, 1)
		c.slots--
		c.wg.Go(func() { c.run(s) })
	}
}

// run does one search. It ends when the server answers, at the timeout, or when
// Close cancels it; Close waits for it.
func (c *Checker) run(s *search) {
	answer, err := c.ask(s.prefixes)
	c.mu.Lock()
	defer c.mu.Unlock()
	s.err = err
	s.answer = serverAnswer{received: time.Now(), ttl: answer.TTL, threats: answer.Threats}
	s.earlier = answer.Earlier
	for _, p := range s.prefixes {
		if err == nil {
			c.cache.put(p, s.about(p))
		}
		delete(c.pending, p)
	}
	s.end()
	c.slots++
	if c.closed {
		for _, s := range c.queue {
			s.err = ErrClosed
			s.end()
		}
		c.queue = nil
	}
	c.begin()
}

// charge adds a refund, unless it is nil. The caller holds Checker.mu.
func (s *search) charge(refund func()) {
	if refund != nil {
		s.refunds = append(s.refunds, refund)
	}
}

// end calls the refunds if the search was not sent, and wakes those who wait for it.
// The caller holds Checker.mu.
func (s *search) end() {
	unsent := func(reason error) bool { return errors.Is(s.err, reason) }
	known := s.err == nil && len(s.earlier) == len(s.prefixes)
	if known || slices.ContainsFunc([]error{ErrBackoff, ErrLimited, ErrBudget, ErrClosed}, unsent) {
		for _, refund := range s.refunds {
			refund()
		}
	}
	close(s.done)
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

// about returns the part of the answer about p. The search has ended without an error.
func (s *search) about(p Prefix) serverAnswer {
	answer := s.answer
	if e, ok := s.earlier[p]; ok {
		answer = serverAnswer{received: e.Received, ttl: e.TTL, threats: e.Threats}
	}
	return answer.only(p)
}

// finished waits until the search or ctx ends, and reports whether the search has
// ended. If both have, the search counts: one late search must not hide a threat
// that another search has found.
func (s *search) finished(ctx context.Context) bool {
	select {
	case <-s.done:
		return true
	case <-ctx.Done():
	}
	select {
	case <-s.done:
		return true
	default:
		return false
	}
}

// Wait returns the decision, or an Unsure one if ctx ends first. If a search fails,
// the verdict is Unsure for a host that a list holds. A host that no list holds is
// then Safe ("No-Storage Real-Time Mode"): the modes that ask about every host must
// not suspect every host while the server is down.
func (w *Confirmation) Wait(ctx context.Context) Decision {
	decision := Decision{Verdict: Safe, By: ByServer}
	frameOnly := w.candidates.frameOnly
	for i, candidate := range w.candidates.all {
		s := w.search(ctx, i)
		if !s.finished(ctx) {
			late := Decision{Verdict: Unsure, By: ByTimeout, List: candidate.list, Err: ctx.Err()}
			if late.Graver(decision) {
				decision = late
			}
			continue
		}
		if s.err != nil {
			unanswered := Decision{By: deciderOf(s.err), List: candidate.list, Err: s.err}
			if candidate.list != "" {
				unanswered.Verdict = Unsure
			}
			if unanswered.Graver(decision) || decision.Verdict == Safe {
				decision = unanswered
			}
			continue
		}
		threat, known := w.checker.threatIn(s.about(candidate.prefix), candidate.hash)
		if known && threat.FrameOnly && w.candidates.frames == PassFrames {
			frameOnly = true
		} else if known {
			return w.unsafe(i, threat)
		}
	}
	decision.FrameOnly = frameOnly
	return decision
}

// Limited returns the decision if too many queries wait for a confirmation already, so
// that none is asked for: as Wait returns it if no search was admitted.
func (c *Candidates) Limited() Decision {
	decision := Decision{Verdict: Safe, By: ByLimiter, Err: ErrLimited}
	for _, candidate := range c.all {
		if candidate.list != "" {
			decision.Verdict, decision.List = Unsure, candidate.list
			break
		}
	}
	return decision
}

// unsafe returns the decision for a threat that the server has confirmed for
// candidate i.
func (w *Confirmation) unsafe(i int, threat ThreatHash) Decision {
	return Decision{
		Verdict: Unsafe, By: ByServer, Threat: threat.Threats.first(), FrameOnly: threat.FrameOnly,
		List: w.candidates.all[i].list, Expression: w.candidates.expression(i),
		Expires: w.searches[i].about(w.candidates.all[i].prefix).received.Add(threat.TTL),
	}
}

// deciderOf returns the decider that stands for the error of a search.
func deciderOf(err error) Decider {
	switch {
	case errors.Is(err, ErrBackoff):
		return ByBackoff
	case errors.Is(err, ErrLimited):
		return ByLimiter
	case errors.Is(err, ErrBudget):
		return ByBudget
	case errors.Is(err, context.DeadlineExceeded):
		return ByTimeout
	}
	return ByError
}
