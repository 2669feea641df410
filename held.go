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

	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

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
	ctx           context.Context // of the next plugin; ends when that returns
	outlive       func() bool     // lets ctx outlive that of the query

	mu        sync.Mutex
	calls     []func(dns.ResponseWriter, lookup.Decision) // calls to the writer, in order
	panicked  any                                         // what the next plugin panicked with
	abandoned bool                                        // the query is answered without the next plugin

	done  chan struct{} // closed when the next plugin has returned
	rcode int           // read after done is closed
	err   error         // read after done is closed
}

// longest bounds the run of the next plugin if its query has no deadline.
const longest = time.Minute

// hold starts the next plugin.
func (q *query) hold(w dns.ResponseWriter) *held {
	h := &held{query: q, remote: w.RemoteAddr(), local: w.LocalAddr(), tsigStatus: w.TsigStatus(), done: make(chan struct{})}
	deadline, ok := q.ctx.Deadline()
	if !ok {
		deadline = time.Now().Add(longest)
	}
	// The context ends with that of the query, unless the next plugin is abandoned: cache
	// would keep the failure of a lookup that was cancelled, for queries to come.
	ctx, cancel := context.WithDeadline(context.WithoutCancel(ownMetadata(q.ctx)), deadline)
	h.ctx, h.outlive = ctx, context.AfterFunc(q.ctx, cancel)
	r := q.msg.Copy() // forward, for one, changes the ID of a query while it is under way
	q.plugin.detached.run(func() {
		defer close(h.done)
		defer cancel()
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
	h.mu.Lock()
	h.panicked = p
	h.mu.Unlock()
	h.lost()
}

// abandon is called when the query is answered without the next plugin.
func (h *held) abandon() {
	h.outlive()
	h.mu.Lock()
	h.abandoned = true
	h.mu.Unlock()
	h.lost()
}

// lost reports the panic of a next plugin that was abandoned: deliver does not.
func (h *held) lost() {
	h.mu.Lock()
	defer h.mu.Unlock()
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
	if targets := h.query.targetsIn(a); len(targets) > 0 {
		a.decision = h.query.checkTargets(targets)
	}
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
