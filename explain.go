package safebrowsing

import (
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/coredns/coredns/request"

	"github.com/miekg/dns"

	"github.com/coredns-safebrowsing/safebrowsing/lookup"
	"github.com/coredns-safebrowsing/safebrowsing/updater"
)

// whyZone is below which a name is asked why it is blocked or not.
const whyZone = ".why.safebrowsing."

// asksWhy returns the name that a query of class CH asks about.
func asksWhy(state *request.Request) (host string, ok bool) {
	if state.QClass() != dns.ClassCHAOS || state.QType() != dns.TypeTXT {
		return "", false
	}
	return strings.CutSuffix(state.Name(), whyZone)
}

// why answers what is known here about a host: verdict, expression, list,
// source, and for how long it holds. It never asks the server.
func (s *SafeBrowsing) why(r *dns.Msg, host string) *dns.Msg {
	m := new(dns.Msg)
	m.SetReply(r)
	if !s.cfg.Explain {
		m.Rcode = dns.RcodeRefused
		return m
	}
	m.Authoritative = true
	txt := &dns.TXT{
		Hdr: dns.RR_Header{Name: r.Question[0].Name, Rrtype: dns.TypeTXT, Class: dns.ClassCHAOS},
		Txt: explanation(s.explainHost(lookup.FromQname(host), host+".")),
	}
	m.Answer = []dns.RR{txt}
	return m
}

// explained is what is known here about a host.
type explained struct {
	lookup.Decision
	suspected bool   // a query would have it confirmed
	note      string // beside what the decision says
}

func (s *SafeBrowsing) explainHost(h lookup.Host, qname string) explained {
	if !s.mine(qname) {
		return explained{note: "not checked: it is in no zone of this server block, or in one of its exceptions"}
	}
	d, candidates := s.check(h)
	switch {
	case candidates != nil:
		d.List, d.Expression = candidates.First()
		note := "suspected: a query would have it confirmed by the server"
		if paused := pausedNote(s.engine.Load().Schedule); paused != "" {
			note = "suspected, passes for now: " + paused
		}
		return explained{d, true, note}
	case d.FrameOnly && d.Verdict == lookup.Safe:
		return explained{Decision: d, note: "a threat that the server marks FRAME_ONLY, which passes: frames pass"}
	case d.FrameOnly:
		return explained{Decision: d, note: "the server marks the threat FRAME_ONLY"}
	case d.Verdict == lookup.Safe && d.By == lookup.ByNobody && !h.Public():
		return explained{d, false, "never looked up in Safe Browsing's lists: the name is not public"}
	case d.Verdict == lookup.Safe && d.By == lookup.ByNobody:
		return explained{d, false, "no lists are in force" + s.notAsked()}
	}
	return explained{Decision: d}
}

// notAsked says until when, and why, the server is not asked for lists.
func (s *SafeBrowsing) notAsked() string {
	e := s.engine.Load()
	if e == nil {
		return ""
	}
	hold := e.Schedule.FetchHold(s.cfg.Stored())
	if !hold.Active(time.Now()) {
		return ""
	}
	return fmt.Sprintf(": not asked before %s (%v)", hold.Until.UTC().Format(time.RFC3339), hold)
}

// explanation puts what is known into strings of a TXT record, each "word=value".
func explanation(e explained) []string {
	all := []string{"verdict=" + e.Verdict.String(), "decided_by=" + e.By.String()}
	add := func(word, value string) {
		if value != "" && value != "." {
			all = append(all, word+"="+value[:min(len(value), 200)])
		}
	}
	add("threat", e.Threat.String())
	add("list", filepath.Base(e.List)) // where the operator keeps files is nobody's business
	add("expression", e.Expression)
	if !e.Expires.IsZero() {
		add("remaining", fmt.Sprint(max(0, time.Until(e.Expires).Round(time.Second))))
	}
	add("note", e.note)
	return all
}

// pausedNote says why suspected names pass for a while; "" if they do not.
func pausedNote(s *updater.Schedule) string {
	if s == nil {
		return ""
	}
	hold := s.SearchHold()
	if !hold.Active(time.Now()) {
		return ""
	}
	return fmt.Sprintf("confirmations are paused until %s (%v)", hold.Until.UTC().Format(time.RFC3339), hold)
}
