package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/coredns-safebrowsing/safebrowsing/internal/ownlist"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

// finding is what check found out about one argument.
type finding struct {
	lookup.Decision        // Err is also why the argument is no name
	input           string // as it was given
	path            string // of a URL, which DNS does not see; "" if it has none
	line            string // of the operator's own list, "file:line: text"; or ""
	note            string // beside the decision
	zones           string // of the server block that answers, if there are several
}

// check decides on one argument.
func (k *checker) check(ctx context.Context, arg string) finding {
	f := finding{input: arg}
	u, err := lookup.ParseURL(arg)
	if err != nil {
		f.Err = err
		return f
	}
	h := u.Host()
	_, rest, _ := strings.Cut(u.String(), "://")
	if path := strings.TrimPrefix(rest, h.String()); path != "/" {
		f.path = path
	}
	b := answering(k.blocks, h.String()+".")
	if b == nil {
		f.note = "not checked: the server block that answers for it does not have safebrowsing"
		return f
	}
	if len(k.blocks) > 1 {
		f.zones = strings.Join(b.Zones(), " ")
	}
	suspected := false
	f.Decision, suspected = b.Check(h)
	if suspected && k.confirm {
		ctx, cancel := context.WithTimeout(ctx, confirmTimeout)
		defer cancel()
		f.Decision = b.Confirm(ctx, h)
	}
	f.line = lineOf(b, f.Decision, h)
	f.note = noteOf(b, f.Decision, h, suspected && !k.confirm)
	return f
}

// lineOf returns the line of the operator's that decided.
func lineOf(b *serverBlock, d lookup.Decision, h lookup.Host) string {
	if d.By != lookup.ByBlock && d.By != lookup.ByAllow && d.By != lookup.ByTest {
		return ""
	}
	if d.By != lookup.ByTest {
		if line, text, ok, err := ownlist.FindLine(b.OwnList(d.List), h); ok && err == nil {
			return fmt.Sprintf("%s:%d: %s", d.List, line, text)
		}
	}
	if file, line, text, ok := b.stanzaLine(h); ok {
		return fmt.Sprintf("%s:%d: %s", file, line, text)
	}
	return ""
}

// noteOf returns what the decision does not say.
func noteOf(b *serverBlock, d lookup.Decision, h lookup.Host, suspected bool) string {
	switch {
	case suspected:
		return "a query would have it confirmed by the server; -confirm does so now"
	case d.Verdict != lookup.Safe || d.By != lookup.ByNobody:
		return ""
	case !b.Checks(h):
		return "not checked: it is in no zone of the plugin, or in one of its exceptions"
	case !h.Public():
		return "never looked up in Safe Browsing's lists: the name is not public"
	case b.Endpoint() == "":
		return "only your own lists are in force"
	}
	return "no lists are in force"
}

// checked is a finding in JSON.
type checked struct {
	Input      text   `json:"input"`
	Verdict    string `json:"verdict"`
	Threat     string `json:"threat"`
	List       text   `json:"list"`
	Expression text   `json:"expression"`
	DecidedBy  string `json:"decided_by"`
	Error      text   `json:"error"`
}

// object returns the finding for JSON. What is no name has no verdict.
func (f finding) object() checked {
	c := checked{Input: text(f.input), List: text(f.List), Expression: text(f.Expression), Threat: f.Threat.String()}
	if f.Err != nil {
		c.Error = text(f.Err.Error())
	}
	if !f.unreadable() {
		c.Verdict, c.DecidedBy = f.Verdict.String(), f.By.String()
	}
	return c
}

// unreadable reports whether the argument is no name: nobody decides with an
// error.
func (f finding) unreadable() bool { return f.Err != nil && f.By == lookup.ByNobody }

// finding prints a finding as text.
func (o *console) finding(f finding) {
	add := func(word, value string) {
		if value != "" {
			o.printf("    %-11s %s\n", word, shown(value))
		}
	}
	if f.unreadable() {
		o.printf("%s: no name and no URL\n", shown(f.input))
		add("error", f.Err.Error())
		return
	}
	o.printf("%s: %s\n", shown(f.input), f.Verdict)
	add("threat", f.Threat.String())
	add("expression", f.Expression)
	add("list", f.List)
	add("line", f.line)
	if f.By != lookup.ByNobody {
		add("decided by", f.By.String())
	}
	if f.Err != nil {
		add("error", f.Err.Error())
	}
	add("zones", f.zones)
	if f.path != "" {
		add("note", "checked by its host: DNS does not see "+f.path)
	}
	add("note", f.note)
}
