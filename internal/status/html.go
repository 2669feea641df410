package status

import (
	_ "embed"
	"fmt"
	"io"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unicode"

	g "maragu.dev/gomponents"
	h "maragu.dev/gomponents/html"

	"github.com/coredns-safebrowsing/safebrowsing/internal/say"
)

//go:embed page.css
var pageCSS string

// Render writes the page. It is made of calls, and not by html/template: this looks for methods by name, so that the linker
// keeps those of all types, a seventh of the program for routers.
func (p page) Render(w io.Writer) error {
	return h.Doctype(h.HTML(h.Lang("en"),
		h.Head(h.Meta(h.Charset("utf-8")), h.Meta(h.Name("viewport"), h.Content("width=device-width, initial-scale=1")),
			h.TitleEl(text(p.Headline+" - safebrowsing")), h.StyleEl(g.Raw(pageCSS))),
		h.Body(
			h.Header(h.H1(text("safebrowsing on CoreDNS"))),
			h.Main(p.state(), p.today(), p.late(), p.lastHour(), p.devices(), p.ask(), g.Map(p.Services, p.service), p.blocks()),
			p.footer()),
	)).Render(w)
}

func (p page) state() g.Node {
	cause := func(c Cause) g.Node {
		until := ""
		if !c.Until.IsZero() {
			until = " Until " + clock(c.Until, p.At) + "."
		}
		if c.Cure != "" {
			until += " " + c.Cure + "."
		}
		return h.Li(text(c.Text + until))
	}
	return h.Section(h.Class("state "+p.State.String()), h.Aria("label", "State"),
		h.P(h.Class("headline"), text(p.Headline)),
		g.If(!p.Since.IsZero(), h.P(soft, text("Since "+clock(p.Since, p.At)))),
		g.If(len(p.Causes) > 0, h.Ul(g.Map(p.Causes, cause))),
		g.Map(p.Notes, func(note string) g.Node { return h.P(text(note)) }))
}

func (p page) today() g.Node {
	startedToday := p.Counted.Local().Format(time.DateOnly) == p.At.Local().Format(time.DateOnly)
	return g.Group{h.H2(text("Today")),
		h.P(h.Class("figure"), h.Strong(text(say.Number(p.Today.Blocked))), text(" of "+say.Number(p.Today.Checked)+" questions blocked"),
			g.If(startedToday, g.Group{text(" "), h.Span(soft, text("since "+clock(p.Counted, p.At)+", when CoreDNS started"))})),
		g.If(len(p.Services) > 0, h.P(text("Threats: "+p.Today.InWords()+"."))),
		chartOf(p.Today, p.At).node()}
}

// node draws the chart; nil: nothing.
func (c *chart) node() g.Node {
	if c == nil {
		return nil
	}
	number := func(f float64) string { return fmt.Sprint(f) }
	rect := func(class string, x, y, width, height float64) g.Node {
		return g.El("rect", h.Class(class), g.Attr("x", number(x)), g.Attr("y", number(y)), h.Width(number(width)), h.Height(number(height)))
	}
	return h.Figure(
		h.SVG(g.Attr("viewBox", "0 0 480 72"), g.Attr("preserveAspectRatio", "none"), h.Role("img"), h.Aria("label", c.Label),
			g.El("polyline", g.Attr("points", c.Line)),
			g.Map(c.Bars, func(b bar) g.Node {
				return g.El("g", h.TitleEl(text(b.Text)), rect("space", b.X, 0, hourWidth, barsTop+barsHeight),
					g.If(b.Height > 0, rect("bar", b.X, b.Y, hourWidth-3, b.Height)))
			})),
		h.Div(h.Class("hours"), h.Aria("hidden", "true"), g.Map(append(c.Hours, "now"), func(hour string) g.Node { return h.Span(text(hour)) })),
		h.FigCaption(h.Span(h.Class("asks"), text("Questions, at most "+say.Number(c.MostChecked)+" an hour")), text(" "),
			h.Span(h.Class("bars"), text("Blocked, at most "+say.Number(c.MostBlocked)+" an hour"))))
}

func (p page) late() g.Node {
	if len(p.Late) == 0 && !p.LooksBack {
		return nil
	}
	heading := h.H2(text("Listed too late"))
	if len(p.Late) == 0 {
		return g.Group{heading, h.P(text("Nothing in the last 24 hours."))}
	}
	return g.Group{heading, h.Ul(name, g.Map(p.Late, func(l Late) g.Node { return h.Li(text(graphic(l.String()))) })),
		h.P(soft, text("In the last 24 hours. Have a look at these devices: they may have given away a password."))}
}

