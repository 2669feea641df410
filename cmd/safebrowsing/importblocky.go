package main

import (
	"net"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// blocky reads config.yml, with the words of version 0.24 and later, or with earlier ones.
func (m *imported) blocky(raw []byte) error {
	root, err := document(raw)
	if err != nil {
		return err
	}
	blocking := nodeAt(root, "blocking")
	groups := m.groups(nodeAt(blocking, "clientGroupsBlock"))
	timed := nodeAt(blocking, "listSchedules")
	denied := make(map[string]bool)
	for _, word := range []string{"denylists", "blackLists"} {
		for k := range pairs(nodeAt(blocking, word)) {
			denied[k.Value] = true
		}
		m.sources(nodeAt(blocking, word), false, groups, timed)
	}
	for _, word := range []string{"allowlists", "whiteLists"} {
		for k := range pairs(nodeAt(blocking, word)) {
			if !denied[k.Value] && (groups == nil || slices.Contains(groups, k.Value)) {
				m.leave(k.Line, "allowed names only", k.Value, "blocky blocks all other names where a group has no denylists; here they pass")
			}
		}
		m.sources(nodeAt(blocking, word), true, groups, timed)
	}
	for _, all := range []*yaml.Node{nodeAt(root, "upstreams", "groups"), nodeAt(root, "upstream")} {
		for k, v := range pairs(all) {
			if k.Value != "default" {
				m.leave(k.Line, "client", "upstreams of "+k.Value, "")
				continue
			}
			for _, u := range items(v) {
				m.upstream(u.Line, u.Value)
			}
		}
	}
	for _, ports := range []*yaml.Node{nodeAt(root, "ports", "dns"), nodeAt(root, "port")} {
		for _, n := range items(ports) {
			for _, word := range strings.Split(n.Value, ",") {
				host, port, err := net.SplitHostPort(strings.TrimSpace(word))
				if err != nil {
					host, port = "", strings.TrimSpace(word)
				}
				m.listens(n.Line, host, port)
			}
		}
	}
	m.blockyLeft(root)
	return nil
}

// groups returns the groups that hold for all clients; nil: all groups.
func (m *imported) groups(all *yaml.Node) []string {
	if all.Kind != yaml.MappingNode {
		return nil
	}
	groups := []string{}
	for k, v := range pairs(all) {
		if k.Value != "default" {
			m.leave(k.Line, "client", "groups of "+k.Value, "")
			continue
		}
		for _, g := range items(v) {
			groups = append(groups, g.Value)
		}
	}
	return groups
}

// sources reads lists by URL, files, and names that are written there.
func (m *imported) sources(lists *yaml.Node, allow bool, groups []string, timed *yaml.Node) {
	for k, v := range pairs(lists) {
		if len(items(nodeAt(timed, k.Value))) > 0 {
			m.leave(k.Line, "schedule", "lists of the group "+k.Value, "it holds at some times only")
			continue
		}
		if groups != nil && !slices.Contains(groups, k.Value) {
			m.leave(k.Line, "client", "lists of the group "+k.Value, "it does not hold for all clients")
			continue
		}
		for _, source := range items(v) {
			switch {
			case source.Kind != yaml.ScalarNode:
				m.leave(source.Line, "list", k.Value, "not a source that import knows")
			case strings.ContainsAny(source.Value, "\n"):
				m.inline(source, allow)
			default:
				m.list(source.Line, allow, strings.TrimSpace(source.Value), filepath.Dir(m.file))
			}
		}
	}
}

// inline reads names in a literal block. Its text begins on the line after "|".
func (m *imported) inline(n *yaml.Node, allow bool) {
	line := n.Line
	if n.Style&yaml.LiteralStyle == 0 {
		line--
	}
	for entry := range strings.Lines(n.Value) {
		line++
		entry, _, _ = strings.Cut(entry, "#")
		words := strings.Fields(entry)
		switch {
		case len(words) == 0:
		case strings.HasPrefix(words[0], "/"):
			m.leave(line, "regular expression", entry, "")
		case len(words) == 1:
			bare := strings.TrimSuffix(strings.TrimPrefix(words[0], "||"), "^") // blocky takes both off
			domain, tree := strings.CutPrefix(bare, "*.")                       // the domain, too
			m.host(line, allow, tree, domain)
		default:
			if _, err := netip.ParseAddr(words[0]); err != nil {
				m.leave(line, "not a name", entry, "")
				continue
			}
			for _, name := range words[1:] {
				m.host(line, allow, false, name)
			}
		}
	}
}

// blockyLeft says what else is there.
func (m *imported) blockyLeft(root *yaml.Node) {
	for _, x := range []struct {
		what string
		keys []string
	}{
		{"rewrite", []string{"customDNS", "mapping"}},
		{"rewrite", []string{"customDNS", "rewrite"}},
		{"rewrite", []string{"conditional", "rewrite"}},
		{"upstream", []string{"conditional", "mapping"}},
		{"client", []string{"clientLookup", "clients"}},
		{"filter of types", []string{"filtering", "queryTypes"}},
		{"schedule", []string{"blocking", "schedules"}},
		{"rewrite", []string{"hostsFile", "sources"}},
		{"rewrite", []string{"hostsFile", "filePath"}},
	} {
		m.leaveAll(nodeAt(root, x.keys...), x.what, strings.Join(x.keys, "."))
	}
	if n := nodeAt(root, "rebindingProtection", "enable"); isOn(n) {
		m.leave(n.Line, "rebinding protection", "", "")
	}
	if zone := nodeAt(root, "customDNS", "zone"); zone.Value != "" {
		m.leave(zone.Line, "rewrite", "customDNS.zone", "")
	}
	if kind := nodeAt(root, "blocking", "blockType"); !strings.EqualFold(kind.Value, "nxDomain") && kind.Value != "" {
		m.leave(kind.Line, "answer", "blockType "+kind.Value, "a blocked name is NXDOMAIN here; see respond")
	}
}
