package main

import (
	_ "embed"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"text/template"

	"github.com/coredns-safebrowsing/safebrowsing/internal/say"
)

// findings are what coverage has found, in JSON.
type findings struct {
	Source   text   `json:"source"`
	At       string `json:"at"`
	Service  string `json:"service"`
	Endpoint string `json:"endpoint"`
	Zones    string `json:"zones"` // of the server block whose lists and budget were used
	Mode     string `json:"mode"`
	DryRun   bool   `json:"dry_run"` // nothing was confirmed, and searches is what it would take
	totals
	Prefixes  int    `json:"prefixes"` // that a list holds
	Searches  int    `json:"searches"`
	PerSearch int    `json:"per_search"`
	ByList    []row  `json:"by_list"`
	BySuffix  []row  `json:"by_suffix"`
	Hosting   []row  `json:"by_hosting"`
	ByDomain  []row  `json:"by_domain"`
	ByAge     []row  `json:"by_age"` // none if the feed has no times
	Stopped   text   `json:"stopped"`
	Until     string `json:"until"` // when the rest may be asked about
}

// maxRows is the most rows of a table in JSON.
const maxRows = 100

// found returns what is known before searches.
func (m *measuring) found(c *counter, prefixes int) *findings {
	return &findings{
		Source: text(m.source), At: say.Stamp(c.now), Service: m.about.Service, Endpoint: m.about.Address, Zones: m.about.Zones, Mode: m.about.Mode,
		Prefixes: prefixes, PerSearch: m.about.PerSearch,
	}
}

// counts takes over what was counted in a number of searches.
func (f *findings) counts(c *counter, searches int) {
	f.totals, f.Searches = c.total, searches
	hosting, suffixes := make(map[string]*tally), make(map[string]*tally)
	for name, t := range c.bySuffix {
		to := suffixes
		if c.hostings[name] {
			to = hosting
		}
		to[name] = t
	}
	f.ByList, f.BySuffix, f.Hosting, f.ByDomain = rowsOf(c.byList), rowsOf(suffixes), rowsOf(hosting), rowsOf(c.byDomain)
	f.ByAge = []row{}
	for i, t := range c.byAge {
		if c.timed > 0 {
			f.ByAge = append(f.ByAge, row{text(ages[i]), t})
		}
	}
}

// share returns a part of a number in percent.
func share(part, of int) string {
	if of == 0 {
		return "–"
	}
	return fmt.Sprintf("%.1f %%", 100*float64(part)/float64(of))
}

// print prints the findings for people.
func (f *findings) print(o *console) {
	for _, b := range f.BadLines {
		o.printf("line %d: %s\n", b.Line, say.Shown(string(b.Why)))
	}
	if more := f.Bad - len(f.BadLines); more > 0 {
		o.printf("and %s more\n", say.Count(more, "line", "lines"))
	}
	o.printf("%s, %s, at %s\n\n", say.Shown(string(f.Source)), f.Service, f.At)
	var table strings.Builder
	w := tabwriter.NewWriter(&table, 0, 0, 2, ' ', 0)
	line := func(name string, n int, note string) {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", name, say.Number(n), share(n, f.URLs), note)
	}
	line("URLs", f.URLs, fmt.Sprintf("without %s that came again, and %s that are none", say.Number(f.Duplicates), say.Count(f.Bad, "line", "lines")))
	line("Listed", f.Listed, "")
	line("  by host", f.ByHost, "DNS stops them")
	line("  by path only", f.ByPath, fmt.Sprintf("DNS cannot stop them; the host of %s is an IP address", say.Number(f.Addresses)))
	line("Not listed", f.NotListed, fmt.Sprintf("%s of them in private networks", say.Number(f.Private)))
	line("Unconfirmed", f.Unconfirmed, say.Shown(string(f.Stopped)))
	line("Own lists add", f.OwnAdds, "to what DNS stops")
	line("Own lists let pass", f.OwnAllows, "of what is listed by host")
	w.Flush()
	o.printf("%s\n", trimmed(table.String()))
	if f.DryRun {
		o.printf("It would take %s of at most %s. Nothing was sent.\n", say.Count(f.Searches, "search", "searches"), say.Count(f.PerSearch, "prefix", "prefixes"))
		return
	}
	if f.Listed > 0 {
		o.printf("Of what is listed, DNS stops %s.\n", share(f.ByHost, f.Listed))
	}
	o.printf("%s of at most %s, for %s that a list holds.\n", say.Count(f.Searches, "search", "searches"), say.Count(f.PerSearch, "prefix", "prefixes"), say.Count(f.Prefixes, "prefix", "prefixes"))
	if f.Unconfirmed > 0 {
		o.printf("Not all could be confirmed: %s. With -resume FILE a later run continues.\n", say.Shown(string(f.Stopped)))
	}
	f.rows(o, "By list", titled(f.ByList))
	f.rows(o, "By public suffix", f.BySuffix)
	f.rows(o, "By hosting name", f.Hosting)
	f.rows(o, "By domain", slices.DeleteFunc(slices.Clone(f.ByDomain), func(r row) bool { return r.URLs == 1 }))
	f.rows(o, "By age", f.ByAge)
}

