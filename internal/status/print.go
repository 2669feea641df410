package status

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/say"
)

// Printer prints for people. It keeps the first error of writing, after which it prints nothing.
// Text of others is made safe for a terminal.
type Printer struct {
	W      io.Writer
	Colour bool   // W is a terminal
	Tool   string // the command that people write before a word, such as safebrowsing
	Err    error
}

// The colours of a terminal (ECMA-48, SGR).
const (
	red    = "31;1"
	green  = "32;1"
	yellow = "33;1"
	plain  = ""
)

// Line prints a line.
func (p *Printer) Line(format string, args ...any) { p.line(plain, format, args...) }

func (p *Printer) line(colour, format string, args ...any) {
	if p.Err != nil {
		return
	}
	text := say.Shown(fmt.Sprintf(format, args...))
	if p.Colour && colour != plain {
		text = "\x1b[" + colour + "m" + text + "\x1b[0m"
	}
	_, p.Err = io.WriteString(p.W, text+"\n")
}

// mostShort is the most names of a kind that Short prints.
const mostShort = 3

// Short prints what matters in a few lines: the state, the lists, the day, the last names.
func (p *Printer) Short(r *Report) { p.summary(r, mostShort) }

// summary is Short with at most late names that were listed too late.
func (p *Printer) summary(r *Report, late int) {
	p.headline(r)
	for _, c := range r.Causes {
		p.line(plain, "  %s", c)
	}
	p.line(plain, "  Lists    %s", r.ListsInWords())
	p.line(plain, "  Today    %s", r.TodayInWords())
	if len(r.Services) > 0 {
		p.line(plain, "  Threats  %s", r.Today.InWords())
	}
	for _, l := range r.Late[:min(len(r.Late), late)] {
		p.line(yellow, "  Late     %s", l)
	}
	if r.Devices.Left > 0 {
		p.line(yellow, "  Devices  %s", r.Devices.InWords())
		p.devices(r, func(d Device) bool { return d.Left })
	}
	for _, b := range r.Names[:min(len(r.Names), mostShort)] {
		p.line(plain, "  Blocked  %s (%s), %s ago", b.Name, b.by(), say.Age(r.At.Sub(b.Last)))
		if allow := Allowing(p.Tool, "1h", b.Name); allow != "" {
			p.line(plain, "           why: %s why %s", p.Tool, b.Name)
			p.line(plain, "           let it pass: %s", allow)
		}
	}
}

func (p *Printer) headline(r *Report) {
	since := ""
	if !r.Since.IsZero() {
		since = ", since " + say.Time(r.Since)
	}
	p.line([...]string{Protected: green, InPart: yellow, OwnLists: yellow, NotProtected: red}[r.State], "%s%s", r.Headline, since)
}

// devices prints some of the devices that ask for other resolvers.
func (p *Printer) devices(r *Report, which func(Device) bool) {
	for _, d := range r.Devices.Told {
		if which(d) {
			p.line(plain, "           %s", d)
		}
	}
}

// ListsInWords returns what the lists hold, such as "6,812,345 phishing, 98,765 malware".
func (r *Report) ListsInWords() string {
	var parts []string
	oldest := r.At
	for _, s := range r.Services {
		for _, l := range s.Lists {
			switch {
			case l.Missing():
				parts = append(parts, "no "+l.Title)
			default:
				parts = append(parts, say.Number(l.Entries)+" "+l.Title)
				if !l.Updated.IsZero() && l.Updated.Before(oldest) {
					oldest = l.Updated
				}
			}
		}
	}
	text := strings.Join(parts, ", ")
	if oldest.Before(r.At) {
		text += fmt.Sprintf(" (fetched %s ago)", say.Age(r.At.Sub(oldest)))
	}
	own := ""
	if n := r.ownNames(); n > 0 {
		own = say.Number(n) + " on your own lists"
	}
	switch {
	case text == "" && own == "":
		return "none"
	case text == "" || own == "":
		return text + own
	}
	return text + "; " + own
}

// ownNames returns how many names lists of the operator block. A list of several server blocks counts
// once.
func (r *Report) ownNames() (n int) {
	seen := make(map[string]bool)
	for _, b := range r.Blocks {
		for _, own := range b.Own {
			if !own.Allow && !seen[own.Name] {
				seen[own.Name] = true
				n += own.Entries
			}
		}
	}
	return n
}

// TodayInWords returns the counts of the day.
func (r *Report) TodayInWords() string {
	text := fmt.Sprintf("%s of %s names blocked", say.Number(r.Today.Blocked), say.Number(r.Today.Checked))
	if len(r.Names) > 0 {
		text += fmt.Sprintf(", the last %s ago", say.Age(r.At.Sub(r.Names[0].Last)))
	}
	for i := range r.Services {
		s := &r.Services[i]
		if s.Budget > 0 {
			text += fmt.Sprintf("; searches left today: at least %d of %d", s.Left, s.Budget)
		}
		if cost := s.Cost(); cost != "" {
			text += "; " + strings.ToLower(cost[:1]) + cost[1:]
		}
	}
	return text
}

