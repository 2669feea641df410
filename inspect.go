package safebrowsing

import (
	"slices"
	"strings"

	"github.com/miekg/dns"

	"github.com/coredns-safebrowsing/safebrowsing/internal/policy"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

// maxTargets is how many targets of one answer are checked: the last ones.
const maxTargets = 16

// inspector is the writer of a query whose answer is checked too: the client will
// connect to the hosts that the name is an alias of.
type inspector struct {
	dns.ResponseWriter
	query    *query
	decision lookup.Decision // about the name itself
}

// inspected returns w, or a writer that inspects answers before it writes them to w.
func (q *query) inspected(w dns.ResponseWriter) dns.ResponseWriter {
	if !q.plugin.cfg.Inspect || q.needed != "" {
		return w
	}
	return &inspector{ResponseWriter: w, query: q}
}

// WriteMsg implements dns.ResponseWriter.
func (i *inspector) WriteMsg(m *dns.Msg) error { return i.write(written{msg: m}) }

// Write implements dns.ResponseWriter.
func (i *inspector) Write(b []byte) (int, error) { return len(b), i.write(rawAnswer(b)) }

func (i *inspector) write(a written) error {
	q := i.query
	targets := q.targetsIn(a)
	if len(targets) == 0 {
		return q.write(i.ResponseWriter, a, i.decision)
	}
	if q.plugin.cfg.Monitor { // nothing will be held back: the client comes first
		err := a.writeTo(i.ResponseWriter)
		q.detach(func() { q.checkTargets(targets) })()
		return err
	}
	a.decision = q.checkTargets(targets)
	return q.write(i.ResponseWriter, a, i.decision)
}

// targetsIn returns the targets in an answer if they are to be checked.
func (q *query) targetsIn(a written) []string {
	if !q.plugin.cfg.Inspect || a.msg == nil {
		return nil
	}
	return targetsOf(a.msg)
}

// targetsOf returns the targets of aliases in an answer, each once, at most
// maxTargets of them. It begins with the last: the client connects to the end of a
// chain of aliases, which is in order in an answer (RFC 1034 section 4.3.2).
func targetsOf(m *dns.Msg) (targets []string) {
	for _, rr := range slices.Backward(m.Answer) {
		var target string
		switch rr := rr.(type) {
		case *dns.CNAME:
			target = rr.Target
		case *dns.HTTPS:
			target = rr.Target
		case *dns.SVCB:
			target = rr.Target
		}
		// "." is the owner itself, or no service at all (RFC 9460 section 2.5).
		if target != "" && target != "." && !slices.Contains(targets, target) && len(targets) < maxTargets {
			targets = append(targets, target)
		}
	}
	return targets
}

// checkTargets returns the decision about the first target that is unsafe, else
// about one that is unsure, and observes it unless it is Safe.
func (q *query) checkTargets(targets []string) lookup.Decision {
	var suspects []*lookup.Candidates
	decision, framePasses := lookup.Decision{}, false
	for _, target := range targets {
		if q.plugin.cfg.Except.Contains(strings.ToLower(target)) {
			continue
		}
		host := lookup.FromQname(target)
		d, candidates := q.plugin.policy.Check(host)
		if !policy.IsOwn(d) && q.plugin.policy.Needed(host) != "" {
			continue
		}
		if candidates != nil {
			suspects = append(suspects, candidates)
		} else if d.Verdict == lookup.Unsafe {
			decision, suspects = d, nil
			break
		} else if d.FrameOnly {
			framePasses = true
		}
	}
	for _, d := range q.confirmTargets(suspects) {
		if d.Graver(decision) {
			decision = d
		}
		framePasses = framePasses || d.FrameOnly
	}
	if decision.Verdict != lookup.Safe {
		q.observe(decision)
	} else if framePasses {
		q.plugin.metrics.countFrameOnly(q.ctx, false)
	}
	return decision
}

// confirmTargets returns the decisions about targets. Confirmations run in parallel, until
// the query's deadline.
func (q *query) confirmTargets(suspects []*lookup.Candidates) (decisions []lookup.Decision) {
	if len(suspects) == 0 {
		return nil
	}
	leave, ok := q.plugin.waiting.Take(q.client, suspects[0].Shortest())
	if !ok {
		for _, candidates := range suspects {
			decisions = append(decisions, candidates.Limited())
		}
		return decisions
	}
	defer leave()
	var waiting []*confirmation
	for _, candidates := range suspects {
		waiting = append(waiting, q.begin(candidates))
	}
	for _, confirmation := range waiting {
		decisions = append(decisions, q.wait(confirmation))
	}
	return decisions
}
