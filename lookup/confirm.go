package lookup

import (
	"context"
	"errors"
	"slices"
	"time"
)

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
		if s = ended(serverAnswer{}, err); err == nil {
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
		return ended(serverAnswer{}, ErrClosed)
	}
	return c.waiting(candidate.prefix, time.Now())
}

// answered returns a finished search if the answer about a full hash came in after
// Check had looked into the cache, and nil otherwise. The caller holds mu.
func (c *Checker) answered(hash FullHash) *search {
	answer, ok := c.cache.get(hash, time.Now())
	if !ok {
		return nil
	}
	return ended(answer, nil)
}

// Wait returns the decision, or an Unsure one if ctx ends first. If a search fails,
// the verdict is Unsure for a host that a list holds. But one candidate that is known to be a
// threat decides, whatever fails for the others. A host that no list holds is
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
		answer, err := s.about(candidate.prefix)
		threat, known := w.checker.threatIn(answer, candidate.hash)
		switch {
		case known && threat.FrameOnly && w.candidates.frames == PassFrames:
			frameOnly = true
		case known:
			return w.unsafe(i, threat, answer.received)
		case err != nil:
			if unanswered := candidate.unanswered(err); unanswered.Graver(decision) || decision.Verdict == Safe {
				decision = unanswered
			}
		}
	}
	if decision.Err != nil {
		if known, ok := w.knownMeanwhile(); ok {
			return known
		}
	}
	decision.FrameOnly = frameOnly
	return decision
}

// knownMeanwhile returns the decision for a threat that another search has found after the one for
// its candidate had failed or was late.
func (w *Confirmation) knownMeanwhile() (Decision, bool) {
	for i, candidate := range w.candidates.all {
		answer, ok := w.checker.cache.get(candidate.hash, time.Now())
		threat, known := w.checker.threatIn(answer, candidate.hash)
		if ok && known && !(threat.FrameOnly && w.candidates.frames == PassFrames) {
			return w.unsafe(i, threat, answer.received), true
		}
	}
	return Decision{}, false
}

// unanswered returns the decision for a candidate whose search has failed.
func (c candidate) unanswered(err error) Decision {
	d := Decision{By: deciderOf(err), List: c.list, Err: err}
	if c.list != "" {
		d.Verdict = Unsure
	}
	return d
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
// candidate i, when its answer was received.
func (w *Confirmation) unsafe(i int, threat ThreatHash, received time.Time) Decision {
	first, also := threat.Threats.split()
	return Decision{
		Verdict: Unsafe, By: ByServer, Threat: first, Also: also, FrameOnly: threat.FrameOnly,
		List: w.candidates.all[i].list, Expression: w.candidates.expression(i),
		Expires: received.Add(threat.TTL),
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
