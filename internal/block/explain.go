package block

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/ownlist"
	"github.com/coredns-safebrowsing/safebrowsing/internal/say"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

// Explained is a decision about a host, with what to say about it.
type Explained struct {
	lookup.Decision
	Suspected bool      // a query would have it confirmed
	Confirmed time.Time // when the server said so; zero: unknown, or it has not
	Unchecked bool      // the block does not check the name, or not now
	Note      string    // what the decision does not say
}

// Explain decides on a host as Check does, in words. It never asks the server. qname is the
// name of the host as InScope takes it. Of a pause it knows in a running server only: a CoreDNS
// that has started since does not go on with one, and its folder does not tell.
func (b *Block) Explain(h lookup.Host, qname string) Explained {
	if until, paused := b.PausedUntil(); paused && b.Stored == nil {
		return Explained{Unchecked: true, Note: "not checked: blocking is paused until " + say.Time(until)}
	}
	if !b.InScope(qname) {
		e := b.explained(h, lookup.Decision{}, "not checked: it is in no zone of this server block, or in one of its exceptions")
		e.Unchecked = true
		return e
	}
	var c Checked
	b.check(h, &c)
	if c.Suspect == nil || c.Needed != "" {
		return b.tell(h, c)
	}
	c.List, c.Expression = c.Suspect.candidates.First()
	note := "suspected: a query would have it confirmed by the server"
	if hold := c.Suspect.service.SearchHold(); hold.Active(time.Now()) {
		note = fmt.Sprintf("suspected, passes for now: confirmations are paused until %s (%v)", say.Time(hold.Until), hold)
	}
	e := b.explained(h, c.Decision, note)
	e.Suspected = true
	return e
}

// Ask is Explain after the server has confirmed a suspected host, without the limits of clients.
func (b *Block) Ask(ctx context.Context, h lookup.Host, qname string) Explained {
	if !b.InScope(qname) {
		return b.Explain(h, qname)
	}
	var c Checked
	b.check(h, &c)
	if s := c.Suspect; s != nil {
		c.Decision, c.Suspect = s.service.Checker.Confirm(s.candidates, nil).Wait(ctx), nil
	}
	return b.tell(h, c)
}

// tell returns a decision in words. A Suspect is a needed host.
func (b *Block) tell(h lookup.Host, c Checked) Explained {
	d := c.Decision
	if c.Needed != "" && (c.Suspect != nil || d.Verdict != lookup.Safe) {
		d = lookup.Decision{By: lookup.ByAllow, List: NeededList}
	}
	e := b.explained(h, d, b.noteOn(h, d))
	if d.By == lookup.ByCache {
		e.Confirmed = b.service.Load().Checker.Confirmed(d.Expression)
	}
	return e
}

// explained adds to a note about a host that DNS has no part in it, if it is an IP address.
// Lists can have one.
func (b *Block) explained(h lookup.Host, d lookup.Decision, note string) Explained {
	if _, err := netip.ParseAddr(strings.Trim(h.String(), "[]")); err == nil {
		if note != "" {
			note += "; "
		}
		note += "an IP address: a browser that opens it asks no name server, so no DNS blocks it"
	}
	return Explained{Decision: d, Note: note}
}

// noteOn returns what a decision about a host does not say, or "".
func (b *Block) noteOn(h lookup.Host, d lookup.Decision) string {
	switch {
	case d.By == lookup.ByAllow && d.List == NeededList:
		return "never blocked by Safe Browsing or a list by URL: it is " + b.needed.What(h)
	case d.Verdict == lookup.Safe && (d.By == lookup.ByCache || d.By == lookup.ByServer):
		return "the server was asked about the first bytes of its hash, and does not call it a threat"
	case d.FrameOnly:
		return "the server marks the threat FRAME_ONLY; allow would let the name pass"
	case Unlisted(d) && b.Stored != nil && len(b.Stored.Problems) > 0:
		return "no threat list has it, but not all lists are here"
	case Unlisted(d):
		return "no threat list has it"
	case d.By != lookup.ByNobody || d.Verdict != lookup.Safe:
		return ""
	case !h.Public():
		return "never looked up in Safe Browsing's lists: the name is not public"
	case !b.Config.Online:
		return "only your own lists are in force"
	}
	note := "no lists are in force"
	if s := b.service.Load(); s != nil {
		if hold := s.FetchHold(); hold.Active(time.Now()) {
			note += fmt.Sprintf(": not asked before %s (%v)", say.Time(hold.Until), hold)
		}
	}
	return note
}

// Unblock says what would let a blocked host pass; "" if the host is not blocked.
func (e *Explained) Unblock() string {
	host := strings.TrimSuffix(e.Expression, "/")
	switch {
	case e.Verdict != lookup.Unsafe:
		return ""
	case e.By == lookup.ByBlock:
		return "remove " + host + " from the list, or add: allow " + host
	}
	return "allow " + host + " in the Corefile"
}

// maxSearched is the most bytes of an own list in which a line is looked for: a million
// names, which take some 25 ms (BenchmarkWhy).
const maxSearched = 32 << 20

// Line returns the line, from 1, of the own list that made a decision about h; 0 if none
// did or it is unknown. Clients cause this search, so one line is looked for at a time.
func (b *Block) Line(d lookup.Decision, h lookup.Host) int {
	own := b.ownList(d.List, d.By == lookup.ByAllow)
	if own.Path == "" || !b.finding.TryLock() {
		return 0
	}
	defer b.finding.Unlock()
	return lineIn(own, h, strings.TrimSuffix(d.Expression, "/"))
}

// lineIn returns the line of a list that decides on a host by an entry, or 0.
func lineIn(list ownlist.Config, h lookup.Host, entry string) int {
	if info, err := os.Stat(list.Path); err != nil || info.Size() > maxSearched {
		return 0
	}
	line, _, _, err := ownlist.FindLine(list, h, entry)
	if err != nil {
		return 0
	}
	return line
}
