package policy

import (
	"fmt"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/lookup"
	"github.com/coredns-safebrowsing/safebrowsing/updater"
)

// Explained is a decision about a host, with what to say about it.
type Explained struct {
	lookup.Decision
	Suspected bool   // a query would have it confirmed
	Note      string // what the decision does not say
}

// Explain decides on a host as Check does, in words. It never asks the server. qname
// is the name of the host as InScope takes it.
func (p *Policy) Explain(h lookup.Host, qname string) Explained {
	if !p.InScope(qname) {
		return Explained{Note: "not checked: it is in no zone of this server block, or in one of its exceptions"}
	}
	d, candidates := p.Check(h)
	switch {
	case candidates != nil:
		d.List, d.Expression = candidates.First()
		note := "suspected: a query would have it confirmed by the server"
		if paused := pausedNote(p.source.Load().SearchHold()); paused != "" {
			note = "suspected, passes for now: " + paused
		}
		return Explained{d, true, note}
	case d.FrameOnly && d.Verdict == lookup.Safe:
		return Explained{Decision: d, Note: "a threat that the server marks FRAME_ONLY, which passes: frames pass"}
	case d.FrameOnly:
		return Explained{Decision: d, Note: "the server marks the threat FRAME_ONLY"}
	case d.Verdict == lookup.Safe && d.By == lookup.ByNobody && !h.Public():
		return Explained{d, false, "never looked up in Safe Browsing's lists: the name is not public"}
	case d.Verdict == lookup.Safe && d.By == lookup.ByNobody:
		return Explained{d, false, "no lists are in force" + p.notAsked()}
	}
	return Explained{Decision: d}
}

// notAsked says until when and why no lists are fetched; "" if they are.
func (p *Policy) notAsked() string {
	s := p.source.Load()
	if s == nil {
		return ""
	}
	hold := s.FetchHold()
	if !hold.Active(time.Now()) {
		return ""
	}
	return fmt.Sprintf(": not asked before %s (%v)", hold.Until.UTC().Format(time.RFC3339), hold)
}

// pausedNote says why suspected names pass for a while; "" if they do not.
func pausedNote(hold updater.Hold) string {
	if !hold.Active(time.Now()) {
		return ""
	}
	return fmt.Sprintf("confirmations are paused until %s (%v)", hold.Until.UTC().Format(time.RFC3339), hold)
}
