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
	"time"

	"github.com/coredns/coredns/plugin"
	"github.com/coredns/coredns/request"

	"github.com/miekg/dns"

	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

// SafeBrowsing is the plugin in one server block. It is safe for concurrent use
// once set up.
type SafeBrowsing struct {
	Next plugin.Handler

	config
	engine  *engine // from OnStartup to OnShutdown
	metrics blockMetrics
}

// Name implements the plugin.Handler interface.
func (s *SafeBrowsing) Name() string { return pluginName }

// ServeDNS implements the plugin.Handler interface.
func (s *SafeBrowsing) ServeDNS(ctx context.Context, w dns.ResponseWriter, r *dns.Msg) (int, error) {
	state := request.Request{W: w, Req: r}
	if !checked(state.QType()) || state.QClass() != dns.ClassINET || !s.mine(state.Name()) {
		return plugin.NextOrFailure(s.Name(), s.Next, ctx, w, r)
	}
	decision, candidates := s.check(lookup.FromQname(state.Name()))
	if candidates != nil {
		return s.confirm(ctx, w, r, candidates)
	}
	s.metrics.count(ctx, decision)
	if decision.Verdict == lookup.Unsafe {
		return written(w, s.blocked(r, decision))
	}
	return plugin.NextOrFailure(s.Name(), s.Next, ctx, w, r)
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
	for _, l := range s.allow {
		if l.names.Covers(h) {
			return lookup.Decision{By: lookup.ByAllow, List: l.file}, nil
		}
	}
	for _, l := range s.block {
		if l.names.Contains(h) {
			return lookup.Decision{Verdict: lookup.Unsafe, By: lookup.ByBlock, List: l.file, Expression: h.String() + "/"}, nil
		}
	}
	if s.engine == nil {
		return lookup.Decision{}, nil
	}
	return s.engine.checker.Check(h)
}

// confirm asks the server about candidates while the next plugin resolves the
// name. It takes no longer than the longer of the two, and the confirmation no
// longer than confirmTimeout from when the query came.
func (s *SafeBrowsing) confirm(ctx context.Context, w dns.ResponseWriter, r *dns.Msg, candidates *lookup.Candidates) (int, error) {
	deadline := time.Now().Add(s.confirmTimeout)
	confirmation := s.engine.checker.Confirm(candidates, s.admit(w))
	h := &held{ResponseWriter: w, query: r, plugin: s, decided: make(chan struct{})}
	// The goroutine ends by the deadline at the latest, and is waited for below,
	// also when a plugin panics: nobody may write once this function is left. It
	// does not end with the client's context: the next query wants the answer.
	go func() {
		ctx, cancel := context.WithDeadline(context.Background(), deadline)
		defer cancel()
		h.decide(confirmation.Wait(ctx))
	}()
	defer func() { <-h.decided }()
	rcode, err := plugin.NextOrFailure(s.Name(), s.Next, ctx, h, r)
	<-h.decided
	s.metrics.count(ctx, h.decision)
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
