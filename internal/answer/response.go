package answer

import (
	"net/netip"
	"strings"

	"github.com/miekg/dns"

	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

// responses are the words of the Corefile, their arguments, and what they do to an answer.
var responses = [...]struct {
	word, args string
	apply      func(p Reply, m *dns.Msg, ttl uint32)
}{
	lookup.NXDOMAIN: {"nxdomain", "", func(_ Reply, m *dns.Msg, _ uint32) { m.Rcode = dns.RcodeNameError }},
	lookup.NODATA:   {"nodata", "", func(Reply, *dns.Msg, uint32) {}},
	lookup.Refused:  {"refused", "", func(_ Reply, m *dns.Msg, _ uint32) { m.Rcode = dns.RcodeRefused }},
	lookup.Sinkhole: {"sinkhole", " IPV4 [IPV6]", func(p Reply, m *dns.Msg, ttl uint32) { m.Answer = p.sinkhole(m.Question[0], ttl) }},
}

// Words returns the words of the responses that the Corefile may name. The index of a word is
// its lookup.Response.
func Words() (words []string) {
	for _, response := range responses {
		words = append(words, response.word)
	}
	return words
}

// Usage returns these words with their arguments, separated by "|".
func Usage() string {
	var all []string
	for _, response := range responses {
		all = append(all, response.word+response.args)
	}
	return strings.Join(all, "|")
}

// sinkhole returns the addresses of the type that was asked for. Without any the
// answer is NODATA.
func (p Reply) sinkhole(q dns.Question, ttl uint32) (rrs []dns.RR) {
	for _, a := range []netip.Addr{p.IPv4, p.IPv6} {
		if !a.IsValid() {
			continue
		}
		if rr := addressRecord(q.Name, a, ttl); q.Qtype == rr.Header().Rrtype || q.Qtype == dns.TypeANY {
			rrs = append(rrs, rr)
		}
	}
	return rrs
}

// addressRecord returns the record of type A or AAAA for an address.
func addressRecord(name string, a netip.Addr, ttl uint32) dns.RR {
	header := dns.RR_Header{Name: name, Rrtype: dns.TypeAAAA, Class: dns.ClassINET, Ttl: ttl}
	if a.Is4() {
		header.Rrtype = dns.TypeA
		return &dns.A{Hdr: header, A: a.AsSlice()}
	}
	return &dns.AAAA{Hdr: header, AAAA: a.AsSlice()}
}

// responseTo returns the response for a blocked name: respond's if the Corefile has it,
// else the one that the operator's own list asks for.
func (p Reply) responseTo(d lookup.Decision) lookup.Response {
	if p.Overrides || d.Response == lookup.NXDOMAIN {
		return p.Respond
	}
	return d.Response
}
