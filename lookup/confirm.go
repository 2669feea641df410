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
	admit      Admit   // may be nil
	parts      []*part // parts[i] is for candidate i; nil: not asked about yet
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
	if all := candidates.all; len(all) > c.cfg.PerSearch && all[0].start == 0 {
		// The exact host last, and so the shortest expression first: if that is a
		// threat, every host below it is.
		reordered := *candidates
		reordered.all = append(slices.Clone(all[1:]), all[0])
		candidates = &reordered
	}
	w := &Confirmation{checker: c, candidates: candidates, admit: admit, parts: make([]*part, len(candidates.all))}
	w.ask(0)
	return w
}

// ask sets the parts of the candidates from the i-th on, up to the first one that
// needs a second new search.
func (w *Confirmation) ask(i int) {
	c := w.checker
	c.mu.Lock()
	defer c.mu.Unlock()
	defer c.begin()
	var refund func()
	var err error
	for asked := 0; i < len(w.parts); i++ {
		candidate := w.candidates.all[i]
		p := c.known(candidate)
		switch {
		case p != nil:
			w.parts[i] = p
			continue
		case asked == c.cfg.PerSearch:
			return
		case asked == 0 && w.admit != nil:
			refund, err = w.admit()
		}
		if err != nil {
			p = c.refused(candidate.prefix, err)
		} else {
			p = c.enqueue(candidate.prefix, refund)
		}
		w.parts[i], refund = p, nil // one refund for all prefixes of the query
		asked++
	}
}

// await waits until one more part has ended, or ctx has. If none is under way it asks about the
// next candidates, and reports false if there are none.
func (w *Confirmation) await(ctx context.Context) (more bool) {
	switch next := slices.Index(w.parts, nil); {
	case ctx.Err() != nil:
		return false
	case slices.ContainsFunc(w.parts, (*part).underWay):
		oneEnds(ctx, w.parts)
		return true
	case next >= 0:
		w.ask(next)
		return true
	}
	return false
}

// known returns the part for a candidate that needs no new search, or nil. The caller
// holds mu.
func (c *Checker) known(candidate candidate) *part {
	if p := c.searching.pending[candidate.prefix]; p != nil {
		return p
	}
	if answer, ok := c.cache.get(candidate.hash, time.Now()); ok { // it came in after Check had looked into the cache
		return ended(answer, nil)
	}
	if c.closed {
		return ended(serverAnswer{}, ErrClosed)
	}
	return c.waiting(candidate.prefix, time.Now())
}

// Wait returns the decision, or an Unsure one if ctx ends first. If a search fails,
// the verdict is Unsure for a host that a list holds. But one candidate that is known to be a
// threat decides, whatever fails for the others. A host that no list holds is
// then Safe ("No-Storage Real-Time Mode"): the modes that ask about every host must
// not suspect every host while the server is down.
func (w *Confirmation) Wait(ctx context.Context) Decision {
	decision := w.decision(ctx)
	for decision.Verdict != Unsafe && w.await(ctx) { // a threat does not wait for the others
		decision = w.decision(ctx)
	}
	if decision.Verdict != Unsafe { // what has ended together with ctx counts
		decision = w.decision(ctx)
	}
	if decision.Err != nil {
		if known, ok := w.knownMeanwhile(); ok {
			return known
		}
	}
	return decision
}

// decision returns the decision from what has been answered.
func (w *Confirmation) decision(ctx context.Context) Decision {
	decision := Decision{Verdict: Safe, By: ByServer}
	for i, candidate := range w.candidates.all {
		p := w.parts[i]
		if p == nil || !p.over.Load() {
			late := Decision{Verdict: Unsure, By: ByTimeout, List: candidate.list, Err: ctx.Err()}
			if late.Graver(decision) {
				decision = late
			}
			continue
		}
		if threat, known := w.checker.threatIn(p.answer, candidate.hash); known {
			return w.unsafe(i, threat, p.answer.received)
		}
		if p.err != nil {
			if unanswered := candidate.unanswered(p.err); unanswered.Graver(decision) || decision.Verdict == Safe {
				decision = unanswered
			}
		}
	}
	return decision
}

// knownMeanwhile returns the decision for a threat that another search has found after the one for
// its candidate had failed or was late.
func (w *Confirmation) knownMeanwhile() (Decision, bool) {
	for i, candidate := range w.candidates.all {
		answer, ok := w.checker.cache.get(candidate.hash, time.Now())
		threat, known := w.checker.threatIn(answer, candidate.hash)
		if ok && known {
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
func (c *Candidates) Limited() Decision { return c.all[c.first()].unanswered(ErrLimited) }

// unsafe returns the decision for a threat that the server has confirmed for
// candidate i, when its answer was received.
func (w *Confirmation) unsafe(i int, threat ThreatHash, received time.Time) Decision {
	return threat.unsafe(ByServer, w.candidates.all[i].list, w.candidates.expression(i), received)
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
