// Package answer makes the DNS message that a decision calls for. It is pure: it
// keeps nothing, and writes nothing to the client.
//
//	lookup.Decision ──▶ Reply.Blocked ──▶ responses (what), Structured (words), fit (size)
//	                    Reply.Unconfirmed ──▶ SERVFAIL
package answer

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"path/filepath"
	"strings"
	"time"

	"github.com/miekg/dns"

	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

// Reply says how to answer a blocked name. The zero value answers NXDOMAIN with a
// TTL of 0. It is safe for concurrent use.
type Reply struct {
	Respond    lookup.Response
	IPv4       netip.Addr    // of the sinkhole; zero: none
	IPv6       netip.Addr    // of the sinkhole; zero: none
	TTL        time.Duration // at most; default 60 s
	Overrides  bool          // the Corefile has respond: it overrides the answers that own lists ask for
	Structured Structured
	Service    string // that confirms threats, such as Safe Browsing
	Advisory   string // URL of Google's words about warnings by the service; "": Google does not run the server
}

// By returns the reply in the words of the service that provides what the server says, with the URL
// of its advisory. Without an advisory Google is not named.
func (p Reply) By(service, advisory string) Reply {
	p.Service, p.Advisory = cmp.Or(service, p.Service), advisory
	return p
}

// MaxTTL is the longest TTL of a blocking answer: a verdict must be based on data of
// the last 30 minutes (Safe Browsing terms).
const MaxTTL = 30 * time.Minute

// Blocked answers a query for a host that is unsafe. It uses ctx and w only to find
// out the transport. It returns nil if an own list drops the query.
func (p Reply) Blocked(ctx context.Context, w dns.ResponseWriter, r *dns.Msg, d lookup.Decision) *dns.Msg {
	response := p.responseTo(d)
	if response == lookup.NoAnswer {
		return nil
	}
	texts, structured := []string{truncate(p.Reason(d), maxText)}, p.Structured.asked(r)
	switch {
	case structured:
		texts = p.structured(d)
	case p.saidByGoogle(d): // its words are whole or left out
		texts = append(texts, "")
	}
	m := replyTo(r, dns.ExtendedErrorCodeBlocked, texts[0])
	ttl := uint32(p.ttlOf(d, time.Now()) / time.Second)
	responses[response].apply(p, m, ttl)
	// RFC 2308 section 2: the SOA belongs to the zone that has the name, or would have it. One at
	// the name itself says that the name exists.
	switch qname := r.Question[0].Name; {
	case m.Rcode == dns.RcodeNameError:
		m.Ns = []dns.RR{soa(parent(qname), ttl)}
	case m.Rcode == dns.RcodeSuccess && len(m.Answer) == 0:
		m.Ns = []dns.RR{soa(qname, ttl)}
	}
	if len(m.Answer) > 0 && !structured {
		forged(m)
	}
	fit(ctx, w, r, m, texts[1:])
	return m
}

// ttlOf returns the TTL of a blocking answer: the configured one, cut to MaxTTL and to
// the end of the verdict, by the clock that is further: the monotonic clock stops while the machine is suspended, and
// the other one may be set.
func (p Reply) ttlOf(d lookup.Decision, now time.Time) time.Duration {
	ttl := min(p.TTL, MaxTTL)
	if !d.Expires.IsZero() {
		ttl = min(ttl, d.Expires.Sub(now), d.Expires.Round(0).Sub(now.Round(0)))
	}
	return max(0, ttl)
}

// parent returns the name without its first label, "." for a top-level domain.
func parent(qname string) string {
	if next, end := dns.NextLabel(qname, 0); !end {
		return qname[next:]
	}
	return "."
}

// soa makes a negative answer cacheable for ttl seconds (RFC 2308 section 5).
func soa(zone string, ttl uint32) dns.RR {
	return &dns.SOA{
		Hdr: dns.RR_Header{Name: zone, Rrtype: dns.TypeSOA, Class: dns.ClassINET, Ttl: ttl},
		Ns:  "ns.safebrowsing.invalid.", Mbox: "hostmaster.safebrowsing.invalid.",
		Serial: 1, Refresh: 1800, Retry: 900, Expire: 86400, Minttl: ttl,
	}
}

// Reason says in words why a host is blocked, or suspected: the threats and their source. Whatever
// names a verdict to users says it in these words. Google asks to say who provides its warnings,
// with a link, and to name Google with no others (Safe Browsing terms; Web Risk, "User warnings").
// It has at most maxText bytes, but for the name of an own list. It is "" for any other decision.
func (p Reply) Reason(d lookup.Decision) string {
	if p.saidByGoogle(d) {
		return p.Cause(d) + "; " + attribution(p.Advisory)
	}
	return p.Cause(d)
}

// Warning returns Reason for what a server says, and "" for what the operator says.
func (p Reply) Warning(d lookup.Decision) string {
	if d.By == lookup.ByBlock {
		return ""
	}
	return p.Reason(d)
}

// Notice says in whose words lists name hosts; "" if Google does not provide them.
func (p Reply) Notice() string {
	if p.Advisory == "" {
		return ""
	}
	return "Hosts in the lists of " + p.Service + " are suspected; " + attribution(p.Advisory)
}

// attribution says that Google provides an advisory, with the URL of its words about it.
func attribution(advisory string) string { return "advisory provided by Google, " + advisory }

// saidByGoogle reports whether a decision is based on what Google says.
func (p Reply) saidByGoogle(d lookup.Decision) bool {
	return p.Advisory != "" && (d.Threat != lookup.NoThreat || isSuspicion(d))
}

// isSuspicion reports whether a list of the service has a host that is not confirmed.
func isSuspicion(d lookup.Decision) bool { return d.Verdict == lookup.Unsure && d.List != "" }

// Cause returns the threats and their source, or the list that blocks a host. What a server says
// is a suspicion, whoever runs the server: no list is free of errors.
func (p Reply) Cause(d lookup.Decision) string {
	var threats []string
	for _, t := range d.Threats() {
		threats = append(threats, t.String())
	}
	switch {
	case isSuspicion(d):
		return fmt.Sprintf("suspected, not confirmed (%s)", p.Service)
	case d.Verdict != lookup.Unsafe:
		return ""
	case d.By == lookup.ByBlock:
		return "blocklist " + filepath.Base(d.List)
	}
	return fmt.Sprintf("suspected %s (%s)", strings.Join(threats, ", "), p.Service)
}

// Unconfirmed answers SERVFAIL to a query for a host that is suspected and could not
// be confirmed. It uses ctx and w only to find out
// the transport.
func (p Reply) Unconfirmed(ctx context.Context, w dns.ResponseWriter, r *dns.Msg, d lookup.Decision) *dns.Msg {
	code, text := dns.ExtendedErrorCodeNetworkError, "could not ask "+p.Service+" about this name in time"
	switch d.By {
	case lookup.ByBackoff, lookup.ByLimiter, lookup.ByBudget:
		// RFC 8914 section 4.1, "Other": no other code fits, and the text says the rest. No
		// Reachable Authority (22) would blame the authority of the name, and Not Ready (14) a
		// server that works.
		code, text = dns.ExtendedErrorCodeOther, "may not ask "+p.Service+" about this name now"
	}
	m := replyTo(r, code, text)
	m.Rcode = dns.RcodeServerFailure
	fit(ctx, w, r, m, nil)
	return m
}
