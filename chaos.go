package safebrowsing

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/coredns/coredns/request"

	"github.com/miekg/dns"

	"github.com/coredns-safebrowsing/safebrowsing/internal/status"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

// whyZone is the zone below which clients ask why a name is blocked or not.
const whyZone = ".why.safebrowsing."

// asksWhy returns the name that a query of class CH asks about.
func asksWhy(state *request.Request) (host string, ok bool) {
	if state.QClass() != dns.ClassCHAOS || state.QType() != dns.TypeTXT {
		return "", false
	}
	return strings.CutSuffix(state.Name(), whyZone)
}

// why answers with what is known here about a host: verdict, decider, threat, list,
// expression, and for how long the verdict holds. It never asks the server.
func (s *SafeBrowsing) why(r *dns.Msg, host string) *dns.Msg {
	m := new(dns.Msg)
	m.SetReply(r)
	if !s.block.Config.Explain {
		m.Rcode = dns.RcodeRefused
		return m
	}
	m.Authoritative = true
	a := s.block.Why(lookup.FromQname(host))
	txt := &dns.TXT{
		Hdr: dns.RR_Header{Name: r.Question[0].Name, Rrtype: dns.TypeTXT, Class: dns.ClassCHAOS},
		Txt: explanation(a, time.Now()),
	}
	m.Answer = []dns.RR{txt}
	return m
}

// decided are the words of verdicts, as metrics and metadata have them.
var decided = map[string]string{
	status.VerdictBlocked: lookup.Unsafe.String(), status.VerdictSuspected: lookup.Unsure.String(),
	status.VerdictPasses: lookup.Safe.String(), status.VerdictUnknown: status.VerdictUnknown,
}

// explanation returns the strings of a TXT record, each "word=value". A long value continues in
// the next strings.
func explanation(a status.Answer, now time.Time) (all []string) {
	add := func(word, value string) {
		if value != "" && value != "." {
			all = append(all, txtStrings(word+"="+value)...)
		}
	}
	add("verdict", decided[a.Verdict])
	add("decided_by", a.DecidedBy)
	add("warning", a.Warning.Text)
	add("threat", a.Threat)
	add("list", filepath.Base(a.List)) // clients need not know where the operator keeps files
	if a.Line > 0 {
		add("line", strconv.Itoa(a.Line))
	}
	add("expression", a.Expression)
	add("alias_of", a.Target)
	if !a.Confirmed.IsZero() {
		add("confirmed", a.Confirmed.UTC().Format(time.RFC3339))
	}
	if !a.Expires.IsZero() {
		add("remaining", fmt.Sprint(max(0, a.Expires.Sub(now).Round(time.Second))))
	}
	add("unblock", a.Unblock)
	add("note", a.Note)
	return all
}

const (
	maxString = 255  // bytes of one string of a TXT record (RFC 1035 section 3.3)
	maxText   = 1000 // bytes of one value: the quotation of an error can be of any length
)

// txtStrings divides a text into strings of a TXT record, between words if it can. A backslash
// is escaped, as in a zone file.
func txtStrings(text string) (all []string) {
	if len(text) > maxText {
		text = text[:endOfWord(text, maxText-len("..."))] + "..."
	}
	for end := 0; len(text) > 0; text = text[end:] {
		end = endOfWord(text, maxString)
		all = append(all, strings.ReplaceAll(text[:end], `\`, `\\`))
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
