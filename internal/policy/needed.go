package policy

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/ownlist"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

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
	count := ownlist.Plural(len(n.Names), "name", "names")
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
func (p *Policy) BlocksNeeded(list string) (n NeededNames) {
	lists, needed := p.own.Load(), p.needed.Load()
	i := -1
	if lists != nil && needed != nil {
		i = slices.IndexFunc(lists.files, func(f *ownlist.File) bool { s := f.State(); return s.Named == list && !s.Allow })
	}
	if i < 0 {
		return n
	}
	n.Pass = lists.files[i].State().Fetched
	type name struct{ host, what string }
	var all []name
	for host, what := range *needed {
		h, ok := lookup.ParseHost(host)
		m, found := lists.files[i].Match(h, time.Now())
		if !ok || !found || m.Allow {
			continue
		}
		if best, _ := ownlist.Best(lists.files, h, time.Now()); !best.Allow {
			all = append(all, name{host, what})
		}
	}
	slices.SortFunc(all, func(a, b name) int { return cmp.Compare(a.host, b.host) })
	for _, a := range all {
		line := ""
		if len(n.Names) < maxNamed {
			line = lineIn(lists.configs[which{list, false}], a.host)
		}
		n.Names = append(n.Names, a.host+line+", "+a.what)
	}
	return n
}

// lineIn returns " (line 3)" for the line of a list that decides on a host, or "".
func lineIn(c ownlist.Config, host string) string {
	info, err := os.Stat(c.Path)
	h, ok := lookup.ParseHost(host)
	if err != nil || !ok || info.Size() > maxSearched {
		return ""
	}
	line, _, found, err := ownlist.FindLine(c, h)
	if err != nil || !found {
		return ""
	}
	return fmt.Sprintf(" (line %d)", line)
}

// reportNeeded logs which needed names a list has.
func (p *Policy) reportNeeded(list string) {
	if n := p.BlocksNeeded(list); len(n.Names) > 0 {
		log.Warningf("List %s: %s. If you want it otherwise: %s", list, n, n.Advice())
	}
}
