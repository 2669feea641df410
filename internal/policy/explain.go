package policy

import (
	"fmt"
	"os"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/ownlist"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
	"github.com/coredns-safebrowsing/safebrowsing/updater"
)

// Explained is a decision about a host, with what to say about it.
type Explained struct {
	lookup.Decision
	Suspected bool      // a query would have it confirmed
	Confirmed time.Time // when the server said so; zero: unknown, or it has not
	Note      string    // what the decision does not say
}

// Explain decides on a host as Check does, in words. It never asks the server. qname
// is the name of the host as InScope takes it.
func (p *Policy) Explain(h lookup.Host, qname string) Explained {
	if !p.InScope(qname) {
		return Explained{Note: "not checked: it is in no zone of this server block, or in one of its exceptions"}
	}
	d, candidates := p.Check(h)
	suspected := candidates != nil || d.Verdict == lookup.Unsafe && !IsOwn(d)
	if what := p.Needed(h); what != "" && suspected {
		return Explained{Decision: lookup.Decision{By: lookup.ByAllow, List: NeededList}, Note: NeededNote(what)}
	}
	switch {
	case d.List == NeededList && d.By == lookup.ByAllow:
		return Explained{Decision: d, Note: NeededNote(p.Needed(h))}
	case candidates != nil:
		d.List, d.Expression = candidates.First()
		note := "suspected: a query would have it confirmed by the server"
		if paused := pausedNote(p.source.Load().SearchHold()); paused != "" {
			note = "suspected, passes for now: " + paused
		}
		return Explained{Decision: d, Suspected: true, Note: note}
	case d.FrameOnly && d.Verdict == lookup.Safe:
		return Explained{Decision: d, Note: "a threat that the server marks FRAME_ONLY, which passes: frames pass"}
	case d.FrameOnly:
		return Explained{Decision: d, Note: "the server marks the threat FRAME_ONLY"}
	case d.Verdict == lookup.Safe && d.By == lookup.ByNobody && !h.Public():
		return Explained{Decision: d, Note: "never looked up in Safe Browsing's lists: the name is not public"}
	case d.Verdict == lookup.Safe && d.By == lookup.ByNobody:
		return Explained{Decision: d, Note: "no lists are in force" + p.notAsked()}
	}
	e := Explained{Decision: d}
	if d.By == lookup.ByCache {
		e.Confirmed = p.source.Load().Checker.Confirmed(d.Expression)
	}
	return e
}

// maxSearched is the most bytes of an own list in which a line is looked for: a million
// names, which take a tenth of a second.
const maxSearched = 32 << 20

// Line returns the line, from 1, of the own list that made a decision about h; 0 if none
// did or it is unknown. Clients cause this search, so one line is looked for at a time.
func (p *Policy) Line(d lookup.Decision, h lookup.Host) int {
	own := p.ownList(d.List, d.By == lookup.ByAllow)
	if own.Path == "" || !p.finding.TryLock() {
		return 0
	}
	defer p.finding.Unlock()
	if info, err := os.Stat(own.Path); err != nil || info.Size() > maxSearched {
		return 0
	}
	line, _, _, err := ownlist.FindLine(own, h)
	if err != nil {
		return 0
	}
	return line
}

// NeededNote says why a needed name passes.
func NeededNote(what string) string {
	return "never blocked by Safe Browsing or a list by URL: it is " + what
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
