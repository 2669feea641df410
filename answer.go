package safebrowsing

import (
	"net/netip"
	"path/filepath"
	"time"

	"github.com/miekg/dns"

	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

// respond is what a blocked name is answered.
type respond uint8

const (
	respondNXDOMAIN respond = iota
	respondNODATA
	respondRefused
	respondSinkhole
)

// reply says how to answer a blocked name.
type reply struct {
	respond respond
	ipv4    netip.Addr    // of the sinkhole; zero: none
	ipv6    netip.Addr    // of the sinkhole; zero: none
	ttl     time.Duration // at most; default 60 s
}

// maxBlockedTTL is the longest that a blocking answer may be kept, since a
// verdict rests on data of the last 30 minutes (Safe Browsing terms).
const maxBlockedTTL = 30 * time.Minute

// blocked answers a query for a host that is unsafe.
func (s *SafeBrowsing) blocked(r *dns.Msg, d lookup.Decision) *dns.Msg {
	m := replyTo(r, dns.ExtendedErrorCodeBlocked, reason(d))
	ttl := uint32(s.ttlOf(d, time.Now()) / time.Second)
	switch s.respond {
	case respondNXDOMAIN:
		m.Rcode = dns.RcodeNameError
	case respondRefused:
		m.Rcode = dns.RcodeRefused
		return m
	case respondSinkhole:
		m.Answer = s.sinkhole(r.Question[0], ttl)
	}
	if len(m.Answer) == 0 {
		m.Ns = []dns.RR{soa(r.Question[0].Name, ttl)}
	}
	return m
}

// ttlOf is how long a blocking answer may be kept: as configured, but no longer
// than the verdict holds.
func (p reply) ttlOf(d lookup.Decision, now time.Time) time.Duration {
	ttl := min(p.ttl, maxBlockedTTL)
	if !d.Expires.IsZero() {
		ttl = min(ttl, d.Expires.Sub(now))
	}
	return max(0, ttl)
}

// sinkhole returns the addresses of the type that was asked for; none make a
// NODATA answer.
func (p reply) sinkhole(q dns.Question, ttl uint32) (rrs []dns.RR) {
	header := func(rrtype uint16) dns.RR_Header {
		return dns.RR_Header{Name: q.Name, Rrtype: rrtype, Class: dns.ClassINET, Ttl: ttl}
	}
	if p.ipv4.IsValid() && (q.Qtype == dns.TypeA || q.Qtype == dns.TypeANY) {
		rrs = append(rrs, &dns.A{Hdr: header(dns.TypeA), A: p.ipv4.AsSlice()})
	}
	if p.ipv6.IsValid() && (q.Qtype == dns.TypeAAAA || q.Qtype == dns.TypeANY) {
		rrs = append(rrs, &dns.AAAA{Hdr: header(dns.TypeAAAA), AAAA: p.ipv6.AsSlice()})
	}
	return rrs
}

// replyTo begins an answer with an Extended DNS Error (RFC 8914), which only
// clients that speak EDNS may be sent (RFC 6891 section 7).
func replyTo(r *dns.Msg, code uint16, text string) *dns.Msg {
	m := new(dns.Msg)
	m.SetReply(r)
	m.RecursionAvailable = true
	if opt := r.IsEdns0(); opt != nil {
		m.SetEdns0(opt.UDPSize(), opt.Do())
		m.IsEdns0().Option = []dns.EDNS0{&dns.EDNS0_EDE{InfoCode: code, ExtraText: text}}
	}
	return m
}

// soa makes a negative answer cacheable for ttl seconds (RFC 2308 section 5).
func soa(qname string, ttl uint32) dns.RR {
	return &dns.SOA{
		Hdr: dns.RR_Header{Name: qname, Rrtype: dns.TypeSOA, Class: dns.ClassINET, Ttl: ttl},
		Ns:  "ns.safebrowsing.invalid.", Mbox: "hostmaster.safebrowsing.invalid.",
		Serial: 1, Refresh: 1800, Retry: 900, Expire: 86400, Minttl: ttl,
	}
}

// reason says in words why a host is blocked: the threat and its source.
func reason(d lookup.Decision) string {
	if d.By == lookup.ByBlock {
		return "blocklist " + filepath.Base(d.List)
	}
	return d.Threat.String() + " (Safe Browsing)"
}

// unconfirmed answers a query for a host that is suspected where the operator
// chose to rather fail than pass it.
func unconfirmed(r *dns.Msg, d lookup.Decision) *dns.Msg {
	code, text := dns.ExtendedErrorCodeNetworkError, "could not ask Safe Browsing about this name in time"
	if d.By == lookup.ByBackoff || d.By == lookup.ByLimiter {
		code, text = dns.ExtendedErrorCodeNoReachableAuthority, "may not ask Safe Browsing about this name now"
	}
	m := replyTo(r, code, text)
	m.Rcode = dns.RcodeServerFailure
	return m
}
