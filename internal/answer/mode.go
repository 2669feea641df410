package answer

import (
	"strings"

	"github.com/miekg/dns"

	"github.com/coredns-safebrowsing/safebrowsing/internal/ownlist"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

// Mode is the kind of answer to a blocked name.
type Mode uint8

// The modes. NXDOMAIN is the default.
const (
	NXDOMAIN Mode = iota
	NODATA
	Refused
	Sinkhole // with addresses that the operator gives
)

// modes are the words of the modes, their arguments, and what they do to an answer.
var modes = [...]struct {
	word, args string
	apply      func(p Reply, m *dns.Msg, ttl uint32)
}{
	NXDOMAIN: {"nxdomain", "", func(_ Reply, m *dns.Msg, _ uint32) { m.Rcode = dns.RcodeNameError }},
	NODATA:   {"nodata", "", func(Reply, *dns.Msg, uint32) {}},
	Refused:  {"refused", "", func(_ Reply, m *dns.Msg, _ uint32) { m.Rcode = dns.RcodeRefused }},
	Sinkhole: {"sinkhole", " IPV4 [IPV6]", func(p Reply, m *dns.Msg, ttl uint32) { m.Answer = p.sinkhole(m.Question[0], ttl) }},
}

// ModeWords returns the words of all modes. The index of a word is its Mode.
func ModeWords() (words []string) {
	for _, mode := range modes {
		words = append(words, mode.word)
	}
	return words
}

// ModeUsage returns the words of all modes with their arguments, separated by "|".
func ModeUsage() string {
	var all []string
	for _, mode := range modes {
		all = append(all, mode.word+mode.args)
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

// modeOf returns the mode for a blocked name: that of respond if the Corefile has it,
// else the one that the operator's own list asks for. drop reports that the query
// gets no answer.
func (p Reply) modeOf(d lookup.Decision) (_ Mode, drop bool) {
	if !p.Overrides {
		switch ownlist.Answer(d.Answer) {
		case ownlist.AnswerNODATA:
			return NODATA, false
		case ownlist.AnswerRefused:
			return Refused, false
		case ownlist.AnswerDrop:
			return p.Respond, true
		}
	}
	return p.Respond, false
}