func (p page) lastHour() g.Node {
	counts := make([]string, 0, len(p.Hour))
	for _, count := range p.Hour {
		counts = append(counts, listWords(count.List)+" "+say.Number(count.N)+"×")
	}
	all := g.Group{h.H2(text("Blocked in the last hour"))}
	if len(p.Hour) == 0 {
		all = append(all, h.P(text("Nothing.")))
	} else {
		all = append(all, h.P(text(strings.Join(counts, ", "))))
	}
	switch {
	case p.Named && len(p.Names) > 0:
		all = append(all, p.names(), h.P(soft, text("A name leads to why it is blocked. The command below it lets it pass for an hour.")))
	case !p.Named && len(p.Hour) > 0:
		all = append(all, h.P(soft, text("Names are not shown here: "), h.Code(text("sudo safebrowsing blocked")), text(" tells them, and "),
			h.Code(text("names")), text(" after "), h.Code(text("status")), text(" in the Corefile shows them on this page.")))
	}
	all = append(all, g.Map(p.Notices, func(w Words) g.Node { return h.P(soft, sentence(w)) }))
	return append(all, g.If(len(p.Notices) > 0, h.P(soft, text(NoGuarantee))))
}

func (p page) names() g.Node {
	clients := slices.ContainsFunc(p.Names, func(b Blocked) bool { return b.Client != "" })
	row := func(b Blocked) g.Node {
		return h.Tr(
			h.Th(h.Scope("row"),
				h.A(h.Href("/?host="+url.QueryEscape(b.Name)+"#ask"), h.Title("Why?"), text(graphic(b.Name))),
				g.If(b.Target != "", h.Span(soft, text(", an alias of "+graphic(b.Target)))),
				allow(b.Name, h.Br()),
				g.If(b.Report != "", g.Group{text(" "), h.A(soft, h.Href(safeURL(b.Report)), text("Report a mistake"))})),
			h.Td(text(listWords(b.List))),
			h.Td(number, text(say.Number(b.N)+"×"), g.If(b.Longer(p.At), g.Group{h.Br(), h.Span(soft, text("since "+clock(b.First, p.At)))})),
			h.Td(h.Class("age"), h.Title(clock(b.Last, p.At)), text(shortAge(p.At.Sub(b.Last))+" ago")),
			g.If(clients, h.Td(h.Class("client"), text(b.Client))))
	}
	return scroll("Blocked, by name", h.Table(h.Class("names"), h.Caption(text("The last names, at most 100")),
		h.THead(h.Tr(col("Name"), col("List"), col("Times", number), col("Last"), g.If(clients, col("Asked by")))),
		h.TBody(g.Map(p.Names, row))))
}

func (p page) devices() g.Node {
	if !p.Devices.Any() {
		return nil
	}
	return g.Group{h.H2(text("Devices that use other resolvers")),
		h.P(g.If(p.Devices.Left > 0, blocked), text(p.Devices.InWords()+".")),
		g.If(len(p.Devices.Told) > 0, h.Ul(name, g.Map(p.Devices.Told, func(d Device) g.Node { return h.Li(text(graphic(d.String()))) })))}
}

func (p page) ask() g.Node {
	all := g.Group{h.H2(h.ID("ask"), text("Is this host blocked, and why?")),
		h.Form(h.Method("get"), h.Action("/#ask"),
			h.Label(h.For("host"), text("Host or URL. Only what is known here is shown; no server is asked.")),
			h.Input(h.ID("host"), h.Name("host"), h.Value(p.Asked), h.MaxLength(fmt.Sprint(maxHost)), h.AutoComplete("off"),
				g.Attr("spellcheck", "false"), g.Attr("autocapitalize", "none"), h.Placeholder("www.example.com")),
			h.Button(h.Type("submit"), text("Look up"))),
		g.If(p.Invalid, h.P(blocked, text("This is not a host name.")))}
	if p.Why == nil {
		return all
	}
	for _, a := range p.Why.Answers {
		all = append(all, h.P(name, h.Span(g.If(a.Blocked(), blocked), text(a.Text)),
			g.If(len(p.Why.Answers) > 1, g.Group{text(" "), h.Span(soft, text("in the server block for "+a.Where()))})))
		reasons := g.Map(a.Reasons(p.At), func(reason string) g.Node { return h.Li(text(reason)) })
		if a.Warning.Text != "" {
			reasons = slices.Insert(reasons, 0, h.Li(sentence(a.Warning)))
		}
		all = append(all, g.If(len(reasons) > 0, h.Ul(name, reasons)))
	}
	if p.Named && p.Why.Last != nil {
		all = append(all, h.P(name, text("It was "+p.Why.Last.Since(p.At)+".")))
	}
	if p.Why.Allow != "" {
		all = append(all, h.P(allow(p.Why.Name, text("To let it pass for an hour: "))))
	}
	return append(all, g.If(p.Why.Report != "", h.P(text("A mistake? "), h.A(h.Href(safeURL(p.Why.Report)), text("Report it")), text("."))))
}

