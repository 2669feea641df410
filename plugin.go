// Package safebrowsing is a CoreDNS plugin that answers names of phishing and
// malware hosts, as Google Safe Browsing knows them, with NXDOMAIN or the
// address of a sinkhole, and passes all others on.
//
//	query ──▶ SafeBrowsing.ServeDNS ──▶ policy.Policy ─┬─ Safe ──────▶ next plugin
//	                                    (own lists,    ├─ Unsafe ────▶ answer.Reply
//	                                     then Checker) └─ candidate ─▶ confirm AND next plugin
//	                                                                   at the same time, see held
//	Corefile ──▶ config.Config ─┬─ Block ────▶ policy, answer: each server block's own
//	                            └─ Settings ─▶ engine.Engine: shared by server blocks with
//	                                           equal settings, also over reloads, see block.go
//
// Arrows of import point one way, which a test holds: this package → internal/engine,
// internal/policy → internal/config → internal/answer → internal/protocol,
// internal/ownlist → updater → lookup → internal/prefixset.
package safebrowsing

import (
	"context"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/coredns/coredns/plugin"
	clog "github.com/coredns/coredns/plugin/pkg/log"
	"github.com/coredns/coredns/request"

	"github.com/miekg/dns"

	"github.com/coredns-safebrowsing/safebrowsing/internal/config"
	"github.com/coredns-safebrowsing/safebrowsing/internal/engine"
	"github.com/coredns-safebrowsing/safebrowsing/internal/policy"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

var log = clog.NewWithPlugin(config.Plugin)

// SafeBrowsing is the plugin in one server block. It is safe for concurrent use
// once set up.
type SafeBrowsing struct {
	Next plugin.Handler

	cfg      config.Config
	policy   *policy.Policy // by cfg
	release  func()         // lets go of the engine; set by OnStartup
	metrics  blockMetrics
	names    nameLog
	detached detached // next plugins and confirmations that outlive their query; ended with the server block
}

// newPlugin returns the plugin of one server block, which has not started.
func newPlugin(cfg config.Config, next plugin.Handler) *SafeBrowsing {
	s := &SafeBrowsing{Next: next, cfg: cfg}
	s.policy = policy.New(&s.cfg.Block)
	return s
}

// Name implements the plugin.Handler interface.
func (s *SafeBrowsing) Name() string { return config.Plugin }

// ServeDNS implements the plugin.Handler interface.
func (s *SafeBrowsing) ServeDNS(ctx context.Context, w dns.ResponseWriter, r *dns.Msg) (int, error) {
	switch q, answered := s.decide(ctx, w, r); {
	case answered: // not the rcode: REFUSED and SERVFAIL would have the server answer a second time
		return dns.RcodeSuccess, nil
	case q != nil:
		return s.follow(q, w)
	}
	return plugin.NextOrFailure(s.Name(), s.Next, ctx, w, r)
}

// decide does all that is done at once: it answers the query, or lets it pass, or
// returns what takes longer.
//
// It is not inlined, so that what it needs is off the stack when the next plugin
// runs. CoreDNS serves each query on a goroutine of its own, and whenever the stack
// of that has to grow it is copied, which takes longer than the decision.
//
//go:noinline
func (s *SafeBrowsing) decide(ctx context.Context, w dns.ResponseWriter, r *dns.Msg) (q *query, answered bool) {
	state := request.Request{W: w, Req: r}
	if host, ok := asksWhy(&state); ok {
		w.WriteMsg(s.why(r, host))
		return nil, true
	}
	if !checked(state.QType()) || state.QClass() != dns.ClassINET || !s.policy.InScope(r.Question[0].Name) {
		return nil, false
	}
	outcome := announce(ctx)
	decision, candidates := s.policy.Check(lookup.FromQname(r.Question[0].Name))
	inspect := s.cfg.Inspect && decision.Verdict != lookup.Unsafe && decision.By != lookup.ByAllow
	if candidates == nil && !inspect { // the common way
		s.decided(ctx, outcome, decision, true)
		if decision.Verdict != lookup.Unsafe {
			return nil, false
		}
		s.logged(state.IP(), r.Question[0], decision)
		if s.cfg.Monitor {
			return nil, false
		}
		if m := s.cfg.Blocked(ctx, w, r, decision); m != nil {
			w.WriteMsg(m)
		}
		return nil, true
	}
	q = &query{
		plugin: s, ctx: ctx, msg: r, question: r.Question[0], client: state.IP(), outcome: outcome, candidates: candidates,
		admit: s.admit(w), deadline: time.Now().Add(s.cfg.ConfirmTimeout),
	}
	if candidates == nil {
		q.decided(decision)
	}
	return q, false
}

// follow goes on with a query that takes longer.
func (s *SafeBrowsing) follow(q *query, w dns.ResponseWriter) (int, error) {
	if q.candidates != nil {
		return s.confirm(q, w)
	}
	return plugin.NextOrFailure(s.Name(), s.Next, q.ctx, q.inspected(w), q.msg.Copy())
}

// decided tells metrics and metadata. A query that is blocked is counted as such
// when first is set.
func (s *SafeBrowsing) decided(ctx context.Context, o *outcome, d lookup.Decision, first bool) {
	o.set(d)
	s.metrics.count(ctx, d, first && !s.cfg.Monitor)
	if d.FrameOnly {
		s.metrics.countFrameOnly(ctx, d.Verdict == lookup.Unsafe && !s.cfg.Monitor)
	}
}

// logged tells the log of a query that is blocked, or in monitor mode would be.
func (s *SafeBrowsing) logged(client string, q dns.Question, d lookup.Decision) {
	if s.cfg.Monitor || s.cfg.LogBlocked {
		s.names.log(s.cfg.Monitor, client, q, d, s.cfg.Cause(d), time.Now())
	}
}

// query is one query that takes longer: it is confirmed, or its answer inspected.
type query struct {
	plugin     *SafeBrowsing
	ctx        context.Context
	msg        *dns.Msg
	question   dns.Question       // of msg, which is not ours any more when the query has ended
	client     string             // address
	outcome    *outcome           // nil: nobody reads metadata
	candidates *lookup.Candidates // to be confirmed; nil: none, the answer is to be inspected
	admit      func() bool        // whether its client may cause a search; nil: all may
	deadline   time.Time          // of confirmations
	unsafe     atomic.Bool        // a decision was that it is
}

// decided is told of each decision about the query or a target in its answer.
func (q *query) decided(d lookup.Decision) {
	first := d.Verdict == lookup.Unsafe && q.unsafe.CompareAndSwap(false, true)
	q.plugin.decided(q.ctx, q.outcome, d, first)
	if first {
		q.plugin.logged(q.client, q.question, d)
	}
}

// checked reports whether queries of a type are part of browsing. To block
// others (TXT, MX, DS, NS, SRV …) would break mail and DNSSEC of hosts that
// share a domain with a threat.
func checked(qtype uint16) bool {
	switch qtype {
	case dns.TypeA, dns.TypeAAAA, dns.TypeHTTPS, dns.TypeSVCB, dns.TypeCNAME, dns.TypeANY:
		return true
	}
	return false
}

// confirm asks the server about candidates while the next plugin resolves the
// name. It takes no longer than the longer of the two, and the confirmation no
// longer than confirmTimeout from when the query came. A host that is blocked is
// answered at once, whether its own servers answer or not.
func (s *SafeBrowsing) confirm(q *query, w dns.ResponseWriter) (int, error) {
	confirmation := s.policy.Confirm(q.candidates, q.admit)
	if s.cfg.Monitor {
		return q.watch(w, confirmation)
	}
	next := q.hold(w)
	d := q.wait(confirmation)
	q.decided(d)
	if q.replace(w, d) {
		next.abandon()
		return dns.RcodeSuccess, nil
	}
	return next.deliver(w, d)
}

// watch confirms in monitor mode, where nothing is held back.
func (q *query) watch(w dns.ResponseWriter, confirmation *lookup.Confirmation) (int, error) {
	s := q.plugin
	done := make(chan struct{})
	s.detached.run(func() {
		defer close(done)
		q.decided(q.wait(confirmation))
	})
	rcode, err := plugin.NextOrFailure(s.Name(), s.Next, q.ctx, q.inspected(w), q.msg.Copy())
	if !q.detachable() {
		<-done
	}
	return rcode, err
}

// wait returns the decision, at the query's deadline at the latest.
func (q *query) wait(confirmation *lookup.Confirmation) lookup.Decision {
	ctx, cancel := context.WithDeadline(context.Background(), q.deadline)
	defer cancel()
	return confirmation.Wait(ctx)
}

// detachable reports whether the query is over for its client before decisions
// about it are: in monitor mode, unless metadata is read, as that is done when
// the query ends. Over HTTPS an answer goes out no sooner.
func (q *query) detachable() bool { return q.plugin.cfg.Monitor && q.outcome == nil }

// admit returns the question whether the client of w may cause a search, or nil
// if all may.
func (s *SafeBrowsing) admit(w dns.ResponseWriter) func() bool {
	if s.cfg.Limiter == nil {
		return nil
	}
	state := request.Request{W: w}
	client, _ := netip.ParseAddr(state.IP()) // clients without an address count as one
	return func() bool { return s.cfg.Limiter.Admit(client, time.Now()) }
}

// Ready implements the ready.Readiness interface: true as soon as the lists are
// in force, and at the latest when the first contact with the server has ended,
// however it ended. A server that is down must not keep a resolver out of
// service. It speaks for all server blocks, of which the ready plugin asks only
// one.
func (s *SafeBrowsing) Ready() bool {
	return (!s.cfg.Online || s.policy.InUse()) && engine.Default.Ready()
}
