package main

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/coredns-safebrowsing/safebrowsing/internal/ownlist"
)

// ownLists examines the operator's own lists of all server blocks, each once.
func (e *examination) ownLists() {
	type which struct {
		path  string
		allow bool
	}
	seen := make(map[which]bool)
	for _, b := range e.blocks {
		if b.Offline == nil {
			continue
		}
		for _, s := range b.OwnLists() {
			if w := (which{s.Path, s.Allow}); s.InCorefile || !seen[w] {
				seen[w] = true
				e.ownList(s)
			}
		}
	}
}

// ownList tells how a list stands. Of the hosts that the Corefile allows there is
// only something to tell when some have ended.
func (e *examination) ownList(s ownlist.State) {
	if s.InCorefile && s.Ended == 0 {
		return
	}
	e.tell(ownListDiagnosis(s))
}

// ownListDiagnosis tells what is in a list, and what of it does not work. Lines that
// are not supported are usual in lists of others: they are only counted.
func ownListDiagnosis(s ownlist.State) diagnosis {
	does, name := "blocks", s.Path
	if s.Allow {
		does = "allows"
	}
	if s.InCorefile {
		name = "the Corefile itself"
	}
	changed := ""
	if !s.Modified.IsZero() {
		changed = ", last changed " + stamp(s.Modified)
	}
	remarks := strings.Join(append([]string{""}, s.Remarks()...), "; ")
	if nothing := s.Nothing(); nothing != "" {
		d := diagnosis{"own list", isProblem, text(fmt.Sprintf("%s %s nothing: it %s%s%s", name, does, nothing, changed, remarks)), text(cmp.Or(s.Cure, "put a list in its place, or take it out of the Corefile"))}
		if s.Allow {
			d.Status = isWarning
		}
		return d
	}
	if wide := s.WideRemark(); wide != "" {
		remarks += "; " + wide
	}
	d := diagnosis{"own list", isWarning, text(fmt.Sprintf("%s %s %s%s%s", name, does, ownlist.Plural(s.InForce(), "name", "names"), changed, remarks)), ""}
	switch {
	case s.WideRemark() != "":
		d.Advice = "take out the lines about very many names, unless they are meant"
	case s.Bad.Count > 0:
		d.Advice = "correct the lines that are not list entries"
	case s.Elsewhere.Count > 0:
		d.Advice = "give the names the address 0.0.0.0 if they are to be blocked"
	case s.Ended > 0:
		d.Advice = "delete the entries that have ended, or give them a later date"
	default:
		d.Status = isOK
	}
	return d
}
