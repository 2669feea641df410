package block

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/config"
	"github.com/coredns-safebrowsing/safebrowsing/internal/ownlist"
	"github.com/coredns-safebrowsing/safebrowsing/internal/say"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

// NeededList is the name, as a list, of the names that Need names.
const NeededList = "needed"

// Need tells the block which names neither Safe Browsing nor a list by URL may block.
func (b *Block) Need(n config.Needed) { b.needed.Store(&n) }

// neededFor returns what a host is needed for, or "".
func (b *Block) neededFor(h lookup.Host) string {
	if n := b.needed.Load(); n != nil {
		return n.What(h)
	}
	return ""
}

// spare returns what becomes of a decision of Safe Browsing about a needed host: it is safe.
// It logs, once a day, that the host would have been blocked.
func (b *Block) spare(h lookup.Host, d lookup.Decision, what string) lookup.Decision {
	if d.Verdict == lookup.Safe {
		return d
	}
	if d.Verdict == lookup.Unsafe && b.spared.First(h.String(), time.Now()) {
		log.Warningf("%s. passes, although Safe Browsing lists it (%s, list %s): it is %s. If you want to block it all the same, add it to a list of block", h, d.Threat, d.List, what)
	}
	return lookup.Decision{By: lookup.ByAllow, List: NeededList}
}

// NeededNames are the needed names that an own list would block.
type NeededNames struct {
	Names []string // "lists.example.org (line 3), the host of a list by URL", sorted
	Pass  bool     // the list is one by URL: the names pass
}

// maxNamed is the most names of which String tells.
const maxNamed = 5

// String says what becomes of the names, or returns "" if there are none.
func (n NeededNames) String() string {
	if len(n.Names) == 0 {
		return ""
	}
	text := strings.Join(n.Names[:min(len(n.Names), maxNamed)], "; ")
	if more := len(n.Names) - maxNamed; more > 0 {
		text += fmt.Sprintf("; and %d more", more)
	}
	count := say.Count(len(n.Names), "name", "names")
	if n.Pass {
		return count + " that it has pass, because this server needs them: " + text
	}
	return "it blocks " + count + " that this server needs: " + text
}

// Advice says what the operator can do.
func (n NeededNames) Advice() string {
	if n.Pass {
		return "a file of block blocks them all the same, if you want that"
	}
	return "remove them from the list, or name them after allow, unless you want that"
}

// BlocksNeeded returns the needed names that a list has, by its name in decisions. Names that
// the operator allows are not among them, nor those of a file that another entry overrules.
// It reads a list of up to 32 MiB again for each of the first five names, for their lines.
func (b *Block) BlocksNeeded(list string) (n NeededNames) {
	lists, needed := b.own.Load(), b.needed.Load()
	i := -1
	if lists != nil && needed != nil {
		i = slices.IndexFunc(lists.files, func(f *ownlist.File) bool { s := f.State(); return s.Named == list && !s.Allow })
	}
	if i < 0 {
		return n
	}
	n.Pass = lists.files[i].State().Fetched
	type name struct {
		lookup.Host
		what string
	}
	var all []name
	for host, what := range *needed {
		h, ok := lookup.ParseHost(host)
		m, found := lists.files[i].Match(h, time.Now())
		if !ok || !found || m.Allow {
			continue
		}
		if best, _ := ownlist.Best(lists.files, h, time.Now()); !best.Allow {
			all = append(all, name{h, what})
		}
	}
	slices.SortFunc(all, func(a, b name) int { return cmp.Compare(a.String(), b.String()) })
	for _, a := range all {
		text := a.String()
		if len(n.Names) < maxNamed {
			if line := lineIn(lists.configs[which{list, false}], a.Host); line > 0 {
				text += fmt.Sprintf(" (line %d)", line)
			}
		}
		n.Names = append(n.Names, text+", "+a.what)
	}
	return n
}

// reportNeeded logs which needed names a list has.
func (b *Block) reportNeeded(list string) {
	if n := b.BlocksNeeded(list); len(n.Names) > 0 {
		log.Warningf("List %s: %s; %s", list, n, n.Advice())
	}
}
