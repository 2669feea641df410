package main

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/block"
	"github.com/coredns-safebrowsing/safebrowsing/internal/ownlist"
	"github.com/coredns-safebrowsing/safebrowsing/internal/say"
)

// ownLists examines the operator's own lists of all server blocks, each once.
func (e *examination) ownLists() {
	type which struct {
		path  string
		allow bool
	}
	seen := make(map[which]bool)
	for _, b := range ours(e.blocks) {
		for _, s := range b.OwnLists() {
			if w := (which{s.Path, s.Allow}); s.InCorefile || !seen[w] {
				seen[w] = true
				e.ownList(b.Block, s)
			}
		}
	}
}

// ownList prints the diagnosis of a list. It skips the hosts of the Corefile unless some of
// them have expired.
func (e *examination) ownList(o *block.Block, s ownlist.State) {
	if s.InCorefile && s.Ended == 0 {
		return
	}
	d := ownListDiagnosis(s)
	if needed := o.BlocksNeeded(s.Named); !s.Allow && len(needed.Names) > 0 {
		d.Text += text("; " + needed.String())
		if !needed.Pass && d.Status == isOK {
			d.Status, d.Advice = isWarning, text(needed.Advice())
		}
	}
	for _, c := range o.Config.Fetches() {
		if s.Fetched && s.Path == c.Name() {
			d = byURLDiagnosis(d, c, time.Now())
		}
	}
	e.tell(d)
}

// ownListDiagnosis says what a list does and which of its lines do not work. Published lists
// often have unsupported lines; they are counted but are not a warning.
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
		changed = ", last changed " + say.Time(s.Modified)
	}
	remarks := strings.Join(append([]string{""}, s.Remarks()...), "; ")
	if nothing := s.Nothing(); nothing != "" {
		d := diagnosis{"own list", isProblem, text(fmt.Sprintf("%s %s nothing: it %s%s%s", name, does, nothing, changed, remarks)), text(cmp.Or(s.Cure, "replace it with a list, or remove it from the Corefile"))}
		switch {
		case s.Idle():
			d.Status, d.Advice = isOK, ""
		case s.Allow:
			d.Status = isWarning
		}
		return d
	}
	for _, remark := range []string{s.WideRemark(), s.LeftOutRemark()} {
		if remark != "" {
			remarks += "; " + remark
		}
	}
	d := diagnosis{"own list", isWarning, text(fmt.Sprintf("%s %s %s%s%s", name, does, say.Count(s.InForce(), "name", "names"), changed, remarks)), ""}
	switch {
	case s.WideRemark() != "":
		d.Advice = "delete the lines that match very many names, unless you want them"
	case s.Bad.Count > 0:
		d.Advice = "correct the lines that are not list entries"
	case s.Elsewhere.Count > 0:
		d.Advice = "give the names the address 0.0.0.0 if you want to block them"
	case s.Ended > 0:
		d.Advice = "delete the entries that have ended, or give them a later date"
	default:
		d.Status = isOK
	}
	return d
}
