package main

import (
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

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
// files has them judged.
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
		firm = !allow
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
	case bare != "":
		m.name(line, allow, firm, bare)
	}
}

// adguardLeft says what else is there.
func (m *imported) adguardLeft(root *yaml.Node) {
	for _, x := range []struct {
		what string
		keys []string
	}{
		{"rewrite", []string{"filtering", "rewrites"}},
		{"rewrite", []string{"dns", "rewrites"}},
		{"client", []string{"clients", "persistent"}},
		{"client", []string{"dns", "allowed_clients"}},
		{"client", []string{"dns", "disallowed_clients"}},
		{"blocked service", []string{"filtering", "blocked_services", "ids"}},
		{"blocked service", []string{"dns", "blocked_services", "ids"}},
		{"upstream", []string{"dns", "fallback_dns"}},
		{"upstream", []string{"dns", "upstream_dns_file"}},
		{"upstream", []string{"dns", "local_ptr_upstreams"}},
	} {
		m.leaveAll(nodeAt(root, x.keys...), x.what, "")
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
		for _, x := range []struct {
			what string
			keys []string
		}{
			{"safe search", []string{"safe_search", "enabled"}},
			{"safe search", []string{"safesearch_enabled"}},
			{"parental control", []string{"parental_enabled"}},
			{"AdGuard's safe browsing", []string{"safebrowsing_enabled"}},
		} {
			if n := nodeAt(in, x.keys...); isOn(n) {
				m.leave(n.Line, x.what, "", "")
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
}
