package main

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
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

// listens takes an address to listen on, and a port. It leaves out the address if another port is taken.
// Unspecified addresses bind nothing.
func (m *imported) listens(line int, address, port string) {
	switch n, err := strconv.ParseUint(port, 10, 16); {
	case port == "":
	case err != nil || n == 0:
		m.leave(line, "port", port, "")
	case m.port != 0 && m.port != int(n):
		m.leave(line, "port", port, fmt.Sprintf("it listens on port %d only", m.port))
		return
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

// adguardhome reads AdGuardHome.yaml, of the schema versions 12 to 34: where a section has moved, both
// places are looked at.
func (m *imported) adguardhome(raw []byte) error {
	root, err := document(raw)
	if err != nil {
		return err
	}
	m.filters(nodeAt(root, "filters"), false)
	m.filters(nodeAt(root, "whitelist_filters"), true)
	for _, rule := range items(nodeAt(root, "user_rules")) {
		m.adguardRule(rule.Line, rule.Value)
	}
	for _, u := range items(nodeAt(root, "dns", "upstream_dns")) {
		if value := strings.TrimSpace(u.Value); value != "" && !strings.HasPrefix(value, "#") {
			m.upstream(u.Line, value)
		}
	}
	port := nodeAt(root, "dns", "port")
	m.listens(port.Line, "", port.Value)
	for _, x := range append(items(nodeAt(root, "dns", "bind_hosts")), items(nodeAt(root, "dns", "bind_host"))...) {
		m.listens(x.Line, x.Value, "")
	}
	m.adguardLeft(root)
	return nil
}

// filters reads lists by URL or file.
func (m *imported) filters(lists *yaml.Node, allow bool) {
	for _, f := range items(lists) {
		address := nodeAt(f, "url")
		switch {
		case address.Value == "":
		case !isOn(nodeAt(f, "enabled")):
			m.leave(address.Line, "switched off", address.Value, nodeAt(f, "name").Value)
		default:
			m.list(address.Line, allow, address.Value, "/")
		}
	}
}

// adguardRule reads a rule of the operator's own. A rule may mean more than an own list can say:
// files judges them.
func (m *imported) adguardRule(line int, rule string) {
	rule = strings.TrimSpace(rule)
	if rule == "" || rule[0] == '!' || rule[0] == '#' {
		return
	}
	if strings.ContainsAny(rule, "\r\n") {
		m.leave(line, "not a name", rule, "")
		return
	}
	bare, allow := strings.CutPrefix(rule, "@@")
	body, options, _ := strings.Cut(bare, "$")
	if expression, ok := strings.CutPrefix(bare, "/"); ok {
		if domain := domainOfRegexp(strings.TrimSuffix(expression, "/")); domain != "" && strings.HasSuffix(bare, "/") {
			m.host(line, allow, true, domain)
		} else {
			m.leave(line, "regular expression", rule, "")
		}
		return
	}
	firm := false
	if slices.Contains(strings.Split(options, ","), "important") {
		firm = true
		m.leave(line, "important", rule, "it comes along as any other rule, without its rank")
		if options == "important" {
			bare = body
		}
	}
	switch {
	case options != "" && options != "important":
		m.leave(line, "modifier", rule, "")
	case allow && !strings.HasPrefix(bare, "|"): // matches anywhere in a name; in a file of allow it would be a domain
		m.leave(line, "pattern", rule, "")
	case strings.HasPrefix(bare, "."): // in an own list it would be the domain, too
		m.name(line, allow, firm, "*"+bare)
	case bare != "":
		for _, one := range hostsOf(bare) {
			m.name(line, allow, firm, one)
		}
	}
}

// hostsOf returns a line of a hosts file as one line for each of its names, and others as they are.
func hostsOf(line string) (all []string) {
	hosts, _, _ := strings.Cut(line, "#")
	words := strings.Fields(hosts)
	if len(words) > 1 {
		if _, err := netip.ParseAddr(words[0]); err == nil {
			for _, name := range words[1:] {
				all = append(all, words[0]+" "+name)
			}
			return all
		}
	}
	return []string{line}
}

// adguardLeft says what else is there.
func (m *imported) adguardLeft(root *yaml.Node) {
	for _, x := range [][2]string{
		{"rewrite", "filtering.rewrites"},
		{"rewrite", "dns.rewrites"},
		{"client", "clients.persistent"},
		{"client", "dns.allowed_clients"},
		{"client", "dns.disallowed_clients"},
		{"blocked service", "filtering.blocked_services.ids"},
		{"blocked service", "dns.blocked_services.ids"},
		{"upstream", "dns.fallback_dns"},
		{"upstream", "dns.upstream_dns_file"},
		{"upstream", "dns.local_ptr_upstreams"},
	} {
		m.leaveAll(nodeAt(root, strings.Split(x[1], ".")...), x[0], "")
	}
	if clients := nodeAt(root, "clients"); clients.Kind == yaml.SequenceNode { // before schema version 14
		m.leaveAll(clients, "client", "")
	}
	if services := nodeAt(root, "dns", "blocked_services"); services.Kind == yaml.SequenceNode {
		m.leaveAll(services, "blocked service", "")
	}
	for _, host := range items(nodeAt(root, "dns", "blocked_hosts")) {
		if !slices.Contains([]string{"version.bind", "id.server", "hostname.bind"}, host.Value) { // of CHAOS, by default
			m.adguardRule(host.Line, host.Value)
		}
	}
	for _, section := range []string{"filtering", "dns"} {
		in := nodeAt(root, section)
		for _, x := range [][2]string{
			{"safe search", "safe_search.enabled"},
			{"safe search", "safesearch_enabled"},
			{"parental control", "parental_enabled"},
			{"AdGuard's safe browsing", "safebrowsing_enabled"},
		} {
			if n := nodeAt(in, strings.Split(x[1], ".")...); isOn(n) {
				m.leave(n.Line, x[0], "", "")
			}
		}
		for _, word := range []string{"protection_enabled", "filtering_enabled"} {
			if n := nodeAt(in, word); strings.EqualFold(n.Value, "false") {
				m.leave(n.Line, "switched off", word, "here it blocks")
			}
		}
		for k := range pairs(nodeAt(in, "blocked_services", "schedule")) {
			if k.Value != "time_zone" {
				m.leave(k.Line, "schedule", k.Value, "")
			}
		}
		if mode := nodeAt(in, "blocking_mode"); mode.Value != "" && mode.Value != "nxdomain" {
			m.leave(mode.Line, "answer", "blocking_mode "+mode.Value, "a blocked name is NXDOMAIN here; see respond")
		}
	}
	if n := nodeAt(root, "dhcp", "enabled"); isOn(n) {
		m.leave(n.Line, "DHCP", "", "")
	}
	if n := nodeAt(root, "tls", "enabled"); isOn(n) {
		m.leave(n.Line, "encrypted DNS", "", "see tls of CoreDNS")
	}
}

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
	for _, x := range [][2]string{
		{"rewrite", "customDNS.mapping"},
		{"rewrite", "customDNS.rewrite"},
		{"rewrite", "conditional.rewrite"},
		{"upstream", "conditional.mapping"},
		{"client", "clientLookup.clients"},
		{"filter of types", "filtering.queryTypes"},
		{"schedule", "blocking.schedules"},
		{"rewrite", "hostsFile.sources"},
		{"rewrite", "hostsFile.filePath"},
		{"encrypted DNS", "ports.tls"},
		{"encrypted DNS", "ports.https"},
	} {
		m.leaveAll(nodeAt(root, strings.Split(x[1], ".")...), x[0], x[1])
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
