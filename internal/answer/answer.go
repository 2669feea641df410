// Package answer makes the DNS message that a decision calls for. It is pure: it
// keeps nothing, and writes nothing to the client.
//
//	lookup.Decision ──▶ Reply.Blocked ──▶ Mode (what), Structured (words), fit (size)
//	                    Unconfirmed   ──▶ SERVFAIL
package answer

import (
	"context"
	"net/netip"
	"path/filepath"
	"time"

	"github.com/miekg/dns"

	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

// Reply says how to answer a blocked name. The zero value answers NXDOMAIN with a
// TTL of 0. It is safe for concurrent use.
type Reply struct {
	Respond    Mode
	IPv4       netip.Addr    // of the sinkhole; zero: none
	IPv6       netip.Addr    // of the sinkhole; zero: none
	TTL        time.Duration // at most; default 60 s
	Overrides  bool          // respond stands in the Corefile: what own lists say does not count
	Structured Structured
	Google     bool // verdicts of Safe Browsing come from Google itself
}

// MaxTTL is the longest that a blocking answer may be kept, since a verdict rests
// on data of the last 30 minutes (Safe Browsing terms).
const MaxTTL = 30 * time.Minute

// Blocked answers a query for a host that is unsafe. ctx and w are asked for the
// transport only. The answer is nil where there is to be none.
func (p Reply) Blocked(ctx context.Context, w dns.ResponseWriter, r *dns.Msg, d lookup.Decision) *dns.Msg {
	mode, drop := p.modeOf(d)
	if drop {
		return nil
	}
	texts := []string{cut(reason(d, p.Google), maxText)}
	if p.Structured.asked(r) {
		texts = p.Structured.texts(d, p.Google)
	}
	m := replyTo(r, dns.ExtendedErrorCodeBlocked, texts[0])
	ttl := uint32(p.ttlOf(d, time.Now()) / time.Second)
	modes[mode].apply(p, m, ttl)
	if len(m.Answer) == 0 && m.Rcode != dns.RcodeRefused {
		m.Ns = []dns.RR{soa(r.Question[0].Name, ttl)}
	}
	fit(ctx, w, r, m, texts[1:])
	return m
}

// ttlOf is how long a blocking answer may be kept: as configured, but no longer
// than the verdict holds.
func (p Reply) ttlOf(d lookup.Decision, now time.Time) time.Duration {
	ttl := min(p.TTL, MaxTTL)
	if !d.Expires.IsZero() {
		ttl = min(ttl, d.Expires.Sub(now))
	}
	return max(0, ttl)
}

// soa makes a negative answer cacheable for ttl seconds (RFC 2308 section 5).
func soa(qname string, ttl uint32) dns.RR {
	return &dns.SOA{
		Hdr: dns.RR_Header{Name: qname, Rrtype: dns.TypeSOA, Class: dns.ClassINET, Ttl: ttl},
		Ns:  "ns.safebrowsing.invalid.", Mbox: "hostmaster.safebrowsing.invalid.",
		Serial: 1, Refresh: 1800, Retry: 900, Expire: 86400, Minttl: ttl,
	}
}

// advisory is what Google asks to be said with a warning of its (Safe Browsing
// terms): that it is a suspicion, and who provides it.
const advisory = "; advisory provided by Google, https://developers.google.com/safe-browsing/v4/advisory"

// reason says in words why a host is blocked: the threat and its source. Google
// is named only for what Google says.
func reason(d lookup.Decision, google bool) string {
	if saidByGoogle(d, google) {
		return "suspected " + Cause(d) + advisory
	}
	return Cause(d)
}

// saidByGoogle reports whether a decision rests on what Google says; google is
// whether the server is Google's.
func saidByGoogle(d lookup.Decision, google bool) bool {
	return google && d.Threat != lookup.NoThreat
}

// Cause returns the threat and its source, or the list that blocks a host.
func Cause(d lookup.Decision) string {
	switch d.By {
	case lookup.ByBlock:
		return "blocklist " + filepath.Base(d.List)
	case lookup.ByTest:
		return "test"
	}
	return d.Threat.String() + " (Safe Browsing)"
}

// Unconfirmed answers SERVFAIL to a query for a host that is suspected and could not
// be confirmed. ctx and w are asked for the transport only.
func Unconfirmed(ctx context.Context, w dns.ResponseWriter, r *dns.Msg, d lookup.Decision) *dns.Msg {
	code, text := dns.ExtendedErrorCodeNetworkError, "could not ask Safe Browsing about this name in time"
	if d.By == lookup.ByBackoff || d.By == lookup.ByLimiter {
		code, text = dns.ExtendedErrorCodeNoReachableAuthority, "may not ask Safe Browsing about this name now"
	}
	m := replyTo(r, code, text)
	m.Rcode = dns.RcodeServerFailure
	fit(ctx, w, r, m, nil)
	return m
}

// Shortened returns a copy of m whose TTLs are at most ttl, in seconds. Signatures
// stay valid: they cover the original TTL that is in the RRSIG (RFC 4034 section
// 3.1.4).
func Shortened(m *dns.Msg, ttl uint32) *dns.Msg {
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
