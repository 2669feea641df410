package block

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/answer"
	"github.com/coredns-safebrowsing/safebrowsing/internal/say"
	"github.com/coredns-safebrowsing/safebrowsing/internal/status"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

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
	*a = status.Answer{Zones: a.Zones, Verdict: status.VerdictPasses, Note: "answered here and not forwarded: " + k.Text}
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
		Zones: b.zones(), Verdict: b.verdictOf(h, e), List: e.List, Line: b.Line(e.Decision, h), Expression: e.Expression,
		Threat: e.Threat.String(), Note: e.Note, Confirmed: e.Confirmed, Expires: e.Expires, Unblock: e.Unblock(),
	}
	if !Unlisted(e.Decision) {
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
	case e.Suspected, e.Verdict == lookup.Unsure:
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
