package safebrowsing

import (
	"github.com/miekg/dns"

	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

// held is the writer of a query whose confirmation is under way. The next
// plugin's answer is held back until the decision is in; if that is to block,
// the blocking answer has gone out by then and the other one is dropped.
//
// Only the goroutine of decide writes before decided is closed, and only the
// query's own one afterwards.
type held struct {
	dns.ResponseWriter
	query    *dns.Msg
	plugin   *SafeBrowsing
	decided  chan struct{}
	decision lookup.Decision // read after decided is closed
	replaced bool            // decide has answered the query; read after decided is closed
}

// decide ends the wait. A host that is blocked is answered at once, whether its
// own servers answer or not.
func (h *held) decide(d lookup.Decision) {
	h.decision = d
	switch {
	case d.Verdict == lookup.Unsafe:
		h.replaced = true
		h.ResponseWriter.WriteMsg(h.plugin.blocked(h.query, d))
	case d.Verdict == lookup.Unsure && h.plugin.unsureFails:
		h.replaced = true
		h.ResponseWriter.WriteMsg(unconfirmed(h.query, d))
	}
	close(h.decided)
}

// WriteMsg implements dns.ResponseWriter.
func (h *held) WriteMsg(m *dns.Msg) error {
	<-h.decided
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
	<-h.decided
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
