package safebrowsing

import (
	"github.com/miekg/dns"

	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

// held is the writer of a query whose confirmation is under way. The next
// plugin's answer is held back until the decision is in; if that is to block,
// the blocking answer has gone out by then and the other one is dropped.
//
// Only the goroutine of settle writes before settled is closed, and only the
// query's own one afterwards. In monitor mode nothing is held.
type held struct {
	dns.ResponseWriter
	query    *query
	settled  chan struct{}
	decision lookup.Decision // read after settled is closed
	replaced bool            // settle has answered the query; read after settled is closed
}

// settle ends the wait. A host that is blocked is answered at once, whether its
// own servers answer or not. A writer that panics has the name pass: here, unlike
// in the query's own goroutine, the server would not catch it.
func (h *held) settle(d lookup.Decision) {
	defer close(h.settled)
	defer func() {
		if r := recover(); r != nil {
			log.Errorf("Answering %q: panic: %v", h.query.msg.Question[0].Name, r)
		}
	}()
	h.decision = d
	h.query.decided(d)
	if m := h.query.replacement(h.ResponseWriter, d); m != nil {
		h.replaced = true
		h.ResponseWriter.WriteMsg(m)
	}
}

// replacement returns what to answer in place of the next plugin's answer, or
// nil.
func (q *query) replacement(w dns.ResponseWriter, d lookup.Decision) *dns.Msg {
	switch {
	case q.plugin.monitor:
		return nil
	case d.Verdict == lookup.Unsafe:
		return q.plugin.blocked(q.ctx, w, q.msg, d)
	case d.Verdict == lookup.Unsure && d.List != "" && q.plugin.unsureFails: // suspected, not just unknown
		return unconfirmed(q.ctx, w, q.msg, d)
	}
	return nil
}

// WriteMsg implements dns.ResponseWriter.
func (h *held) WriteMsg(m *dns.Msg) error {
	if h.query.plugin.monitor {
		return h.ResponseWriter.WriteMsg(m)
	}
	<-h.settled
	if h.replaced {
		return nil
	}
	if h.decision.Verdict == lookup.Unsure {
		m = shortened(m, maxUnsureTTL)
	}
	return h.ResponseWriter.WriteMsg(m)
}

// Write implements dns.ResponseWriter.
func (h *held) Write(b []byte) (int, error) {
	if h.query.plugin.monitor {
		return h.ResponseWriter.Write(b)
	}
	<-h.settled
	if h.replaced {
		return len(b), nil
	}
	return h.ResponseWriter.Write(b)
}

// maxUnsureTTL is the longest that an unconfirmed answer is kept by a client,
// in seconds: soon afterwards the confirmation is in.
const maxUnsureTTL = 5

// shortened returns a copy of m whose TTLs are at most ttl. Signatures stay
// valid: they cover the original TTL that is in the RRSIG (RFC 4034 section
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