// InWords returns the counts in words.
func (t Threats) InWords() string {
	return fmt.Sprintf("%s confirmed in time; %s passed because %s could not be confirmed; %s blocked on the second query",
		say.Number(t.InTime), say.Number(t.Unconfirmed), say.Plural(t.Unconfirmed, "it", "they"), say.Number(t.Second))
}

// Long prints all of a report.
func (p *Printer) Long(r *Report) {
	p.summary(r, len(r.Late)) // the log leads here for names beyond its own lines
	if r.Devices.Also > 0 {
		if r.Devices.Left == 0 {
			p.line(plain, "  Devices  %s", r.Devices.InWords())
		}
		p.devices(r, func(d Device) bool { return !d.Left })
	}
	for _, note := range r.Notes {
		p.line(plain, "  Note     %s", note)
	}
	p.Lists(r)
	for _, notice := range r.Notices {
		p.gap()
		p.line(plain, "%s", notice.Text)
		p.line(plain, "%s", NoGuarantee)
	}
}

// Lists prints the lists only.
func (p *Printer) Lists(r *Report) {
	for i := range r.Services {
		p.service(&r.Services[i], r.At)
	}
	p.own(r)
}

func (p *Printer) service(s *Service, now time.Time) {
	p.gap()
	p.line(plain, "%s, mode %s, %s, db %s", s.Title, s.Mode, s.Address, cmp.Or(s.Folder, "off"))
	var table strings.Builder
	w := tabwriter.NewWriter(&table, 0, 0, 2, ' ', 0)
	for _, l := range s.Lists {
		held, age := say.Count(l.Entries, "entry", "entries"), "of unknown age"
		switch {
		case l.Missing():
			held, age = "not in force", ""
		case !l.Updated.IsZero():
			age = "fetched " + say.Age(now.Sub(l.Updated)) + " ago"
		}
		next := "next fetch is due"
		if l.NotBefore.After(now) {
			next = "next fetch in " + say.Age(l.NotBefore.Sub(now))
		}
		fmt.Fprintf(w, "  %s\t%s\t%s\t%s\t%s\n", l.Name, l.Title, held, age, next)
	}
	w.Flush()
	for line := range strings.Lines(table.String()) {
		p.line(plain, "%s", strings.TrimRight(line, "\n "))
	}
	if s.Fetch.Active(now) {
		p.line(plain, "  no list is fetched before %s: %s", say.Time(s.Fetch.Until), s.Fetch.Why)
	}
}

// gap prints an empty line.
func (p *Printer) gap() { p.line(plain, "") }

func (p *Printer) own(r *Report) {
	for _, b := range r.Blocks {
		for _, o := range b.Own {
			age := ""
			if !o.Updated.IsZero() {
				age = ", changed " + say.Age(r.At.Sub(o.Updated)) + " ago"
			}
			p.gap()
			p.line(plain, "%s %s %s%s, for the zones %s", o.Name, o.does(), say.Count(o.Entries, "entry", "entries"), age, b.Zones)
			if o.Trouble != "" {
				p.line(yellow, "  cannot be used: %s", o.Trouble)
			}
			if o.Nothing != "" {
				p.line(yellow, "  %s nothing: it %s", o.does(), o.Nothing)
			}
		}
	}
}

// Blocked prints the last names that were blocked.
func (p *Printer) Blocked(names []Blocked, now time.Time) {
	if len(names) == 0 {
		p.line(plain, "No name was blocked in the last hour.")
	}
	for _, b := range names {
		p.line(plain, "%s: %s", b.Name, b.Since(now))
	}
}

// Why prints what is said about a name.
func (p *Printer) Why(w *Why) {
	colour := map[string]string{VerdictBlocked: red, VerdictSuspected: yellow, VerdictUnknown: yellow}
	for _, a := range w.Answers {
		zones := ""
		if len(w.Answers) > 1 {
			zones = " (in the server block for " + a.Where() + ")"
		}
		p.line(colour[a.Verdict], "%s%s", a.Text, zones)
		if a.Warning.Text != "" {
			p.line(plain, "  %s", a.Warning.Text)
		}
		for _, reason := range a.Reasons(w.At) {
			p.line(plain, "  %s", reason)
		}
	}
	if w.Last != nil {
		p.line(plain, "  It was %s", w.Last.Since(w.At))
	}
	if w.Asked != nil {
		p.line(plain, "  %s", w.Asked)
	}
	if w.Allow != "" {
		p.line(plain, "  Let it pass for an hour:  %s", Allowing(p.Tool, "1h", w.Name))
	}
	if w.Report != "" {
		p.line(plain, "  A mistake? Report it:     %s", w.Report)
	}
}

// Allowing returns the command that lets a name pass for a while. A shell must not take what a client
// has put into the name for commands: then there is no command to copy, and it is "".
func Allowing(tool, length, name string) string {
	const harmless = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_."
	if name == "" || strings.Trim(name, harmless) != "" || strings.HasPrefix(name, "-") {
		return ""
	}
	return tool + " allow -for " + length + " " + name
}
