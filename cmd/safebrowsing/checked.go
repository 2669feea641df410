package main

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/block"
	"github.com/coredns-safebrowsing/safebrowsing/internal/ownlist"
	"github.com/coredns-safebrowsing/safebrowsing/internal/say"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

// finding is the result of check for one argument.
type finding struct {
	lookup.Decision              // Err is set too if the argument is not a name
	input           string       // the argument
	path            string       // path and query of a URL, which DNS does not see; "" if it is "/"
	warning         string       // of the service, with whose words it is; or ""
	line            string       // the line of an own list that decided, "file:line: text"; or ""
	note            string       // for the user; the decision does not say it
	block           *serverBlock // the block that answers; nil if the Corefile has only one
	others          []string     // views whose clients get the answer of another block
}

// check decides on one argument.
func (k *checker) check(ctx context.Context, arg string) finding {
	f := finding{input: arg}
	u, err := lookup.ParseURL(bracketed(arg))
	if err != nil {
		f.Err = err
		return f
	}
	h := u.Host()
	_, rest, _ := strings.Cut(u.String(), "://")
	if path := strings.TrimPrefix(rest, h.String()); path != "/" {
		f.path = path
	}
	b, others := chosen(k.blocks, k.view, h.String()+".")
	if b == nil {
		f.note = "not checked: the server block that answers for it does not have safebrowsing"
		return f
	}
	if len(k.blocks) > 1 {
		f.block, f.others = b, others
	}
	e := b.Explain(h, h.String()+".")
	if e.Suspected {
		e = k.confirmed(ctx, b, h, e)
	}
	f.Decision, f.note = e.Decision, e.Note
	f.warning = b.Reply().Warning(f.Decision)
	f.line = lineOf(b, f.Decision, h)
	return f
}

// confirmed returns what the server says about a suspected host, if it may be asked.
func (k *checker) confirmed(ctx context.Context, b *serverBlock, h lookup.Host, e block.Explained) block.Explained {
	switch refused := whyNoConfirm(b.Settings.Dialect()); {
	case k.confirm && refused != nil:
		e.Err, e.Note = refused, ""
	case k.confirm:
		ctx, cancel := context.WithTimeout(ctx, confirmTimeout)
		defer cancel()
		return b.Ask(ctx, h, h.String()+".")
	case refused == nil && !b.SearchHold().Active(time.Now()):
		e.Note += "; -confirm does so now"
	}
	return e
}

// bracketed returns an argument with the brackets of a URL if it is an IPv6 address.
func bracketed(arg string) string {
	if ip, err := netip.ParseAddr(arg); err == nil && ip.Is6() {
		return "[" + arg + "]"
	}
	return arg
}

// lineOf returns the line of an own list or of the Corefile that decided, or "".
func lineOf(b *serverBlock, d lookup.Decision, h lookup.Host) string {
	if d.By != lookup.ByBlock && d.By != lookup.ByAllow {
		return ""
	}
	if line, text, ok, err := ownlist.FindLine(b.OwnList(d.List), h); ok && err == nil {
		return fmt.Sprintf("%s:%d: %s", d.List, line, text)
	}
	if file, line, text, ok := b.stanzaLine(h); ok {
		return fmt.Sprintf("%s:%d: %s", file, line, text)
	}
	return ""
}

// checked is a finding in JSON. The fields from Block on are set if the Corefile has
// several server blocks.
type checked struct {
	Input      text   `json:"input"`
	Verdict    string `json:"verdict"`
	Threat     string `json:"threat"`
	Warning    string `json:"warning"`
	List       text   `json:"list"`
	Expression text   `json:"expression"`
	DecidedBy  string `json:"decided_by"`
	Error      text   `json:"error"`
	Line       text   `json:"line"`
	Path       text   `json:"path"`
	Note       text   `json:"note"`
	Block      int    `json:"block,omitempty"`
	Stanza     text   `json:"stanza,omitempty"`
	Zones      text   `json:"zones,omitempty"`
	View       text   `json:"view,omitempty"`
	OtherViews []text `json:"other_views,omitempty"`
}

// object returns the finding for JSON. An argument that is not a name has no verdict.
func (f finding) object() checked {
	c := checked{
		Input: text(f.input), List: text(f.List), Expression: text(f.Expression), Threat: f.Threat.String(), Warning: f.warning,
		Line: text(f.line), Path: text(f.path), Note: text(f.note),
	}
	if f.Err != nil {
		c.Error = text(f.Err.Error())
	}
	if !f.unreadable() {
		c.Verdict, c.DecidedBy = f.Verdict.String(), f.By.String()
	}
	if f.block != nil {
		c.Block, c.Stanza, c.Zones, c.View = f.block.number, text(f.block.stanza()), text(zonesOf(f.block)), text(f.block.view.name)
	}
	for _, name := range f.others {
		c.OtherViews = append(c.OtherViews, text(name))
	}
	return c
}

// unreadable reports whether the argument is not a name. Only such a finding has an error
// without a decider.
func (f finding) unreadable() bool { return f.Err != nil && f.By == lookup.ByNobody }

func zonesOf(b *serverBlock) string { return strings.Join(b.Config.Zones, " ") }

// finding prints a finding as text.
func (o *console) finding(f finding) {
	if f.unreadable() {
		o.printf("%s: not a name and not a URL\n", say.Shown(f.input))
		o.property("error", f.Err.Error())
		return
	}
	o.printf("%s: %s\n", say.Shown(f.input), f.Verdict)
	o.property("warning", f.warning)
	o.property("expression", f.Expression)
	o.property("list", f.List)
	o.property("line", f.line)
	if f.By != lookup.ByNobody && !block.Unlisted(f.Decision) { // "decided by list" would sound like a match
		o.property("decided by", f.By.String())
	}
	if f.Err != nil {
		o.property("error", f.Err.Error())
	}
	o.whoAnswers(f)
	if f.path != "" {
		o.property("note", "checked by its host: DNS does not see "+f.path)
	}
	o.property("note", f.note)
}

// whoAnswers prints which of several server blocks decided.
func (o *console) whoAnswers(f finding) {
	if f.block == nil {
		return
	}
	o.property("zones", zonesOf(f.block))
	o.property("block", fmt.Sprintf("%d, %s", f.block.number, f.block.stanza()))
	o.property("view", f.block.view.String())
	if n := len(f.others); n > 0 {
		o.property("note", fmt.Sprintf("clients in %s %s get the answer of another server block: choose with -view",
			say.Plural(n, "view", "views"), strings.Join(f.others, ", ")))
	}
}

// property prints a line of a finding, unless the value is "".
func (o *console) property(word, value string) {
	if value != "" {
		o.printf("    %-11s %s\n", word, say.Shown(value))
	}
}
