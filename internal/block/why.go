package block

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/answer"
	"github.com/coredns-safebrowsing/safebrowsing/internal/ownlist"
	"github.com/coredns-safebrowsing/safebrowsing/internal/say"
	"github.com/coredns-safebrowsing/safebrowsing/internal/status"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

// Explained is a decision about a host, with what to say about it.
type Explained struct {
	lookup.Decision
	Suspected bool      // the server is asked about it on a query
	Confirmed time.Time // when the server said so; zero: unknown, or it has not
	Unchecked bool      // the block does not check the name, or not now
	Note      string    // what the decision does not say
}

// Explain decides on a host as Check does, in words. It never asks the server. qname is the
// name of the host as InScope takes it. Of a pause it knows in a running server only: a CoreDNS
// that has started since does not continue one, and its folder does not tell.
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
	if c.List, c.Expression = c.Suspect.candidates.First(); c.List == "" {
		e := b.explained(h, lookup.Decision{}, "no threat list has it; with mode "+b.Settings.Mode.String()+" the server is asked about it on a query")
		e.Suspected = true
		return e
	}
	note := "suspected: the server is asked about it on a query"
	if hold := c.Suspect.service.SearchHold(); hold.Active(time.Now()) {
		meanwhile := "passes"
		if b.Config.UnsureFails && !b.Config.Monitor {
			meanwhile = "gets SERVFAIL"
		}
		note = fmt.Sprintf("suspected, %s for now: confirmations are paused until %s (%v)", meanwhile, say.Time(hold.Until), hold)
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
		d = lookup.Decision{By: lookup.ByAllow, List: neededList}
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
	case d.By == lookup.ByAllow && d.List == neededList:
		return "never blocked by Safe Browsing or a list by URL: it is " + b.needed.What(h)
	case d.Verdict == lookup.Safe && (d.By == lookup.ByCache || d.By == lookup.ByServer):
		return "the server was asked about the first bytes of its hash, and does not call it a threat"
	case d.FrameOnly:
		return "the server marks the threat FRAME_ONLY; allow would let the name pass"
	case unlisted(d) && (b.Stored != nil && len(b.Stored.Problems) > 0 || b.lacksLists()):
		return "no threat list has it, but not all lists are here"
	case unlisted(d):
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

// Unblock says what would let a blocked host pass; "" if the host is not blocked. If the entry is about a
// whole suffix or every name, that is about the host alone.
func (e *Explained) Unblock(h lookup.Host) string {
	host := strings.TrimSuffix(e.Expression, "/")
	entry := cmp.Or(host, "*")
	if host == "" || ownlist.IsPublicSuffix(host) {
		host = h.String()
	}
	switch {
	case e.Verdict != lookup.Unsafe:
		return ""
	case e.By == lookup.ByBlock:
		return "remove " + entry + " from the list, or add: allow " + host
	}
	return "allow " + host + " in the Corefile"
}

// maxSearched is the most bytes of an own list in which a line is looked for: a million
// names, which take some 25 ms.
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

// Why returns what the block does with a host, for its clients. It asks no server.
func (b *Block) Why(h lookup.Host) status.Answer {
	now := time.Now()
	return b.why(context.Background(), h, false, b.last(h, now), now)
}

// last returns what is known of the last hour about a host; nil: nothing.
func (b *Block) last(h lookup.Host, now time.Time) *status.Blocked {
	return process.recent.Last(h.String(), b.zones(), b.Config.DB, now)
}

// why is Why, and with confirm asks the server about a suspected host. last is what is known of the
// last hour.
func (b *Block) why(ctx context.Context, h lookup.Host, confirm bool, last *status.Blocked, now time.Time) status.Answer {
	qname := h.String() + "."
	e := b.Explain(h, qname)
	if confirm && e.Suspected {
		ctx, cancel := context.WithTimeout(ctx, confirmTimeout)
		e = b.Ask(ctx, h, qname)
		cancel()
	}
	a := b.answerOf(h, e)
	if last != nil && !b.Config.Monitor && (e.By == lookup.ByList || a.Verdict == status.VerdictSuspected || a.Verdict == status.VerdictUnknown) {
		b.remember(&a, last, now)
	}
	switch gone := process.recent.Gone(h.String(), b.zones(), b.Config.DB, now); {
	case last != nil || a.Verdict == status.VerdictBlocked:
	case !gone.IsZero() && !b.Config.Monitor && !isOwn(e.Decision) && !e.Unchecked:
		b.admit(&a, gone)
	case process.recent.Crowded(now):
		a.Note = strings.TrimPrefix(a.Note+"; more names were blocked in the last hour than are kept, and this may be one of them", "; ")
	}
	if k := b.Kept(SignOf(qname), qname); k != nil {
		b.keep(&a, k)
	}
	a.Say(h.String())
	return a
}

// admit corrects an answer about a name that was blocked in a minute of the last hour, by what is not known: as
// itself, or as an alias.
func (b *Block) admit(a *status.Answer, at time.Time) {
	if a.Verdict != status.VerdictSuspected {
		a.Verdict = status.VerdictUnknown
	}
	a.Note = strings.TrimPrefix(a.Note+"; it was blocked at "+say.Time(at)+"; by which list is not known any more, as more names were blocked in the last hour than are kept", "; ")
}

// keep corrects an answer by what is answered about a kept name, whatever lists say.
func (b *Block) keep(a *status.Answer, k *answer.Kept) {
	*a = status.Answer{Zones: a.Zones, Place: a.Place, Verdict: status.VerdictPasses, Note: "answered here and not forwarded: " + k.Text}
	if k.Canary {
		a.Verdict, a.DecidedBy, a.List = status.VerdictBlocked, lookup.ByBlock.String(), "keep_clients"
		a.Note, a.Unblock = k.Text, "allow "+strings.TrimSuffix(k.Name, ".")
	}
}

// confirmTimeout is the most time for the confirmation of one name that people ask about.
const confirmTimeout = 10 * time.Second

// answerOf returns a decision as an answer, without its sentence.
func (b *Block) answerOf(h lookup.Host, e Explained) status.Answer {
	a := status.Answer{
		Zones: b.zones(), Place: b.Config.Place, Verdict: b.verdictOf(h, e), List: e.List, Line: b.Line(e.Decision, h), Expression: e.Expression,
		Threat: e.Threat.String(), Note: e.Note, Confirmed: e.Confirmed, Expires: e.Expires, Unblock: e.Unblock(h),
	}
	if !unlisted(e.Decision) {
		a.DecidedBy = e.By.String()
	}
	reply := b.Reply()
	a.Warning.Text = reply.Warning(e.Decision)
	if strings.HasSuffix(a.Warning.Text, reply.Advisory) {
		a.Warning.URL = reply.Advisory
	}
	if e.Verdict == lookup.Unsafe && b.Config.Monitor {
		a.Note = strings.TrimSuffix("would be blocked, but monitor lets it pass; "+a.Note, "; ")
	}
	if x := SignOf(h.String()); x != nil && x.resolver {
		a.Note = strings.TrimPrefix(a.Note+"; a public encrypted resolver: "+process.devices.counts().InWords(), "; ")
	}
	if e.Verdict == lookup.Unsure && e.Err != nil {
		a.Note = strings.TrimSuffix(fmt.Sprintf("could not be confirmed: %v; %s", e.Err, a.Note), "; ")
	}
	return a
}

// verdictOf returns the word for a decision. A host that no list here could tell about is unknown.
func (b *Block) verdictOf(h lookup.Host, e Explained) string {
	switch {
	case e.Verdict == lookup.Unsafe && !b.Config.Monitor:
		return status.VerdictBlocked
	case e.Verdict == lookup.Unsure:
		return status.VerdictSuspected
	case e.By == lookup.ByList && b.lacksLists():
		return status.VerdictUnknown
	case e.By == lookup.ByNobody && h.Public() && !e.Unchecked && e.Verdict == lookup.Safe:
		return status.VerdictUnknown
	}
	return status.VerdictPasses
}

// lacksLists reports whether a list of the service is not in force.
func (b *Block) lacksLists() bool {
	s := b.service.Load()
	if s == nil {
		return false
	}
	for _, l := range s.Standing(time.Now()).Lists {
		if l.Missing() {
			return true
		}
	}
	return false
}

// remember corrects an answer by what was blocked in the last hour, which is never denied.
func (b *Block) remember(a *status.Answer, last *status.Blocked, now time.Time) {
	target, isAlias := lookup.Host{}, last.Target != ""
	if isAlias && !b.Config.Inspect || last.By == lookup.ByBlock.String() && b.ownList(last.List, false).Path == "" {
		return // another server block of these zones has blocked it, for clients of its own
	}
	if isAlias {
		target = lookup.FromQname(last.Target + ".")
		e := b.Explain(target, last.Target+".")
		if e.Verdict != lookup.Unsafe && !e.Suspected {
			a.Note = strings.TrimPrefix(a.Note+"; it passes again: "+last.Target+", which it was an alias of, is not blocked any more", "; ")
			return
		}
	} else if a.Verdict == status.VerdictPasses || last.By == lookup.ByBlock.String() { // own lists are here
		a.Note = strings.TrimPrefix(a.Note+"; it passes again: the list has it no more", "; ")
		return
	}
	a.Verdict, a.Target = status.VerdictBlocked, last.Target
	a.List, a.Expression, a.Threat, a.DecidedBy, a.Confirmed = last.List, last.Entry+"/", last.Threat, last.By, last.Confirmed
	a.Note = "it was blocked " + say.Age(now.Sub(last.Last)) + " ago, at " + say.Time(last.Last)
	if isAlias {
		a.Line = b.Line(lookup.Decision{By: deciderOf(last.By), List: last.List, Expression: last.Entry + "/"}, target)
	}
	a.Unblock = "allow " + last.Name
}

// deciderOf is the reverse of lookup.Decider.String.
func deciderOf(word string) lookup.Decider {
	for by := lookup.ByNobody; by < lookup.NumDeciders; by++ {
		if by.String() == word {
			return by
		}
	}
	return lookup.ByNobody
}

// WhyName is Process.Why for what people write: a name or a URL. It also says who asked for the name: a page and
// explain must not, as others may look at them.
func (p *Process) WhyName(ctx context.Context, name string, confirm bool) (status.Why, error) {
	h, ok := status.HostOf(name)
	if !ok {
		return status.Why{}, errors.New("this is not a host name or a URL")
	}
	w := p.Why(ctx, h, confirm)
	looked := make(map[*memory]bool) // blocks of the same zones may share one
	for _, b := range p.all() {
		if b.memory == nil || looked[b.memory] || !b.InScope(h.String()+".") {
			continue
		}
		looked[b.memory] = true
		if w.Asked == nil {
			w.Asked = &status.Asked{Clients: []string{}}
		}
		b.memory.askedFor(h, w.Asked)
	}
	return w, nil
}
