// Package safebrowsing is a CoreDNS plugin that answers names of phishing and
// malware hosts, as Google Safe Browsing knows them, with NXDOMAIN or the
// address of a sinkhole, and passes all others on.
//
//	query ──▶ SafeBrowsing.ServeDNS ──▶ allow, block ──▶ lookup.Checker ─┬─ Safe ──────▶ next plugin
//	                                     (operator's)    (lists, cache)  ├─ Unsafe ────▶ answer
//	                                                                     └─ candidate ─▶ confirm AND next plugin
//	                                                                                     at the same time, see held
//	engine: lookup.Database ◀── updater.Updater ◀── protocol.Client ──HTTP──▶ server
//	        lookup.Checker  ──── searches, paced ─────────┘
//
// Server blocks with equal engine settings share one engine, which also lives
// on when the Corefile is reloaded. What to answer belongs to the server block.
//
// Arrows of import point one way: this package → internal/protocol → updater →
// lookup.
package safebrowsing

import (
	"context"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/coredns/coredns/plugin"
	"github.com/coredns/coredns/request"

	"github.com/miekg/dns"

	"github.com/coredns-safebrowsing/safebrowsing/internal/ownlist"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

// SafeBrowsing is the plugin in one server block. It is safe for concurrent use
// once set up.
type SafeBrowsing struct {
	Next plugin.Handler

	config
	engine    atomic.Pointer[engine]          // from OnStartup to OnShutdown; nil: Safe Browsing is off
	files     atomic.Pointer[[]*ownlist.File] // the operator's lists, from OnStartup to OnShutdown
	metrics   blockMetrics
	monitored monitorLog
}

// Name implements the plugin.Handler interface.
func (s *SafeBrowsing) Name() string { return pluginName }

// ServeDNS implements the plugin.Handler interface.
func (s *SafeBrowsing) ServeDNS(ctx context.Context, w dns.ResponseWriter, r *dns.Msg) (int, error) {
	state := request.Request{W: w, Req: r}
	if host, ok := asksWhy(&state); ok {
		return written(w, s.why(r, host))
	}
	if !checked(state.QType()) || state.QClass() != dns.ClassINET || !s.mine(state.Name()) {
		return plugin.NextOrFailure(s.Name(), s.Next, ctx, w, r)
	}
	q := query{plugin: s, ctx: ctx, msg: r, outcome: announce(ctx)}
	if s.inspect {
		q.deadline = time.Now().Add(s.confirmTimeout)
	}
	decision, candidates := s.check(lookup.FromQname(state.Name()))
	if candidates != nil {
		return s.confirm(q, w, candidates)
	}
	q.decided(decision)
	if decision.Verdict == lookup.Unsafe && !s.monitor {
		return written(w, s.blocked(w, r, decision))
	}
	if s.inspect && decision.By != lookup.ByAllow {
		w, r = q.inspected(w), r.Copy()
	}
	return plugin.NextOrFailure(s.Name(), s.Next, ctx, w, r)
}

// query is one query that is checked.
type query struct {
	plugin   *SafeBrowsing
	ctx      context.Context
	msg      *dns.Msg
	outcome  *outcome  // nil: nobody reads metadata
	deadline time.Time // of confirmations; zero: not known yet
}

// decided tells metrics, metadata and, in monitor mode, the log.
func (q *query) decided(d lookup.Decision) {
	q.outcome.set(d)
	q.plugin.metrics.count(q.ctx, d, q.plugin.monitor)
	if d.Verdict == lookup.Unsafe && q.plugin.monitor {
		q.plugin.monitored.log(q.msg.Question[0].Name, d, time.Now())
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

// mine reports whether a name is for this plugin to check.
func (s *SafeBrowsing) mine(qname string) bool {
	return s.zones.Contains(qname) && !s.except.Contains(qname)
}

// check decides on a host by what is known here. If candidates are returned the
// decision waits for their confirmation.
func (s *SafeBrowsing) check(h lookup.Host) (lookup.Decision, *lookup.Candidates) {
	if d, ok := s.checkOwn(h); ok {
		return d, nil
	}
	e := s.engine.Load()
	if e == nil {
		return lookup.Decision{}, nil
	}
	return e.checker.Check(h)
}

// checkOwn decides on a host by the operator's own lists, of whose entries the most
// specific wins, and by test names.
func (s *SafeBrowsing) checkOwn(h lookup.Host) (lookup.Decision, bool) {
	var match ownlist.Match
	var found bool
	if files := s.files.Load(); files != nil && len(*files) > 0 {
		match, found = ownlist.Best(*files, h, time.Now())
	}
	if found && match.Allow {
		return lookup.Decision{By: lookup.ByAllow, List: match.File}, true
	}
	if s.tests.Covers(h) {
		return lookup.Decision{Verdict: lookup.Unsafe, By: lookup.ByTest, List: "test", Expression: h.String() + "/"}, true
	}
	if found {
		return lookup.Decision{Verdict: lookup.Unsafe, By: lookup.ByBlock, List: match.File, Expression: match.Name(h) + "/"}, true
	}
	return lookup.Decision{}, false
}

// confirm asks the server about candidates while the next plugin resolves the
// name. It takes no longer than the longer of the two, and the confirmation no
// longer than confirmTimeout from when the query came.
func (s *SafeBrowsing) confirm(q query, w dns.ResponseWriter, candidates *lookup.Candidates) (int, error) {
	q.deadline = time.Now().Add(s.confirmTimeout)
	confirmation := s.engine.Load().checker.Confirm(candidates, s.admit(w))
	h := &held{ResponseWriter: w, query: &q, settled: make(chan struct{})}
	// The goroutine ends by the deadline at the latest, and is waited for below,
	// also when a plugin panics: nobody may write once this function is left. It
	// does not end with the client's context: the next query wants the answer.
	go func() {
		ctx, cancel := context.WithDeadline(context.Background(), q.deadline)
		defer cancel()
		h.settle(confirmation.Wait(ctx))
	}()
	defer func() { <-h.settled }()
	// The next plugin gets a copy: forward, for one, changes the ID of the query
	// while it is under way, and settle may answer that query at the same time.
	rcode, err := plugin.NextOrFailure(s.Name(), s.Next, q.ctx, q.inspected(h), q.msg.Copy())
	<-h.settled
	if h.replaced {
		return dns.RcodeSuccess, nil
	}
	return rcode, err
}

// admit returns the question whether the client of w may cause a search, or nil
// if all may.
func (s *SafeBrowsing) admit(w dns.ResponseWriter) func() bool {
	if s.limiter == nil {
		return nil
	}
	return func() bool {
		state := request.Request{W: w}
		client, _ := netip.ParseAddr(state.IP()) // clients without an address count as one
		return s.limiter.Admit(client, time.Now())
	}
}

// written writes m and returns what ServeDNS must return for it: not the rcode
// of m, since REFUSED and SERVFAIL would have the server answer a second time.
func written(w dns.ResponseWriter, m *dns.Msg) (int, error) {
	w.WriteMsg(m)
	return dns.RcodeSuccess, nil
}
