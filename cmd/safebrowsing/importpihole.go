package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/pelletier/go-toml/v2/unstable"

	"github.com/coredns-safebrowsing/safebrowsing/internal/say"
)

// The commands that print the tables of Pi-hole, with the groups of each row, of version 5 or 6.
const (
	adlistCommand     = `sudo pihole-FTL sqlite3 -header -csv /etc/pihole/gravity.db "select a.*, group_concat(group_id, ' ') as group_ids from adlist a left join adlist_by_group on adlist_id = a.id group by a.id" > adlist.csv`
	domainlistCommand = `sudo pihole-FTL sqlite3 -header -csv /etc/pihole/gravity.db "select d.*, group_concat(group_id, ' ') as group_ids from domainlist d left join domainlist_by_group on domainlist_id = d.id group by d.id" > domainlist.csv`
)

// gravityRow is one of a table of Pi-hole.
type gravityRow map[string]string

// isTable reports whether a text begins as a table that sqlite3 prints as CSV.
func isTable(text string) bool {
	head, _, _ := strings.Cut(text, "\n")
	columns := strings.Split(strings.TrimSpace(head), ",")
	return slices.Contains(columns, "address") || slices.Contains(columns, "domain")
}

// isEmptyTable reports whether a file comes from a table without rows: sqlite3 prints no names of columns then.
func isEmptyTable(path string, raw []byte) bool {
	return filepath.Ext(path) == ".csv" && len(bytes.TrimSpace(raw)) == 0
}

// pihole reads a table as CSV or JSON, a backup or setupVars.conf of Pi-hole 5, or pihole.toml of Pi-hole 6.
func (m *imported) pihole(raw []byte) error {
	switch {
	case isEmptyTable(m.file, raw):
		m.leave(0, "empty table", "", "")
		return nil
	case bytes.HasPrefix(raw, []byte("\x1f\x8b")):
		return m.teleporter(raw)
	case isPiholeTOML(string(raw)):
		return tomlValues(raw, m.piholeSetting)
	case bytes.HasPrefix(raw, []byte("[")):
		return m.piholeJSON(path.Base(m.file), raw)
	case isTable(string(raw)):
		return m.piholeCSV(raw)
	}
	return m.setupVars(raw)
}

func (m *imported) piholeCSV(raw []byte) error {
	r := csv.NewReader(bytes.NewReader(raw))
	columns, err := r.Read()
	for err == nil {
		var cells []string
		if cells, err = r.Read(); err != nil {
			break
		}
		line, _ := r.FieldPos(0)
		x := gravityRow{}
		for i, name := range columns {
			x[name] = cells[i]
		}
		m.piholeRow(line, x)
	}
	if !errors.Is(err, io.EOF) {
		return fmt.Errorf("this is not what sqlite3 -csv prints: %w", err)
	}
	return nil
}

// teleporter reads a backup of Pi-hole 5: a tar.gz with the tables as JSON.
func (m *imported) teleporter(raw []byte) error {
	unzipped, err := gzip.NewReader(bytes.NewReader(raw))
	if err != nil {
		return err
	}
	outside := m.file
	defer func() { m.file = outside }()
	r := &io.LimitedReader{R: unzipped, N: maxImport}
	archive := tar.NewReader(r)
	known := 0
	for {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		var content []byte
		if err == nil {
			content, err = io.ReadAll(archive)
		}
		switch {
		case err != nil && r.N <= 0:
			return fmt.Errorf("it unpacks to more than %s: this is no backup of Pi-hole", say.Size(maxImport))
		case err != nil:
			return fmt.Errorf("this is no backup of Pi-hole: %w", err)
		}
		name := path.Base(header.Name)
		m.file = outside + "/" + name
		switch {
		case strings.HasSuffix(name, ".json"):
			err = m.piholeJSON(name, content)
		case name == "setupVars.conf":
			err = m.setupVars(content)
		case name == "custom.list", name == "05-pihole-custom-cname.conf":
			m.eachLeft(content, "rewrite")
		default:
			continue
		}
		if err != nil {
			return fmt.Errorf("%s in it: %w", name, err)
		}
		known++
	}
	if known == 0 {
		return errors.New("there is no table of Pi-hole in it")
	}
	return nil
}

// eachLeft leaves out all lines of a file.
func (m *imported) eachLeft(raw []byte, what string) {
	for i, line := range strings.Split(string(raw), "\n") {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			m.leave(i+1, what, line, "")
		}
	}
}

// piholeJSON reads a table of a backup. Its name says which one.
func (m *imported) piholeJSON(name string, raw []byte) error {
	var all []map[string]any
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	if err := d.Decode(&all); err != nil {
		return fmt.Errorf("this is no table of Pi-hole: %w", err)
	}
	for i, cells := range all {
		x := gravityRow{}
		for column, v := range cells {
			switch v := v.(type) {
			case nil:
			case bool:
				x[column] = map[bool]string{true: "1", false: "0"}[v]
			default:
				x[column] = fmt.Sprint(v)
			}
		}
		switch {
		case strings.HasSuffix(name, "_by_group.json"), name == "domain_audit.json":
			continue // groups are left out below
		case name == "client.json":
			m.leave(0, "client", x["ip"]+" "+x["comment"], "")
			continue
		case name == "group.json":
			if x["id"] != "0" {
				m.leave(0, "group of clients", x["name"], "its lists and names hold for all")
			}
			continue
		}
		if kind, ok := map[string]string{"whitelist.exact.json": "0", "blacklist.exact.json": "1", "whitelist.regex.json": "2", "blacklist.regex.json": "3"}[name]; ok {
			x["type"] = kind
		}
		m.piholeRow(i+1, x)
	}
	return nil
}

