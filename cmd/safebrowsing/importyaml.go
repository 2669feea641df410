package main

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// document reads a configuration in YAML. Nothing is expanded: nodes know their lines.
func document(raw []byte) (*yaml.Node, error) {
	var n yaml.Node
	if err := yaml.Unmarshal(raw, &n); err != nil {
		return nil, err
	}
	if len(n.Content) == 0 || resolved(n.Content[0]).Kind != yaml.MappingNode {
		return nil, errors.New("this is no configuration")
	}
	return resolved(n.Content[0]), nil
}

// resolved follows an alias. It never returns nil.
func resolved(n *yaml.Node) *yaml.Node {
	if n != nil && n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	if n == nil {
		return &yaml.Node{}
	}
	return n
}

// nodeAt returns a node by its path of keys. A node that is not there has no kind.
func nodeAt(n *yaml.Node, keys ...string) *yaml.Node {
	for _, key := range keys {
		found := &yaml.Node{}
		for k, v := range pairs(n) {
			if k.Value == key {
				found = v
			}
		}
		n = found
	}
	return n
}

// pairs yields keys and values of a mapping.
func pairs(n *yaml.Node) func(yield func(k, v *yaml.Node) bool) {
	return func(yield func(k, v *yaml.Node) bool) {
		for i := 0; n.Kind == yaml.MappingNode && i+1 < len(n.Content); i += 2 {
			if !yield(n.Content[i], resolved(n.Content[i+1])) {
				return
			}
		}
	}
}

// items returns the nodes of a list, or a scalar as the only one.
func items(n *yaml.Node) (all []*yaml.Node) {
	switch {
	case n.Kind == yaml.SequenceNode:
		for _, x := range n.Content {
			all = append(all, resolved(x))
		}
	case n.Kind == yaml.ScalarNode && n.Value != "" && n.Tag != "!!null":
		all = []*yaml.Node{n}
	}
	return all
}

// isOn reports whether a node is true.
func isOn(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && strings.EqualFold(n.Value, "true") }

// leaveAll leaves out each key of a mapping, each entry of a list, or a value.
func (m *imported) leaveAll(n *yaml.Node, what, of string) {
	for k, v := range pairs(n) {
		m.leave(k.Line, what, strings.TrimSpace(of+" "+k.Value+" "+v.Value), "")
	}
	for _, x := range items(n) {
		name := x.Value
		for _, key := range []string{"name", "domain"} {
			if v := nodeAt(x, key); v.Value != "" {
				name = strings.TrimSpace(v.Value + " " + nodeAt(x, "answer").Value)
				break
			}
		}
		m.leave(x.Line, what, strings.TrimSpace(of+" "+name), "")
	}
}

// listens takes addresses to listen on, and a port. Unspecified addresses bind nothing.
func (m *imported) listens(line int, address, port string) {
	switch n, err := strconv.ParseUint(port, 10, 16); {
	case port == "":
	case err != nil || n == 0:
		m.leave(line, "port", port, "")
	case m.port != 0 && m.port != int(n):
		m.leave(line, "port", port, fmt.Sprintf("it listens on port %d only", m.port))
	default:
		m.port = int(n)
	}
	if address == "" {
		return
	}
	ip, err := netip.ParseAddr(address)
	switch {
	case err != nil || ip.Zone() != "":
		m.leave(line, "address to listen on", address, "")
	case ip.IsUnspecified():
		m.all = true
	case !slices.Contains(m.bind, ip.String()):
		m.bind = append(m.bind, ip.String())
	}
}
