package safebrowsing

import (
	"context"
	"errors"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/coredns/coredns/plugin"

	"github.com/miekg/dns"

	"github.com/coredns-safebrowsing/safebrowsing/internal/block"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

// query is a query that takes longer than decide: it goes the way of inspect, confirm
// or watch.
type query struct {
	plugin   *SafeBrowsing
	ctx      context.Context
	msg      *dns.Msg
	question dns.Question    // of msg, which must not be read after the query has ended
	client   netip.Addr      // zero: it has none
	shown    *shownDecision  // nil: no plugin reads metadata
	suspect  *block.Suspect  // to be confirmed; nil on the way of inspect
	deadline time.Time       // of confirmations
	inspects bool            // the targets in its answer are checked
	decision lookup.Decision // about the name, on the way of inspect
	unsafe   atomic.Bool     // a decision was that it is unsafe
}

func (s *SafeBrowsing) newQuery(ctx context.Context, w dns.ResponseWriter, r *dns.Msg, shown *shownDecision, c block.Checked) *query {
	return &query{
		plugin: s, ctx: ctx, msg: r, question: r.Question[0], client: block.ClientOf(w.RemoteAddr()), shown: shown, suspect: c.Suspect,
		deadline: time.Now().Add(s.block.Config.ConfirmTimeout), inspects: s.block.Config.Inspect && c.Needed == "",
	}
}

// inspect lets the next plugin answer, and checks the targets in its answer.
func (q *query) inspect(w dns.ResponseWriter) (int, error) {
	if q.inspects {
		w = &inspector{w, q, q.decision}
	}
	return plugin.NextOrFailure(q.plugin.Name(), q.plugin.Next, q.ctx, w, q.msg.Copy())
}

// confirm asks the server about the candidates while the next plugin resolves the
// name. It takes no longer than the longer of the two. The confirmation ends
// confirm_timeout after the query came. A host that is blocked is answered at once,
// even if its own servers do not answer.
func (q *query) confirm(w dns.ResponseWriter) (int, error) {
	leave, ok := q.plugin.waiting.Take(q.client, q.suspect.Shortest())
	if !ok {
		return q.limited(w)
	}
	confirmation := q.begin(q.suspect)
	next := q.hold(w)
	d := q.wait(confirmation)
	leave()
	q.observe(d)
	if q.replace(w, d) {
		next.abandon()
		return dns.RcodeSuccess, nil
	}
	return next.deliver(w, d)
}

// limited answers without a confirmation, because too many queries wait for one. Nothing
// waits then, so the next plugin runs in the goroutine of the query.
func (q *query) limited(w dns.ResponseWriter) (int, error) {
	d := q.suspect.Limited()
	q.observe(d)
	if q.replace(w, d) {
		return dns.RcodeSuccess, nil
	}
	return plugin.NextOrFailure(q.plugin.Name(), q.plugin.Next, q.ctx, &inspector{w, q, d}, q.msg.Copy())
}

// watch confirms in monitor mode and for a needed name: no answer is held back.
func (q *query) watch(w dns.ResponseWriter) (int, error) {
	leave, ok := q.plugin.waiting.Take(q.client, q.suspect.Shortest())
	if !ok {
		d := q.suspect.Limited()
		q.observe(d)
		q.passes(d)
		return q.inspect(w)
	}
	confirmation := q.begin(q.suspect)
	join := q.detach(func() {
		defer leave()
		d := q.wait(confirmation)
		q.observe(d)
		q.passes(d)
	})
	rcode, err := q.inspect(w)
	join()
	return rcode, err
}

// detach runs f, which decides about the query in monitor mode, in a goroutine of its
// own. join is called before the query ends. It waits for f only if metadata is read,
// since that is done when the query ends; over HTTPS the answer goes out no sooner. A
// panic of f does not end the process: here the server would not recover it.
func (q *query) detach(f func()) (join func()) {
	done := make(chan struct{})
	q.plugin.detached.run(func() {
		defer close(done)
		defer func() {
			if p := recover(); p != nil {
				reportPanic("deciding about", q.question.Name, p)
			}
		}()
		f()
	})
	if q.shown == nil {
		return func() {}
	}
	return func() { <-done }
}

// confirmation is a confirmation that the query waits for.
type confirmation struct {
	*block.Confirmation
	leaves []func() // of the places of its searches
}

// begin asks the server about a suspect. Call wait once.
func (q *query) begin(suspect *block.Suspect) *confirmation {
	c := new(confirmation)
	c.Confirmation = suspect.Confirm(q.client, func() error {
		leave, ok := q.plugin.searching.Take(q.client, suspect.Shortest())
		if !ok {
			return lookup.ErrLimited
		}
		c.leaves = append(c.leaves, leave)
		return nil
	})
	return c
}

// wait returns the decision, at the query's deadline at the latest.
func (q *query) wait(c *confirmation) lookup.Decision {
	ctx, cancel := context.WithDeadline(context.Background(), q.deadline)
	defer cancel()
	d := c.Wait(ctx)
	for _, leave := range c.leaves {
		leave()
	}
	q.plugin.block.Searched(q.question.Name, d, len(c.leaves))
	return d
}

// observe is called with each decision about the query.
func (q *query) observe(d lookup.Decision) { q.observeTarget("", d) }

// observeTarget is called with each decision about a target in the answer; "" is the query itself. A
// query counts as blocked once, however many of them are unsafe.
func (q *query) observeTarget(target string, d lookup.Decision) {
	q.plugin.observe(q.ctx, q.shown, d)
	if errors.Is(d.Err, lookup.ErrShare) {
		if _, relayed := errors.AsType[*lookup.UnansweredError](d.Err); !relayed { // else it is the share of this server
			q.plugin.block.ShareSpent(q.client, time.Now())
		}
	}
	if d.Verdict == lookup.Unsafe && q.unsafe.CompareAndSwap(false, true) {
		q.plugin.observeBlocked(q.ctx, q.client.String(), q.question, target, d)
	}
}
