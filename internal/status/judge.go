package status

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/say"
)

// manyNames is from how many names on lists of the operator alone count as protection: an
// example of three names is none.
const manyNames = 1000

// Judge fills in what the facts of a report mean.
func (r *Report) Judge() {
	r.Causes, r.Notes, r.Notices = []Cause{}, []string{}, []Words{}
	for i := range r.Services {
		r.service(&r.Services[i], r.unsure(i))
	}
	j := judgement{by: make(map[string]bool)}
	for i := range r.Blocks {
		r.block(&r.Blocks[i], &j)
	}
	if len(r.Blocks) == 0 {
		r.cause(Cause{Text: "No server block has safebrowsing.", Cure: "Add safebrowsing to a server block of the Corefile"})
	}
	switch {
	case j.working == 0:
		r.State, r.Headline = NotProtected, "NOT protected"
		if j.why != "" {
			r.Headline += ": " + j.why
		}
	case len(r.Services) == 0 && len(r.Causes) == 0:
		r.State, r.Headline = OwnLists, fmt.Sprintf("Your own lists only (%s names): Safe Browsing is off", say.Number(j.names))
	case len(r.Causes) > 0:
		r.State, r.Headline = InPart, "Protected in part, by "+joined(j.by)
	default:
		r.State, r.Headline = Protected, "Protected by "+joined(j.by)
	}
}

// judgement is what has been found about server blocks.
type judgement struct {
	by      map[string]bool // what protects
	names   int             // that own lists block
	working int             // server blocks that something protects
	why     string          // the first one that does not work does not
}

// unsure says what becomes of suspected names of a service while none is confirmed.
func (r *Report) unsure(service int) string {
	of := func(fails bool) bool {
		return slices.ContainsFunc(r.Blocks, func(b Block) bool { return b.Service == service && (b.Fails && !b.Monitor) == fails })
	}
	if of(true) && !of(false) {
		return "suspected names get SERVFAIL"
	}
	return "suspected names pass"
}

// service adds what there is to say about a service. unsure are its own.
func (r *Report) service(s *Service, unsure string) {
	if notice := (Words{s.Notice, s.Advisory}); s.Notice != "" && !slices.Contains(r.Notices, notice) {
		r.Notices = append(r.Notices, notice)
	}
	fetchSaid := r.lists(s)
	switch {
	case s.Ended:
		r.cause(Cause{Text: s.Ending + "."})
	case s.Ending != "":
		r.note("%s.", s.Ending)
	}
	if s.Unknown {
		r.cause(Cause{Text: fmt.Sprintf("The lists of %s are only in the memory of CoreDNS (db off).", s.Title)})
	}
	if s.empty() {
		r.cause(Cause{Text: fmt.Sprintf("The lists of %s are empty: it blocks nothing.", s.Title), Cure: "If its server is a relay, the relay's log says whether it has fetched them"})
	}
	if s.Search.Active(r.At) {
		cause := Cause{Text: fmt.Sprintf("Confirmations are paused: %s.", unsure), Until: s.Search.Until}
		if !fetchSaid || s.Search.Why != s.Fetch.Why {
			cause.Text, cause.Cure = fmt.Sprintf("Confirmations are paused (%s): %s.", s.Search.Why, unsure), s.Search.cure()
		}
		r.cause(cause)
	}
	if s.InPart != "" && !s.Search.Active(r.At) { // else nobody has a search, whatever the shares
		r.cause(Cause{Text: s.InPart})
	}
	if s.Fetch.Active(r.At) && s.Fetch.Failures > 0 && !fetchSaid {
		r.note("Lists of %s are not fetched before %s (%s).", s.Title, say.Time(s.Fetch.Until), s.Fetch.Why)
	}
	if s.Follows {
		r.note("Another process fetches the lists into %s, and this one reads them there.", s.Folder)
	}
}

// lists adds which lists of a service are missing or old, each kind once. It reports whether that
// says why no list is fetched.
func (r *Report) lists(s *Service) (said bool) {
	var missing, likelySafe, old group
	oldest := r.At
	for _, l := range s.Lists {
		switch {
		case s.Unknown:
		case l.Missing() && l.Name == globalCache:
			likelySafe.add(l)
		case l.Missing():
			missing.add(l)
		case l.Old:
			old.add(l)
			if l.Updated.Before(oldest) {
				oldest = l.Updated
			}
		}
	}
	add := func(g group, what string) {
		if len(g.names) == 0 {
			return
		}
		c := Cause{Text: fmt.Sprintf("%s %s %s %s.", say.Plural(len(g.names), "List", "Lists"), strings.Join(g.names, ", "), say.Plural(len(g.names), "is", "are"), what)}
		switch {
		case g.notBefore.After(r.At) && g.notBefore.After(s.Fetch.Until): // others may be fetched before
			c.Text += fmt.Sprintf(" The server is not asked for %s now: the log says why.", say.Plural(len(g.names), "it", "them"))
			c.Until, c.Cure = g.notBefore, "\"safebrowsing doctor\" says whether the server has all lists"
		case said: // with the lists that are missing
		case s.Fetch.Active(r.At):
			c.Text += fmt.Sprintf(" The server is not asked now (%s).", s.Fetch.Why)
			c.Until, c.Cure, said = s.Fetch.Until, s.Fetch.cure(), true
		default:
			c.Cure, said = "Wait a minute. If that does not end it, the log says why", true
		}
		r.cause(c)
	}
	add(missing, "not in force: "+say.Plural(len(missing.names), "its", "their")+" names pass")
	add(likelySafe, "not in force: until it is, mode realtime blocks no more than mode local")
	add(old, "old, so new threats pass: last fetched "+say.Age(r.At.Sub(oldest))+" ago")
	return said
}