// titled returns rows of lists with what they hold.
func titled(lists []row) (all []row) {
	for _, r := range lists {
		if title := say.TitleOf(string(r.Name)); title != string(r.Name) {
			r.Name += text(" (" + title + ")")
		}
		all = append(all, r)
	}
	return all
}

// maxPrinted is the most rows of a table for people.
const maxPrinted = 10

// rows prints the first rows of a table.
func (f *findings) rows(o *console, title string, all []row) {
	if len(all) == 0 {
		return
	}
	var table strings.Builder
	w := tabwriter.NewWriter(&table, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(w, "URLs\tby host\tby path\tnot listed\t  %s\n", title)
	for _, r := range all[:min(len(all), maxPrinted)] {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t  %s\n", say.Number(r.URLs), say.Number(r.ByHost), say.Number(r.ByPath), say.Number(r.NotListed), say.Shown(string(r.Name)))
	}
	w.Flush()
	o.printf("\n%s", table.String())
	if more := len(all) - maxPrinted; more > 0 {
		o.printf("and %s more\n", say.Number(more))
	}
}

// trimmed returns lines without the spaces at their ends.
func trimmed(table string) string {
	var b strings.Builder
	for line := range strings.Lines(table) {
		b.WriteString(strings.TrimRight(line, " \n") + "\n")
	}
	return b.String()
}

//go:embed coverage.svg
var coverageSVG string

// drawing is the picture of findings: a bar of all, and one for each of the groups with the most URLs.
type drawing struct {
	*findings
	Height int
	Bars   []drawnBar
}

// drawnBar is a bar of parts, from left to right.
type drawnBar struct {
	Name, Note string
	Y          int
	Parts      []drawnPart
}

type drawnPart struct {
	Class, Title string
	X, Width     float64
}

// The measures of the picture. A bar has barWidth at most.
const (
	barWidth  = 400.0
	barStep   = 26
	barsBegin = 78
	maxBars   = 8 // of each group
)

// draw writes the picture.
func (f *findings) draw(w io.Writer) error {
	d := drawing{findings: f}
	d.bar("all", f.tally)
	for _, group := range [][]row{titled(f.ByList), f.Hosting, f.BySuffix, f.ByAge} {
		for _, r := range group[:min(len(group), maxBars)] {
			if r.URLs > 0 {
				d.bar(say.Shown(string(r.Name)), r.tally)
			}
		}
	}
	d.Height = barsBegin + len(d.Bars)*barStep + 30
	funcs := template.FuncMap{"x": template.HTMLEscapeString, "share": share, "number": say.Number}
	t, err := template.New("svg").Funcs(funcs).Parse(coverageSVG)
	if err != nil {
		return err
	}
	return t.Execute(w, d)
}

// bar adds a bar.
func (d *drawing) bar(name string, t tally) {
	b := drawnBar{Name: name, Note: say.Number(t.URLs), Y: barsBegin + len(d.Bars)*barStep}
	x := 0.0
	for _, p := range []struct {
		class, what string
		n           int
	}{{"host", "listed by host", t.ByHost}, {"path", "listed by path only", t.ByPath}, {"open", "unconfirmed", t.Unconfirmed}, {"none", "not listed", t.NotListed}} {
		width := barWidth * float64(p.n) / float64(max(t.URLs, 1))
		if p.n > 0 {
			b.Parts = append(b.Parts, drawnPart{p.class, fmt.Sprintf("%s: %s, %s", p.what, say.Number(p.n), share(p.n, t.URLs)), x, width})
		}
		x += width
	}
	d.Bars = append(d.Bars, b)
}
