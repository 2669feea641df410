// Package safebrowsing is a CoreDNS plugin that answers names of phishing and
// malware hosts, as Google Safe Browsing knows them, with NXDOMAIN or the
// address of a sinkhole, and passes all others on.
//
//	query ──▶ SafeBrowsing.ServeDNS ──▶ block.Block ───┬─ Safe ──────▶ next plugin
//	                                    (own lists,    ├─ Unsafe ────▶ answer.Reply
//	                                     then Checker) └─ candidate ─▶ confirm AND next plugin
//	                                                                   at the same time, see held
//	Corefile ──▶ config.Config ──▶ block.Block ──▶ engine.Engine: shared by server blocks with
//	                                               equal settings, also over reloads
//
// Arrows of import point one way, which a test holds: this package → internal/control →
// internal/block → internal/engine, internal/config → internal/answer, internal/protocol,
// internal/ownlist → updater → lookup → internal/prefixset.
package safebrowsing

import (
	"context"
	"strings"
	"sync/atomic"
	"time"

	"github.com/coredns/coredns/plugin"
	"github.com/coredns/coredns/plugin/metrics"
	clog "github.com/coredns/coredns/plugin/pkg/log"
	"github.com/coredns/coredns/plugin/pkg/transport"
	"github.com/coredns/coredns/request"

	"github.com/miekg/dns"

	"github.com/coredns-safebrowsing/safebrowsing/internal/block"
	"github.com/coredns-safebrowsing/safebrowsing/internal/config"
	"github.com/coredns-safebrowsing/safebrowsing/internal/say"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

var log = say.NewLog(clog.NewWithPlugin(say.Plugin))

// SafeBrowsing is the plugin in one server block. It is safe for concurrent use
// once set up.
type SafeBrowsing struct {
	Next plugin.Handler

	block     *block.Block // what decides; OnStartup starts it
	metrics   blockMetrics
	names     nameLog
	waiting   *lookup.Places // of queries that wait for a confirmation
	searching *lookup.Places // of those that wait for a search which they have caused
	closeDoor func()         // lets go of the door of the process; set with the start
	detached  detached       // next plugins and confirmations that outlive their query; ended with the server block
	place     place          // of the server block; set with the start

	// successor has taken the place of this one, which has ended, in a reload. CoreDNS does not end connections over
	// QUIC then: their queries still come here.
	successor atomic.Pointer[SafeBrowsing]
}

// The first places of queries that wait, see lookup.NewPlaces, with much memory and with little.
const (
	mostWaiting  = 2048
	leastWaiting = 128
	waitingShare = 256 << 10 // bytes of all memory for each of them; a query that waits takes some 20 KiB
)

// firstPlaces returns the first places of a process with so much memory: one for each 256 KiB,
// from 128 to 2,048. 0 means that the memory is unknown.
func firstPlaces(memory int64) int {
	if memory <= 0 {
		return mostWaiting
	}
	return int(min(max(memory/waitingShare, leastWaiting), mostWaiting))
}

// newPlaces returns the places of one server block. Many clients may wait for one search. Each
// search that one of them has caused delays others' searches, and the queue of searches has no
// more than 960 prefixes: one network must not fill it.
func newPlaces(memory int64) (waiting, searching *lookup.Places) {
	first := firstPlaces(memory)
	return lookup.NewPlaces(first, 2*first), lookup.NewPlaces(first/4, 2*first)
}

// newPlugin returns the plugin of one server block, which has not started.
func newPlugin(cfg config.Config, next plugin.Handler) *SafeBrowsing {
	s := &SafeBrowsing{Next: next, block: block.New(cfg), names: nameLog{monitor: cfg.Monitor, json: cfg.LogJSON}}
	s.waiting, s.searching = newPlaces(lookup.UsableMemory())
	block.ThisProcess().Count(namesChecked)
	return s
}

// Name implements the plugin.Handler interface.
func (s *SafeBrowsing) Name() string { return say.Plugin }

// way is how a query continues after decide.
type way uint8

const (
	passed   way = iota // the next plugin answers, and nothing is left to do
	answered            // with a blocking answer or an explanation, or dropped
	inspect             // the next plugin answers, and targets in its answer are checked
	confirm             // the next plugin resolves while candidates are confirmed, and its answer waits for the decision
	watch               // as confirm in monitor mode and for a needed name: the answer does not wait
)

// ServeDNS implements the plugin.Handler interface.
func (s *SafeBrowsing) ServeDNS(ctx context.Context, w dns.ResponseWriter, r *dns.Msg) (int, error) {
	if next := s.successor.Load(); next != nil {
		if after := next.successor.Load(); after != nil { // a connection may outlive many reloads
			s.successor.Store(after)
		}
		return next.ServeDNS(ctx, w, r)
	}
	switch on, q := s.decide(ctx, w, r); on {
	case answered: // not the rcode: after REFUSED and SERVFAIL the server would answer a second time
		return dns.RcodeSuccess, nil
	case inspect:
		return q.inspect(w)
	case confirm:
		return q.confirm(w)
	case watch:
		return q.watch(w)
	}
	return plugin.NextOrFailure(s.Name(), s.Next, ctx, w, r)
}

// decide does all that can be done without waiting, and returns how the query goes
// on. The query is nil if that is passed or answered.
//
// It is not inlined: its frame must be off the stack when the next plugin runs.
// CoreDNS serves each query on a goroutine of its own. Whenever the stack of that
// grows it is copied, which takes longer than the decision.
//
//go:noinline
func (s *SafeBrowsing) decide(ctx context.Context, w dns.ResponseWriter, r *dns.Msg) (way, *query) {
	state := request.Request{W: w, Req: r}
	if host, ok := asksWhy(&state); ok {
		w.WriteMsg(s.why(r, host))
		return answered, nil
	}
	qname := r.Question[0].Name
	sign := block.SignOf(qname)
	if sign != nil { // few names
		if kept := s.block.Kept(sign, qname); kept != nil && state.QClass() == dns.ClassINET {
			count(ctx, keptTotal, kept.Reason)
			w.WriteMsg(kept.Designate(ctx, w, r, s.block.Designated()))
			return answered, nil
		}
	}
	if !checked(state.QType()) || state.QClass() != dns.ClassINET {
		return passed, nil
	}
	from := w.RemoteAddr()
	client := s.block.Heard(from, sign)
	if !s.block.InScope(qname) {
		return passed, nil
	}
	if _, paused := s.block.PausedUntil(); paused {
		return passed, nil
	}
	shown := announce(ctx)
	host := lookup.FromQname(qname)
	c := s.block.Check(host)
	if c.By == lookup.ByList {
		s.block.Passed(host)
	}
	switch {
	case c.Suspect != nil && (s.block.Config.Monitor || c.Needed != ""):
		return watch, s.newQuery(ctx, w, r, shown, c)
	case c.Suspect != nil:
		return confirm, s.newQuery(ctx, w, r, shown, c)
	case s.block.Config.Inspect && c.Needed == "" && c.Verdict != lookup.Unsafe && c.By != lookup.ByAllow:
		q := s.newQuery(ctx, w, r, shown, c)
		q.decision = c.Decision
		q.observe(c.Decision)
		return inspect, q
	case s.block.Remembers(c.Decision):
		s.block.Asked(client, from, host)
	}
	s.observe(ctx, shown, c.Decision)
	if c.Verdict == lookup.Unsafe {
		return s.answer(ctx, w, r, c.Decision), nil
	}
	return passed, nil
}

// answer answers a query for an unsafe name, unless in monitor mode.
func (s *SafeBrowsing) answer(ctx context.Context, w dns.ResponseWriter, r *dns.Msg, d lookup.Decision) way {
	s.observeBlocked(ctx, block.ClientOf(w.RemoteAddr()).String(), r.Question[0], "", d)
	if s.block.Config.Monitor {
		return passed
	}
	send(ctx, w, s.block.Reply().Blocked(ctx, w, r, d))
	return answered
}

// send writes an answer, or none if it is nil: an own list drops the query. Over QUIC each query has a stream,
// which ends here then: a client has a number of them at once (RFC 9250 section 4.2).
func send(ctx context.Context, w dns.ResponseWriter, m *dns.Msg) {
	switch {
	case m != nil:
		w.WriteMsg(m)
	case strings.HasPrefix(metrics.WithServer(ctx), transport.QUIC+"://"):
		w.Close()
	}
}

// observe puts a decision into the metrics and the metadata.
func (s *SafeBrowsing) observe(ctx context.Context, shown *shownDecision, d lookup.Decision) {
	shown.set(d)
	s.metrics.countVerdict(ctx, d)
	switch {
	case !d.FrameOnly:
	case s.block.Config.Monitor:
		count(ctx, frameOnlyTotal, "passed")
	default:
		count(ctx, frameOnlyTotal, "blocked")
	}
}

// observeBlocked counts and logs a query that is blocked, or in monitor mode would
// be. It is called once for each such query. target is what the name is an alias of, if the decision
// is about that; else "".
func (s *SafeBrowsing) observeBlocked(ctx context.Context, client string, q dns.Question, target string, d lookup.Decision) {
	if !s.block.Config.Monitor {
		count(ctx, blockedTotal, d.List)
		s.block.Blocked(q, target, client, d, time.Now())
	}
	if s.block.Config.Monitor || s.block.Config.LogBlocked {
		allow, report := s.block.Mistake(q.Name, d)
		s.names.log(client, q, d, s.block.Reply().Cause(d), allow, report, time.Now())
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

// Ready implements the ready.Readiness interface: true as soon as the lists are
// in force, and at the latest when the first contact with the server has ended,
// however it ended. A server that is down must not keep a resolver out of
// service. It speaks for all server blocks, since the ready plugin asks only
// one.
func (s *SafeBrowsing) Ready() bool { return s.block.Ready() }