// globalCache is the list of mode realtime, whose names are likely safe.
const globalCache = "gc-32b"

// group is lists about which the same is told.
type group struct {
	names     []string
	notBefore time.Time // when all may be fetched
}

func (g *group) add(l List) {
	g.names = append(g.names, shortList(l.Name))
	if l.NotBefore.After(g.notBefore) {
		g.notBefore = l.NotBefore
	}
}

// block adds what there is to say about a server block, and to the judgement what protects its
// clients.
func (r *Report) block(b *Block, j *judgement) {
	names, where := 0, b.Zones
	if slices.ContainsFunc(r.Blocks, func(o Block) bool {
		return o.Zones == b.Zones && (o.Service != b.Service || o.Monitor != b.Monitor || !slices.Equal(o.Own, b.Own))
	}) {
		where = located(b.Zones, b.Place)
	}
	for _, own := range b.Own {
		if own.Trouble != "" {
			r.note("The list %s cannot be used: %s. The %s in force.", own.Name, own.Trouble, say.Count(own.Entries, "entry read before stays", "entries read before stay"))
		}
		if own.Nothing != "" {
			r.note("The list %s %s nothing: it %s.", own.Name, own.does(), own.Nothing)
		}
		if !own.Allow {
			names += own.Entries
		}
	}
	j.names = max(j.names, names)
	if b.Led {
		r.note("keep_clients off: resolver.arpa is forwarded for the zones %s, and an upstream may lead clients to ask it instead of this server.", b.Zones)
	}
	why := ""
	switch works := b.Service >= 0 && r.Services[b.Service].works(r.At); {
	case b.Paused.After(r.At):
		why = "blocking is paused"
		r.cause(Cause{"Blocking is paused for the zones " + b.Zones + ": every name passes.", b.Paused, "To end the pause: safebrowsing resume"})
	case b.Monitor:
		why = "monitor only logs"
		r.cause(Cause{Text: fmt.Sprintf("The server block for %s has monitor: it logs what it would block, and blocks nothing.", where), Cure: "Remove monitor from the Corefile to block"})
	case works || names >= manyNames:
		j.working++
		if works {
			j.by[r.Services[b.Service].Title] = true
		}
		if names > 0 {
			j.by[ownLists] = true
		}
		if b.Service < 0 {
			r.note("The server block for %s has own lists only: no service is asked.", where)
		}
		return
	case b.Service < 0:
		why = "Safe Browsing is off, and your own lists block " + say.Count(names, "name", "names")
		r.cause(Cause{Text: fmt.Sprintf("The server block for %s asks no service, and its own lists block %s.", where, say.Count(names, "name", "names")),
			Cure: "Give it a key: add api_key_file FILE to the Corefile, see \"safebrowsing doctor\""})
	default:
		s := &r.Services[b.Service]
		var only []string // it blocks
		switch why = "no list of " + s.Title + " is in force"; {
		case s.empty():
			why = "the lists of " + s.Title + " are empty"
		case s.Search.Active(r.At):
			why = s.Title + " can confirm no name"
			if s.looksUp() {
				only = append(only, "threats that were confirmed before") // they are cached
			}
		}
		if names > 0 {
			only = append(only, "the "+say.Count(names, "name", "names")+" of its own lists")
		}
		what := "nothing"
		if len(only) > 0 {
			what = "only " + strings.Join(only, " and ")
		}
		r.cause(Cause{Text: fmt.Sprintf("For now the server block for %s blocks %s.", where, what)})
	}
	if j.why == "" {
		j.why = why
	}
}

// works reports whether a service blocks names.
func (s *Service) works(now time.Time) bool {
	return !s.Unknown && !s.Search.Active(now) && s.looksUp()
}

// looksUp reports whether a service suspects names: it has a list that is not empty, or asks the server about each name.
func (s *Service) looksUp() bool {
	return len(s.Lists) == 0 || slices.ContainsFunc(s.Lists, func(l List) bool { return l.InForce && l.Entries > 0 })
}

// empty reports whether a service has lists in force, and none of them an entry.
func (s *Service) empty() bool {
	return slices.ContainsFunc(s.Lists, func(l List) bool { return l.InForce }) && !s.looksUp()
}

// cause adds a cause, once: server blocks may be alike.
func (r *Report) cause(c Cause) {
	if !slices.Contains(r.Causes, c) {
		r.Causes = append(r.Causes, c)
	}
}

// note adds a sentence, once.
func (r *Report) note(format string, args ...any) {
	if text := fmt.Sprintf(format, args...); !slices.Contains(r.Notes, text) {
		r.Notes = append(r.Notes, text)
	}
}

// ownLists is what a headline calls the lists of the operator.
const ownLists = "own lists"

// joined returns what protects, services first.
func joined(by map[string]bool) string {
	var all []string
	for what := range by {
		if what != ownLists {
			all = append(all, what)
		}
	}
	slices.Sort(all)
	if by[ownLists] {
		all = append(all, ownLists)
	}
	return strings.Join(all, " and ")
}
