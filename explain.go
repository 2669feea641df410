package safebrowsing

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/coredns/coredns/request"

	"github.com/miekg/dns"

	"github.com/coredns-safebrowsing/safebrowsing/internal/policy"
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
	if !s.cfg.Explain {
		m.Rcode = dns.RcodeRefused
		return m
	}
	m.Authoritative = true
	h := lookup.FromQname(host)
	e := s.explain(h, host+".")
	txt := &dns.TXT{
		Hdr: dns.RR_Header{Name: r.Question[0].Name, Rrtype: dns.TypeTXT, Class: dns.ClassCHAOS},
		Txt: explanation(e, s.reply().Warning(e.Decision), s.policy.Line(e.Decision, h)),
	}
	m.Answer = []dns.RR{txt}
	return m
}

// explain returns the decision about a host in words, see policy.Explain.
func (s *SafeBrowsing) explain(h lookup.Host, qname string) policy.Explained {
	if until, paused := s.pausedUntil(); paused {
		return policy.Explained{Note: "not checked: blocking is paused until " + until.UTC().Format(time.RFC3339)}
	}
	return s.policy.Explain(h, qname)
}

// explanation returns the strings of a TXT record, each "word=value".
func explanation(e policy.Explained, warning string, line int) []string {
	all := []string{"verdict=" + e.Verdict.String(), "decided_by=" + e.By.String()}
	add := func(word, value string) {
		if value != "" && value != "." {
			all = append(all, word+"="+value[:min(len(value), 200)])
		}
	}
	add("warning", warning)
	add("threat", e.Threat.String())
	add("list", filepath.Base(e.List)) // clients need not know where the operator keeps files
	if line > 0 {
		add("line", strconv.Itoa(line))
	}
	add("expression", e.Expression)
	if !e.Confirmed.IsZero() {
		add("confirmed", e.Confirmed.UTC().Format(time.RFC3339))
	}
	if !e.Expires.IsZero() {
		add("remaining", fmt.Sprint(max(0, time.Until(e.Expires).Round(time.Second))))
	}
	add("unblock", unblock(e))
	add("note", e.Note)
	return all
}

// unblock says what would have a blocked host pass; "" if the host is not blocked.
func unblock(e policy.Explained) string {
	host := strings.TrimSuffix(e.Expression, "/")
	switch {
	case e.Verdict != lookup.Unsafe:
		return ""
	case e.By == lookup.ByTest:
		return "remove " + host + " from test in the Corefile"
	case e.By == lookup.ByBlock:
		return "remove " + host + " from the list, or add: allow " + host
	}
	return "allow " + host + " in the Corefile"
}
