package lookup

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// search is one request to the server and those who wait for it. Its fields
// but done are written before done is closed and read afterwards.
type search struct {
	prefixes []Prefix // guarded by Checker.mu until the search has begun
	done     chan struct{}
	answer   confirmed
	err      error
}

// Confirmation is a decision that waits for the server.
type Confirmation struct {
	checker    *Checker
	candidates *Candidates
	searches   []*search // one for each candidate
}

// Confirm asks the server about the candidates. Prefixes that are being asked
// about already are not asked again: all who want to know share one search. A
// search belongs to nobody: it goes on when those who wait for it have given
// up, and its answer is kept. If a new request is needed admit is asked first,
// unless nil, and may refuse it. The Checker is locked meanwhile: admit must return
// at once and not call it.
func (c *Checker) Confirm(candidates *Candidates, admit func() bool) *Confirmation {
	c.mu.Lock()
	defer c.mu.Unlock()
	wait := &Confirmation{checker: c, candidates: candidates}
	refused := false
	for _, candidate := range candidates.all {
		s := c.asked[candidate.prefix]
		if s == nil {
			s = c.answered(candidate.hash)
		}
		if s == nil && !c.closed && admit != nil {
			refused, admit = !admit(), nil
		}
		switch {
		case s != nil:
		case c.closed:
			s = failed(ErrClosed)
		case refused:
			s = failed(ErrLimited)
		default:
			s = c.enqueue(candidate.prefix)
		}
		wait.searches = append(wait.searches, s)
	}
	c.begin()
	return wait
}

// answered returns a finished search if the answer about a full hash has come in
// since Check looked. The caller holds mu.
func (c *Checker) answered(hash FullHash) *search {
	answer, ok := c.cache.get(hash, time.Now())
	if !ok {
		return nil
	}
	s := &search{done: make(chan struct{}), answer: answer}
	close(s.done)
	return s
}

func failed(err error) *search {
	s := &search{done: make(chan struct{}), err: err}
	close(s.done)
	return s
}

// maxQueued is how many searches may wait for a free slot. It is far more than
// one client can fill within its limit, so that no client alone can keep the
// confirmations of the others out.
const maxQueued = 32

// enqueue adds a prefix to the last search that waits. The caller holds mu.
func (c *Checker) enqueue(prefix Prefix) *search {
	last := len(c.queue) - 1
	if last < 0 || len(c.queue[last].prefixes) == MaxPrefixes {
		if len(c.queue) == maxQueued {
			return failed(ErrLimited)
		}
		c.queue = append(c.queue, &search{done: make(chan struct{})})
		last++
	}
	s := c.queue[last]
	s.prefixes = append(s.prefixes, prefix)
	c.asked[prefix] = s
	return s
}

// begin starts searches that wait as far as slots are free. While none is,
// prefixes of further queries ride along. The caller holds mu.
func (c *Checker) begin() {
	for len(c.queue) > 0 && c.slots > 0 {
		s := c.queue[0]
		c.queue = slices.Delete(c.queue, 0, 1)
		c.slots--
		c.wg.Go(func() { c.run(s) })
	}
}

// run does one search. It is owned by the Checker, ends when the server has
// answered, by its time-out, or when the Checker is closed, and is waited for
// in Close.
func (c *Checker) run(s *search) {
	answer, err := c.ask(s.prefixes)
	c.mu.Lock()
	defer c.mu.Unlock()
	s.err = err
	s.answer = confirmed{asked: time.Now(), life: answer.Life, threats: answer.Threats}
	for _, p := range s.prefixes {
		if err == nil {
			c.cache.put(p, s.answer.only(p))
		}
		delete(c.asked, p)
	}
	close(s.done)
	c.slots++
	if c.closed {
		for _, s := range c.queue {
			s.err = ErrClosed
			close(s.done)
		}
		c.queue = nil
	}
	c.begin()
}

// ask searches within the time-out. A Searcher that panics has failed: it must
// not take the name server down.
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

// only returns the answer with the threats behind p: the server sometimes
// sends full hashes that nobody asked for, and they count for nothing.
func (c confirmed) only(p Prefix) confirmed {
	all := c.threats
	c.threats = nil
	for _, t := range all {
		if p.begins(t.Hash) {
			c.threats = append(c.threats, t)
		}
	}
	return c
}

// finished waits for the search until ctx ends. A search that has ended counts
// even if ctx has too: a threat that is known by then must not get lost because
// another search is late.
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

// Wait returns the decision, or Unsure when ctx ends first. Where no list holds
// a prefix, in the modes that ask about all hosts, an answer that cannot be had
// leaves the host Safe ("No-Storage Real-Time Mode"): a server that is down must
// not put every host under suspicion.
func (w *Confirmation) Wait(ctx context.Context) Decision {
	decision := Decision{Verdict: Safe, By: ByServer}
	frameOnly := w.candidates.frameOnly
	for i, s := range w.searches {
		candidate := w.candidates.all[i]
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
		threat, known := w.checker.threatIn(s.answer, candidate.hash)
		if known && threat.FrameOnly && w.candidates.frames == PassFrames {
			frameOnly = true
		} else if known {
			return w.unsafe(i, threat)
		}
	}
	decision.FrameOnly = frameOnly
	return decision
}

// unsafe is the decision for a threat that is known of candidate i.
func (w *Confirmation) unsafe(i int, threat ThreatHash) Decision {
	return Decision{
		Verdict: Unsafe, By: ByServer, Threat: threat.Threats.first(), FrameOnly: threat.FrameOnly,
		List: w.candidates.all[i].list, Expression: w.candidates.expression(i),
		Expires: w.searches[i].answer.asked.Add(threat.Life),
	}
}

func deciderOf(err error) Decider {
	switch {
	case errors.Is(err, ErrBackoff):
		return ByBackoff
	case errors.Is(err, ErrLimited):
		return ByLimiter
	case errors.Is(err, context.DeadlineExceeded):
		return ByTimeout
	}
	return ByError
}
