package main

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/coredns-safebrowsing/safebrowsing/internal/block"
	"github.com/coredns-safebrowsing/safebrowsing/internal/ownlist"
	"github.com/coredns-safebrowsing/safebrowsing/internal/say"
)

// urlList is an own list by URL.
type urlList struct {
	ownlist.URLState
	leftOut string // which lines, and which needed names, have no effect; "": none
}

// savedIn returns the lists by URL of a folder, without a Corefile.
func savedIn(dir string) (all []urlList) {
	for _, s := range ownlist.SavedURLs(dir) {
		all = append(all, urlList{URLState: s})
	}
	return all
}

// leftOut says which lines of a list by URL, and which names that the server needs, have no
// effect, or returns "".
func leftOut(o *block.Block, list string) string {
	var all []string
	for _, s := range o.OwnLists() {
		if s.Fetched && s.Named == list {
			all = []string{s.LeftOutRemark(), o.BlocksNeeded(list).String()}
		}
	}
	return strings.Join(slices.DeleteFunc(all, func(text string) bool { return text == "" }), "; ")
}

// fetchedBy returns the lists by URL of server blocks, each once. Lists of blocks with db off
// are left out: only CoreDNS has them.
func fetchedBy(blocks []serverBlock) (all []urlList) {
	type which struct{ url, db string }
	seen := make(map[which]bool)
	for _, b := range blocks {
		if b.Block == nil {
			continue
		}
		for _, c := range b.Config.Fetches() {
			if w := (which{c.URL, c.DB}); c.DB != "" && !seen[w] {
				seen[w] = true
				s, err := ownlist.ReadURLState(c)
				if err != nil && !errors.Is(err, fs.ErrNotExist) {
					s.Error = err.Error()
				}
				all = append(all, urlList{s, leftOut(b.Block, c.Name())})
			}
		}
	}
	return all
}

// missing complains about lists by URL that were never fetched, and reports whether there
// are any.
func (o *console) missing(own []urlList) (any bool) {
	for _, s := range own {
		if s.Changed.IsZero() {
			any = true
			why := ""
			if s.Error != "" {
				why = ": " + s.Error
			}
			o.complain("list %s has not been fetched yet%s", s.Name, why)
		}
	}
	return any
}

// urlListed is the state of an own list by URL, in JSON.
type urlListed struct {
	OwnList  string `json:"own_list"`
	Entries  int    `json:"entries"` // a name counts once for each line that has it
	Changed  string `json:"changed"`
	Updated  string `json:"updated"` // fetched, or found unchanged
	Next     string `json:"not_before"`
	Failures int    `json:"failures"`
	Reason   text   `json:"reason"` // of failures
	LeftOut  text   `json:"left_out"`
}

// fetched prints lists by URL.
func (o *console) fetched(own []urlList) {
	if len(own) == 0 {
		return
	}
	var table strings.Builder
	w := tabwriter.NewWriter(&table, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "OWN LIST\tENTRIES\tCHANGED\tUPDATED\tNOT BEFORE\tFAILURES")
	for _, s := range own {
		l := urlListed{s.Name, s.Entries, say.Stamp(s.Changed), say.Stamp(s.Checked), say.Stamp(s.Next), s.Failures, text(s.Error), text(s.leftOut)}
		if o.json {
			o.object(l)
		}
		fmt.Fprintf(w, "%s\t%d\t%s\t%s\t%s\t%d\n", say.Shown(l.OwnList), l.Entries, shownTime(l.Changed), shownTime(l.Updated), shownTime(l.Next), l.Failures)
	}
	if o.json {
		return
	}
	w.Flush()
	o.printf("%s", table.String())
	for _, s := range own {
		if s.leftOut != "" {
			o.printf("%s: %s\n", say.Shown(s.Name), say.Shown(s.leftOut))
		}
		if s.Failing() {
			o.printf("%s: not updated since %s: %s\n", say.Shown(s.Name), say.Time(s.Since), say.Shown(s.Error))
		}
	}
}
