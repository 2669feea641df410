package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/coredns/caddy/caddyfile"
)

// view holds the view plugin of a server block: the block answers only clients for which all
// expressions are true. With the zero view it answers all clients.
type view struct {
	name        string
	expressions []string
}

// viewOf returns the view in the tokens of the view plugin. Without tokens it is zero.
func viewOf(tokens []caddyfile.Token) (v view) {
	if len(tokens) < 2 {
		return view{}
	}
	v.name = tokens[1].Text
	line := 0
	for i := 2; i < len(tokens); i++ {
		switch t := tokens[i]; {
		case t.Text == "expr" && t.Line != tokens[i-1].Line:
			v.expressions, line = append(v.expressions, ""), t.Line
		case t.Line == line && line > 0:
			last := &v.expressions[len(v.expressions)-1]
			*last = strings.TrimSpace(*last + " " + t.Text)
		}
	}
	return v
}

// String returns the name and the condition.
func (v view) String() string {
	if len(v.expressions) == 0 {
		return v.name
	}
	return v.name + ", if " + strings.Join(v.expressions, " and ")
}

// seenFrom returns the blocks that may answer a client in a view, or in no view if name is
// "". CoreDNS uses the first block of a zone that has no view or whose view is true.
func seenFrom(blocks []serverBlock, name string) (all []serverBlock) {
	for _, b := range blocks {
		if b.view.name == "" || b.view.name == name {
			all = append(all, b)
		}
	}
	return all
}

// viewsOf returns the names of all views without duplicates.
func viewsOf(blocks []serverBlock) (names []string) {
	for _, b := range blocks {
		if b.view.name != "" && !slices.Contains(names, b.view.name) {
			names = append(names, b.view.name)
		}
	}
	return names
}

// chosen returns the block with the plugin that answers a client in the view named, or nil.
// If named is "", it returns the block for clients in no view; if that does not have the
// plugin, it returns the block of the first view that does. others are the views whose
// clients get the answer of another block.
func chosen(blocks []serverBlock, named, qname string) (b *serverBlock, others []string) {
	b = answering(seenFrom(blocks, named), qname)
	views := viewsOf(blocks)
	for _, name := range views {
		if b != nil || named != "" {
			break
		}
		b = answering(seenFrom(blocks, name), qname)
	}
	for _, name := range views {
		if other := answering(seenFrom(blocks, name), qname); b != nil && (other == nil || other.number != b.number) {
			others = append(others, name)
		}
	}
	return b, others
}

// checkView returns an error if no server block has the view.
func checkView(blocks []serverBlock, name string) error {
	views := viewsOf(blocks)
	switch {
	case slices.Contains(views, name):
		return nil
	case len(views) == 0:
		return fmt.Errorf("-view %s: the Corefile has no views", name)
	}
	return fmt.Errorf("-view %s: the Corefile has no such view, only %s", name, strings.Join(views, ", "))
}
