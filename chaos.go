package safebrowsing

import (
	"strings"
	"time"
	"unicode/utf8"

	"github.com/coredns/coredns/request"

	"github.com/miekg/dns"

	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

// whyZone is the zone below which clients ask why a name is blocked or not.
const whyZone = ".why.safebrowsing."

// asksWhy returns the name that a query asks about, whatever its type and class: no other server is to learn it. It
// does not allocate for other names.
func asksWhy(state *request.Request) (host string, ok bool) {
	qname := state.Req.Question[0].Name
	if front := len(qname) - len(whyZone); front <= 0 || !strings.EqualFold(qname[front:], whyZone) {
		return "", false
	}
	return strings.CutSuffix(state.Name(), whyZone)
}

// why answers with what is known here about a host: verdict, decider, threat, list,
// expression, and for how long the verdict holds. It never asks the server.
func (s *SafeBrowsing) why(r *dns.Msg, host string) *dns.Msg {
	m := new(dns.Msg).SetReply(r)
	if q := r.Question[0]; !s.block.Config.Explain || q.Qclass != dns.ClassCHAOS || q.Qtype != dns.TypeTXT {
		m.Rcode = dns.RcodeRefused
		return m
	}
	m.Authoritative = true
	a := s.block.Why(typed(host))
	m.Answer = []dns.RR{&dns.TXT{
		Hdr: dns.RR_Header{Name: r.Question[0].Name, Rrtype: dns.TypeTXT, Class: dns.ClassCHAOS},
		Txt: txtStrings(a.Words(time.Now())),
	}}
	return m
}

// typed returns the host that a person has asked about. dig sends an international name as it is typed, unless it
// writes to a terminal.
func typed(name string) lookup.Host {
	h := lookup.FromQname(name)
	if strings.Contains(h.String(), "%") {
		if international, ok := lookup.ParseHost(h.String()); ok {
			return international
		}
	}
	return h
}

const (
	maxString = 255  // bytes of one string of a TXT record (RFC 1035 section 3.3)
	maxText   = 1000 // bytes of one text: the quotation of an error can be of any length
)

// txtStrings returns texts as strings of a TXT record. A long text continues in the next strings,
// divided between words if it can be. A backslash is escaped, as in a zone file.
func txtStrings(texts []string) (all []string) {
	for _, text := range texts {
		if len(text) > maxText {
			text = text[:endOfWord(text, maxText-len("..."))] + "..."
		}
		for end := 0; len(text) > 0; text = text[end:] {
			end = endOfWord(text, maxString)
			all = append(all, strings.ReplaceAll(text[:end], `\`, `\\`))
		}
	}
	return all
}

// endOfWord returns the length of the longest part of a text, within a number of bytes, that
// ends with a space, or else with a whole character.
func endOfWord(text string, most int) int {
	if len(text) <= most {
		return len(text)
	}
	if end := strings.LastIndexByte(text[:most], ' '); end >= 0 {
		return end + 1
	}
	for end := most; end > 0; end-- {
		if utf8.RuneStart(text[end]) {
			return end
		}
	}
	return most
}