func (p page) service(s Service) g.Node {
	row := func(l List) g.Node {
		entries, updated, next := text(say.Number(l.Entries)), shortAge(p.At.Sub(l.Updated))+" ago", "due"
		if l.Missing() {
			entries = h.Span(blocked, text("none"))
		}
		switch {
		case l.Updated.IsZero() && l.Missing():
			updated = "never"
		case l.Updated.IsZero():
			updated = "unknown"
		}
		if l.NotBefore.After(p.At) {
			next = "in " + shortAge(l.NotBefore.Sub(p.At))
		}
		return h.Tr(h.Th(h.Scope("row"), text(listWords(l.Name)+" "), h.Span(h.Class("soft short"), text(l.Name))),
			h.Td(number, entries), h.Td(text(updated)), h.Td(text(next)))
	}
	table := h.Table(h.TBody(h.Tr(h.Td(text("No lists are kept: the server is asked about each name.")))))
	if len(s.Lists) > 0 {
		table = h.Table(h.THead(h.Tr(col("List"), col("Entries", number), col("Fetched"), col("Next"))), h.TBody(g.Map(s.Lists, row)))
	}
	about := "Mode " + s.Mode + ", from " + s.Address + "; "
	if cost := s.Cost(); cost != "" {
		about = cost + ". " + about
	}
	if s.Budget != 0 {
		about = "Searches left today: " + say.Number(s.Left) + " of " + say.Number(s.Budget) + ". " + about
	}
	if s.Folder != "" {
		about += "kept in " + s.Folder + "."
	} else {
		about += "in memory only."
	}
	costly := func(c Costly) g.Node {
		return h.Li(text(graphic(c.Name)+": "+say.Count(c.Searches, "search", "searches")+", "+c.Dollars()+" US-$"), allow(c.Name, h.Br()))
	}
	return g.Group{h.H2(text(s.Title)), scroll("Lists of "+s.Title, table), h.P(h.Class("soft name"), text(about)),
		g.If(len(s.Costly) > 0, g.Group{h.P(text("The names that cost most today. What is harmless, allow:")), h.Ul(name, g.Map(s.Costly, costly))})}
}

func (p page) blocks() g.Node {
	own := func(o OwnList) g.Node {
		return g.Group{text(filepath.Base(o.Name) + " " + o.does() + " " + say.Number(o.Entries) + " " + say.Plural(o.Entries, "entry", "entries")),
			g.If(!o.Updated.IsZero(), h.Span(soft, text(", changed "+shortAge(p.At.Sub(o.Updated))+" ago"))),
			g.If(o.Trouble != "", g.Group{text(" ("), h.Span(blocked, text("cannot be used")), text(")")}),
			g.If(o.Nothing != "", g.Group{text(" ("), h.Span(blocked, text("it "+o.Nothing)), text(")")}), h.Br()}
	}
	row := func(b Block) g.Node {
		zones, blocks, lists := b.Zones, "yes", g.Node(g.Map(b.Own, own))
		if zones == "." {
			zones = "all names"
		}
		switch {
		case b.Paused.After(p.At):
			blocks = "nothing: paused"
		case b.Monitor:
			blocks = "nothing: monitor"
		}
		if len(b.Own) == 0 {
			lists = text("none")
		}
		return h.Tr(h.Th(h.Scope("row"), text(zones)), h.Td(text(blocks)), h.Td(lists))
	}
	return g.Group{h.H2(text("Server blocks")),
		scroll("Server blocks", h.Table(h.THead(h.Tr(col("Zones"), col("Blocks"), col("Own lists"))), h.TBody(g.Map(p.Blocks, row))))}
}

func (p page) footer() g.Node {
	renews := g.Group{text("It renews itself each minute: "), h.A(h.Href("/?stay"), text("stop that"))}
	if p.Stays {
		renews = g.Group{h.A(h.Href("/"), text("Back to the page that renews itself each minute"))}
	}
	return h.Footer(text("safebrowsing "+p.Version+", "+clock(p.At, p.At)+". "), renews, text(". "), h.A(h.Href("/status.json"), text("JSON")))
}

// The classes of page.css that several elements have.
var soft, name, number, blocked = h.Class("soft"), h.Class("name"), h.Class("number"), h.Class("blocked")

// text escapes what it shows.
func text(s string) g.Node { return g.Text(s) }

// scroll is around a table that may be wider than a telephone.
func scroll(label string, table g.Node) g.Node {
	return h.Div(h.Class("scroll"), h.TabIndex("0"), h.Role("region"), h.Aria("label", label), table)
}

func col(title string, class ...g.Node) g.Node {
	return h.Th(h.Scope("col"), g.Group(class), text(title))
}

// allow shows the command that lets a name pass for an hour, after what leads to it; nothing if there is none.
func allow(name string, before g.Node) g.Node {
	command := Allowing("sudo safebrowsing", "1h", name)
	if command == "" {
		return nil
	}
	return g.Group{before, h.Code(text(command))}
}

// sentence shows words, their URL as a link.
func sentence(w Words) g.Node {
	return g.Group{text(w.Before()), g.If(w.URL != "", h.A(h.Href(safeURL(w.URL)), text(w.URL)))}
}

// safeURL returns a URL of the web, and "#" for all else: a script would run in the page, and a server names some of them.
func safeURL(link string) string {
	if u, err := url.Parse(link); err != nil || u.Scheme != "https" && u.Scheme != "http" {
		return "#"
	}
	return link
}

// graphic returns a text with a replacement character for each control character, such as
// one that turns the direction of what follows, and for each byte that is no UTF-8: markup only
// is escaped, and the page may be read in a terminal.
func graphic(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsGraphic(r) {
			return r
		}
		return unicode.ReplacementChar
	}, text)
}