// piholeRow reads a row of the table adlist or domainlist.
func (m *imported) piholeRow(line int, x gravityRow) {
	it := x["address"] + x["domain"]
	groups, grouped := x["group_ids"]
	switch {
	case it == "":
		return
	case x["enabled"] == "0":
		m.leave(line, "switched off", it, "")
		return
	case grouped && !slices.Contains(strings.Fields(groups), "0"):
		m.leave(line, "group of clients", it, "it is in no group that all clients are in")
		return
	}
	if x["address"] != "" {
		m.list(line, x["type"] == "1", x["address"], "/")
		return
	}
	allow := x["type"] == "0" || x["type"] == "2"
	if x["type"] == "0" || x["type"] == "1" {
		m.host(line, allow, false, x["domain"])
	} else if domain := domainOfRegexp(x["domain"]); domain != "" {
		m.host(line, allow, true, domain)
	} else {
		m.leave(line, "regular expression", x["domain"], "")
	}
}

// treeRegexp is a regular expression that means a domain and all names below it, as Pi-hole's own
// "wildcard" writes it.
var treeRegexp = regexp.MustCompile(`^(?:\(\\\.\|\^\)|\(\^\|\\\.\))([A-Za-z0-9_-]+(?:\\\.[A-Za-z0-9_-]+)*)\$$`)

func domainOfRegexp(expression string) string {
	found := treeRegexp.FindStringSubmatch(expression)
	if found == nil {
		return ""
	}
	return strings.ReplaceAll(found[1], `\.`, ".")
}

// setupVars reads the settings of Pi-hole 5.
func (m *imported) setupVars(raw []byte) error {
	found := false
	for i, line := range strings.Split(string(raw), "\n") {
		number, line := i+1, strings.TrimSpace(line)
		key, value, ok := strings.Cut(line, "=")
		switch line {
		case "BLOCKING_ENABLED=false":
			m.leave(number, "switched off", line, "here it blocks")
		case "DHCP_ACTIVE=true":
			m.leave(number, "DHCP", line, "")
		case "REV_SERVER=true", "CONDITIONAL_FORWARDING=true":
			m.leave(number, "upstream", line, "for some domains only: see forward of CoreDNS")
		default:
			if ok && strings.HasPrefix(key, "PIHOLE_DNS_") {
				m.upstream(number, value)
			}
		}
		found = found || ok
	}
	if !found {
		return errors.New("this is no file of Pi-hole that import knows: see safebrowsing import -h")
	}
	return nil
}

// isPiholeTOML reports whether a text has the first table of pihole.toml.
func isPiholeTOML(text string) bool {
	return strings.HasPrefix(text, "[dns]") || strings.Contains(text, "\n[dns]")
}

// piholeSetting reads a setting of Pi-hole 6, as pihole-FTL writes it.
func (m *imported) piholeSetting(key string, line int, text string) {
	switch key {
	case "dns.upstreams":
		m.upstream(line, text)
	case "dns.port":
		m.listens(line, "", text)
	case "dns.hosts", "dns.cnameRecords", "dns.hostRecord":
		if text != "" {
			m.leave(line, "rewrite", text, "")
		}
	case "dns.revServers":
		if strings.HasPrefix(text, "true,") {
			m.leave(line, "upstream", text, "for some domains only: see forward of CoreDNS")
		}
	case "dns.blocking.active":
		if text == "false" {
			m.leave(line, "switched off", key, "here it blocks")
		}
	case "dhcp.active":
		if text == "true" {
			m.leave(line, "DHCP", key, "")
		}
	case "misc.dnsmasq_lines":
		m.leave(line, "line of dnsmasq", text, "")
	}
}

// tomlValues calls back for each value of a file in TOML, and for each one in an array, in their order.
// key is with the names of its tables, such as "dns.upstreams".
func tomlValues(raw []byte, each func(key string, line int, text string)) error {
	var p unstable.Parser
	p.Reset(raw)
	named := func(parts unstable.Iterator) (key string, line int) {
		for parts.Next() {
			part := parts.Node()
			if key != "" {
				key += "."
			}
			key, line = key+string(part.Data), p.Shape(part.Raw).Start.Line
		}
		return key, line
	}
	table := ""
	for p.NextExpression() {
		e := p.Expression()
		key, line := named(e.Key())
		if e.Kind != unstable.KeyValue {
			table = key + "."
			continue
		}
		value := func(v *unstable.Node) {
			at := line // of a number or a boolean, which has no place of its own
			if v.Raw.Length > 0 {
				at = p.Shape(v.Raw).Start.Line
			}
			each(table+key, at, string(v.Data))
		}
		v := e.Value()
		if v.Kind != unstable.Array {
			value(v)
			continue
		}
		for all := v.Children(); all.Next(); {
			value(all.Node())
		}
	}
	err := p.Error()
	if wrong, ok := errors.AsType[*unstable.ParserError](err); ok {
		return fmt.Errorf("this is not what pihole-FTL writes: line %d: %w", p.Shape(p.Range(wrong.Highlight)).Start.Line, err)
	}
	return err
}
