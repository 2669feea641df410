package safebrowsing

import (
	"context"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/coredns/coredns/plugin/metrics"
	"github.com/coredns/coredns/request"

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
	respond    respond
	ipv4       netip.Addr    // of the sinkhole; zero: none
	ipv6       netip.Addr    // of the sinkhole; zero: none
	ttl        time.Duration // at most; default 60 s
	overrides  bool          // respond stands in the Corefile: what own lists say does not count
	structured structured
	google     bool // verdicts of Safe Browsing come from Google itself
}

// maxBlockedTTL is the longest that a blocking answer may be kept, since a
// verdict rests on data of the last 30 minutes (Safe Browsing terms).
const maxBlockedTTL = 30 * time.Minute

// blocked answers a query for a host that is unsafe. ctx and w are asked for the
// transport only. The answer is nil where there is to be none.
func (p reply) blocked(ctx context.Context, w dns.ResponseWriter, r *dns.Msg, d lookup.Decision) *dns.Msg {
	respond, drop := p.respondTo(d)
	if drop {
		return nil
	}
	texts := []string{cut(reason(d, p.google), maxText)}
	if p.structured.asked(r) {
		texts = p.structured.texts(d, p.google)
	}
	m := replyTo(r, dns.ExtendedErrorCodeBlocked, texts[0])
	ttl := uint32(p.ttlOf(d, time.Now()) / time.Second)
	switch respond {
	case respondNXDOMAIN:
		m.Rcode = dns.RcodeNameError
	case respondRefused:
		m.Rcode = dns.RcodeRefused
	case respondSinkhole:
		m.Answer = p.sinkhole(r.Question[0], ttl)
	}
	if len(m.Answer) == 0 && respond != respondRefused {
		m.Ns = []dns.RR{soa(r.Question[0].Name, ttl)}
	}
	fit(ctx, w, r, m, texts[1:])
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

// maxText is the longest text of an Extended DNS Error, in bytes. JSON may be
// longer, see maxStructured.
const maxText = 200

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

// cut returns the first size bytes of a text, or a little less to end with a
// whole character.
func cut(text string, size int) string {
	return strings.ToValidUTF8(text[:min(len(text), max(0, size))], "")
}

// fit gives an answer the size that its client wants. One that is too large for
// UDP loses words of its Extended DNS Error before it would lose records and be
// asked again over TCP: the shorter texts are tried in order, then the last one is
// cut. The answer to a query with padding is padded to a multiple of 468 bytes (RFC
// 8467 section 4.1), but not over UDP.
func fit(ctx context.Context, w dns.ResponseWriter, r, m *dns.Msg, shorter []string) {
	opt := m.IsEdns0()
	if opt == nil {
		return
	}
	if overUDP(ctx, w) {
		state := request.Request{W: w, Req: r}
		ede := opt.Option[0].(*dns.EDNS0_EDE)
		over := excess(m, state.Size())
		for ; over > 0 && len(shorter) > 0; shorter = shorter[1:] {
			ede.ExtraText = shorter[0]
			over = excess(m, state.Size())
		}
		if over > 0 {
			ede.ExtraText = cut(ede.ExtraText, len(ede.ExtraText)-over)
		}
		return
	}
	if slices.ContainsFunc(r.IsEdns0().Option, func(o dns.EDNS0) bool { return o.Option() == dns.EDNS0PADDING }) {
		padding := new(dns.EDNS0_PADDING)
		opt.Option = append(opt.Option, padding)
		if rest := m.Len() % paddingBlock; rest > 0 {
			padding.Padding = make([]byte, paddingBlock-rest)
		}
	}
}

// excess returns by how many bytes a message is larger than size.
func excess(m *dns.Msg, size int) int {
	m.Compress = true // as the server does where an answer would be too large
	defer func() { m.Compress = false }()
	return m.Len() - size
}

// overUDP reports whether a query came over plain UDP. That the client's address
// is one of UDP does not say so: it is over QUIC and HTTP/3 too.
func overUDP(ctx context.Context, w dns.ResponseWriter) bool {
	scheme, _, _ := strings.Cut(metrics.WithServer(ctx), "://")
	state := request.Request{W: w}
	return (scheme == "" || scheme == "dns") && state.Proto() == "udp"
}

const paddingBlock = 468

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
	if google && d.Threat != lookup.NoThreat {
		return "suspected " + what(d) + advisory
	}
	return what(d)
}

// saidByGoogle reports whether a decision rests on what Google says; google is
// whether the server is Google's.
func saidByGoogle(d lookup.Decision, google bool) bool {
	return google && d.Threat != lookup.NoThreat
}

func what(d lookup.Decision) string {
	switch d.By {
	case lookup.ByBlock:
		return "blocklist " + filepath.Base(d.List)
	case lookup.ByTest:
		return "test"
	}
	return d.Threat.String() + " (Safe Browsing)"
}

// unconfirmed answers a query for a host that is suspected where the operator
// chose to rather fail than pass it.
func unconfirmed(ctx context.Context, w dns.ResponseWriter, r *dns.Msg, d lookup.Decision) *dns.Msg {
	code, text := dns.ExtendedErrorCodeNetworkError, "could not ask Safe Browsing about this name in time"
	if d.By == lookup.ByBackoff || d.By == lookup.ByLimiter {
		code, text = dns.ExtendedErrorCodeNoReachableAuthority, "may not ask Safe Browsing about this name now"
	}
	m := replyTo(r, code, text)
	m.Rcode = dns.RcodeServerFailure
	fit(ctx, w, r, m, nil)
	return m
}
