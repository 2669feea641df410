package safebrowsing

import (
	"github.com/miekg/dns"

	"github.com/coredns-safebrowsing/safebrowsing/internal/answer"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

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
	if a.msg != nil && (d.Verdict == lookup.Unsure || a.decision.Verdict == lookup.Unsure) {
		return w.WriteMsg(answer.Shortened(a.msg, maxUnsureTTL))
	}
	return a.writeTo(w)
}

// replace answers in place of the next plugin if the decision calls for that, and
// reports whether it does. It is not called in monitor mode.
func (q *query) replace(w dns.ResponseWriter, d lookup.Decision) bool {
	var m *dns.Msg
	switch {
	case d.Verdict == lookup.Unsafe:
		m = q.plugin.reply().Blocked(q.ctx, w, q.msg, d)
	case d.Verdict == lookup.Unsure && d.List != "" && q.plugin.cfg.UnsureFails: // suspected, not just unknown
		m = q.plugin.reply().Unconfirmed(q.ctx, w, q.msg, d)
	default:
		return false
	}
	if m != nil { // else an own list has the query dropped
		w.WriteMsg(m)
	}
	return true
}

// maxUnsureTTL is the longest TTL of an answer that could not be confirmed, in
// seconds: soon afterwards the confirmation is in.
const maxUnsureTTL = 5
