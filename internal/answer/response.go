package answer

import (
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
	header := func(rrtype uint16) dns.RR_Header {
		return dns.RR_Header{Name: q.Name, Rrtype: rrtype, Class: dns.ClassINET, Ttl: ttl}
	}
	if p.IPv4.IsValid() && (q.Qtype == dns.TypeA || q.Qtype == dns.TypeANY) {
		rrs = append(rrs, &dns.A{Hdr: header(dns.TypeA), A: p.IPv4.AsSlice()})
	}
	if p.IPv6.IsValid() && (q.Qtype == dns.TypeAAAA || q.Qtype == dns.TypeANY) {
		rrs = append(rrs, &dns.AAAA{Hdr: header(dns.TypeAAAA), AAAA: p.IPv6.AsSlice()})
	}
	return rrs
}

// responseTo returns the response for a blocked name: respond's if the Corefile has it,
// else the one that the operator's own list asks for.
func (p Reply) responseTo(d lookup.Decision) lookup.Response {
	if p.Overrides || d.Response == lookup.NXDOMAIN {
		return p.Respond
	}
	return d.Response
}
