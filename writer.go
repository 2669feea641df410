package safebrowsing

import (
	"context"
	"net"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/coredns/coredns/plugin"
	"github.com/coredns/coredns/plugin/metrics/vars"

	"github.com/miekg/dns"

	"github.com/coredns-safebrowsing/safebrowsing/internal/block"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

// The next plugin writes to one of two writers. inspector checks the targets in an answer
// before it passes it on; held keeps the answer until the decision about the name is in.

// written is what the next plugin wrote.
type written struct {
	msg      *dns.Msg        // nil: raw is not a DNS message
	raw      []byte          // nil: it was not written raw
	decision lookup.Decision // about the targets in it
}

func rawAnswer(b []byte) written {
	a := written{msg: new(dns.Msg), raw: b}
	if a.msg.Unpack(b) != nil {
		a.msg = nil
	}
	return a
}

func (a written) writeTo(w dns.ResponseWriter) error {
	if a.raw != nil {
		_, err := w.Write(a.raw)
		return err
	}
	return w.WriteMsg(a.msg)
}

// write writes an answer of the next plugin, or what replaces it. d is the decision
// about the name itself. It is not called in monitor mode.
func (q *query) write(w dns.ResponseWriter, a written, d lookup.Decision) error {
	if q.replace(w, a.decision) {
		return nil
	}
	q.passes(d)
	if a.msg != nil && (d.Verdict == lookup.Unsure || a.decision.Verdict == lookup.Unsure) {
		return w.WriteMsg(shortened(a.msg, maxUnsureTTL))
	}
	return a.writeTo(w)
}

// passes counts and has look-back remember that the client gets an answer. d is the decision about the name.
func (q *query) passes(d lookup.Decision) {
	if d.Verdict == lookup.Unsure && d.List != "" { // suspected, not just unknown
		q.plugin.block.Unconfirmed(q.client, q.question.Name, time.Now())
	}
	q.plugin.block.AskedAbout(q.client, lookup.FromQname(q.question.Name), d)
}

// replace answers instead of the next plugin if the decision calls for that, and
// reports whether it does. It is not called in monitor mode.
func (q *query) replace(w dns.ResponseWriter, d lookup.Decision) bool {
	var m *dns.Msg
	switch {
	case d.Verdict == lookup.Unsafe:
		m = q.plugin.block.Reply().Blocked(q.ctx, w, q.msg, d)
	case d.Verdict == lookup.Unsure && d.List != "" && q.plugin.block.Config.UnsureFails: // suspected, not just unknown
		m = q.plugin.block.Reply().Unconfirmed(q.ctx, w, q.msg, d)
	default:
		return false
	}
	send(q.ctx, w, m)
	return true
}

// maxUnsureTTL is the longest TTL of an answer that could not be confirmed, in
// seconds: soon afterwards the confirmation is in.
const maxUnsureTTL = 5

// maxTargets is how many targets of one answer are checked: the last ones.
const maxTargets = 16

// inspector is the writer of a query whose answer is checked too: the client will
// connect to the hosts that the name is an alias of.
type inspector struct {
	dns.ResponseWriter
	query    *query
	decision lookup.Decision // about the name itself
}

// WriteMsg implements dns.ResponseWriter.
func (i *inspector) WriteMsg(m *dns.Msg) error { return i.write(written{msg: m}) }

// Write implements dns.ResponseWriter.
func (i *inspector) Write(b []byte) (int, error) { return len(b), i.write(rawAnswer(b)) }

func (i *inspector) write(a written) error {
	q := i.query
	targets := q.targetsIn(a)
	if len(targets) > 0 && q.plugin.block.Config.Monitor { // nothing will be held back: the client comes first
		q.passes(i.decision)
		err := a.writeTo(i.ResponseWriter)
		q.detach(func() { q.checkTargets(targets) })()
		return err
	}
	a.decision = q.checkTargets(targets)
	return q.write(i.ResponseWriter, a, i.decision)
}

// targetsIn returns the targets in an answer if they are to be checked.
func (q *query) targetsIn(a written) []string {
	if !q.inspects || a.msg == nil {
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
	var suspects []*block.Suspect
	var suspected []string // the targets of suspects
	var decision lookup.Decision
	var of string // the target that decision is about
	for _, target := range targets {
		if q.plugin.block.Config.Except.Contains(target) {
			continue
		}
		c := q.plugin.block.Check(lookup.FromQname(target))
		if c.Needed != "" {
			continue
		}
		if c.Suspect != nil {
			suspects, suspected = append(suspects, c.Suspect), append(suspected, target)
		} else if c.Verdict == lookup.Unsafe {
			decision, of, suspects = c.Decision, target, nil
			break
		}
	}
	for i, d := range q.confirmTargets(suspects) {
		if d.Graver(decision) {
			decision, of = d, suspected[i]
		}
	}
	if decision.Verdict != lookup.Safe {
		q.observeTarget(of, decision)
	}
	return decision
}

// confirmTargets returns the decisions about targets. Confirmations run in parallel, until
// the query's deadline.
func (q *query) confirmTargets(suspects []*block.Suspect) (decisions []lookup.Decision) {
	if len(suspects) == 0 {
		return nil
	}
	leave, ok := q.plugin.waiting.Take(q.client, suspects[0].Shortest())
	if !ok {
		for _, suspect := range suspects {
			decisions = append(decisions, suspect.Limited())
		}
		return decisions
	}
	defer leave()
	var waiting []*confirmation
	for _, suspect := range suspects {
		waiting = append(waiting, q.begin(suspect))
	}
	for _, confirmation := range waiting {
		decisions = append(decisions, q.wait(confirmation))
	}
	return decisions
}

// held runs the next plugin while the confirmation is under way, and is its writer:
// what the next plugin writes is kept until the decision is in.
//
// The next plugin runs in a goroutine of its own and gets a message, a context and
// metadata of its own. So only the goroutine that serves the query uses the writers
// and the metadata of the plugins above ours, and a query that is blocked can end
// before the next plugin does.
type held struct {
	query         *query
	remote, local net.Addr // copies: the server may reuse its writer when the query has ended
	tsigStatus    error
	ctx           context.Context // of the next plugin, and of what it leaves behind
	outlive       func() bool     // detaches ctx from the query's context

	mu        sync.Mutex
	calls     []func(dns.ResponseWriter, lookup.Decision) // calls to the writer, in order
	panicked  any                                         // what the next plugin panicked with
	abandoned bool                                        // the query is answered without the next plugin

	done  chan struct{} // closed when the next plugin has returned
	rcode int           // read after done is closed
	err   error         // read after done is closed
}

// longest bounds the run of the next plugin.
const longest = time.Minute

// hold starts the next plugin.
func (q *query) hold(w dns.ResponseWriter) *held {
	h := &held{query: q, remote: w.RemoteAddr(), local: w.LocalAddr(), tsigStatus: w.TsigStatus(), done: make(chan struct{})}
	// The context ends with the query's, unless the next plugin is abandoned: cache
	// would keep the failure of a lookup that was cancelled, for queries to come. It does not end when
	// the plugin returns: cache refreshes what is stale in a goroutine that stays.
	ctx, cancel := context.WithoutCancel(ownMetadata(q.ctx)), context.CancelFunc(nil)
	if deadline, ok := q.ctx.Deadline(); ok {
		ctx, cancel = context.WithDeadline(ctx, deadline)
	} else {
		ctx, cancel = context.WithCancel(ctx)
	}
	h.ctx, h.outlive = ctx, context.AfterFunc(q.ctx, cancel)
	tooLong := time.AfterFunc(longest, cancel)
	r := q.msg.Copy() // forward, for one, changes the ID of a query while it is under way
	q.plugin.detached.run(func() {
		defer close(h.done)
		defer tooLong.Stop()
		defer h.recover()
		h.rcode, h.err = plugin.NextOrFailure(q.plugin.Name(), q.plugin.Next, ctx, h, r)
	})
	return h
}

// recover keeps a panic for the goroutine that serves the query: there the server
// recovers it. Here it would end the process.
func (h *held) recover() {
	p := recover()
	if p == nil {
		return
	}
	log.Debugf("The next plugin panicked: %v\n%s", p, debug.Stack())
	h.lost(func() { h.panicked = p })
}

// abandon is called when the query is answered without the next plugin.
func (h *held) abandon() {
	h.outlive()
	h.lost(func() { h.abandoned = true })
}

// lost makes a change, and then reports the panic of a next plugin that was abandoned: deliver does not.
func (h *held) lost(change func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	change()
	if h.abandoned && h.panicked != nil {
		reportPanic("the next plugin resolving", h.query.question.Name, h.panicked)
		h.panicked = nil
	}
}

// reportPanic logs and counts a panic that was recovered, as the server does. doing is
// what was done about the name.
func reportPanic(doing, qname string, p any) {
	log.Errorf("Recovered from a panic in %s %q: %v", doing, qname, p)
	vars.Panic.Inc()
}

// deliver waits for the next plugin and passes on what it did. d is the decision
// about the name.
func (h *held) deliver(w dns.ResponseWriter, d lookup.Decision) (int, error) {
	<-h.done
	h.mu.Lock()
	calls, panicked := h.calls, h.panicked
	h.mu.Unlock()
	if panicked != nil {
		panic(panicked)
	}
	addMetadata(h.query.ctx, h.ctx)
	for _, call := range calls {
		call(w, d)
	}
	return h.rcode, h.err
}

// WriteMsg implements dns.ResponseWriter.
func (h *held) WriteMsg(m *dns.Msg) error { return h.keep(written{msg: m.Copy()}) }

// Write implements dns.ResponseWriter.
func (h *held) Write(b []byte) (int, error) { return len(b), h.keep(rawAnswer(slices.Clone(b))) }

// keep checks the targets in an answer and keeps it for deliver. It drops an answer
// that comes after the query was answered.
func (h *held) keep(a written) error {
	h.mu.Lock()
	abandoned := h.abandoned
	h.mu.Unlock()
	if abandoned {
		return nil
	}
	a.decision = h.query.checkTargets(h.query.targetsIn(a))
	h.later(func(w dns.ResponseWriter, d lookup.Decision) { h.query.write(w, a, d) })
	return nil
}

func (h *held) later(call func(dns.ResponseWriter, lookup.Decision)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.calls = append(h.calls, call)
}

// Close implements dns.ResponseWriter.
func (h *held) Close() error {
	h.later(func(w dns.ResponseWriter, _ lookup.Decision) { w.Close() })
	return nil
}

// Hijack implements dns.ResponseWriter.
func (h *held) Hijack() { h.later(func(w dns.ResponseWriter, _ lookup.Decision) { w.Hijack() }) }

// TsigTimersOnly implements dns.ResponseWriter.
func (h *held) TsigTimersOnly(on bool) {
	h.later(func(w dns.ResponseWriter, _ lookup.Decision) { w.TsigTimersOnly(on) })
}

// TsigStatus implements dns.ResponseWriter.
func (h *held) TsigStatus() error { return h.tsigStatus }

// LocalAddr implements dns.ResponseWriter.
func (h *held) LocalAddr() net.Addr { return h.local }

// RemoteAddr implements dns.ResponseWriter.
func (h *held) RemoteAddr() net.Addr { return h.remote }

// detached runs what may outlive its query, and knows when all of it has ended. The
// zero value is ready to use; it is safe for concurrent use.
type detached struct {
	mu    sync.Mutex
	ended bool
	wg    sync.WaitGroup
}

// run calls f in a goroutine of its own. After end it calls f in this one: queries
// still come while a server shuts down.
func (d *detached) run(f func()) {
	d.mu.Lock()
	ended := d.ended
	if !ended {
		d.wg.Go(f)
	}
	d.mu.Unlock()
	if ended {
		f()
	}
}

// shutdownGrace is how long a server block waits for next plugins that outlive their
// queries. No client waits for their answers, and *forward* cannot be interrupted: it tries for
// up to 5 seconds.
const shutdownGrace = time.Second

// end waits until all functions of run have returned, at most for shutdownGrace.
func (d *detached) end() {
	d.mu.Lock()
	d.ended = true
	d.mu.Unlock()
	done := make(chan struct{})
	go func() {
		defer close(done)
		d.wg.Wait()
	}()
	select {
	case <-done:
	case <-time.After(shutdownGrace):
	}
}

// shortened returns a copy of m whose TTLs are at most ttl, in seconds. Signatures
// stay valid: they cover the original TTL that is in the RRSIG (RFC 4034 section
// 3.1.4).
func shortened(m *dns.Msg, ttl uint32) *dns.Msg {
	m = m.Copy()
	for _, section := range [][]dns.RR{m.Answer, m.Ns, m.Extra} {
		for _, rr := range section {
			if h := rr.Header(); h.Rrtype != dns.TypeOPT {
				h.Ttl = min(h.Ttl, ttl)
			}
		}
	}
	return m
}
