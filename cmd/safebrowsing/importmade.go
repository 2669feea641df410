package main

import (
	"cmp"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode"

	"github.com/coredns-safebrowsing/safebrowsing/internal/ownlist"
)

// imported is a configuration of another program in the words of this one.
type imported struct {
	from    string // one of peers
	file    string // that is read
	told    bool   // forward is the operator's
	forward []string
	asks    string // the file with upstreams
	bind    []string
	all     bool     // it listens on all addresses, whatever bind says
	port    int      // 0: 53
	serve   []string // networks besides the usual ones of a home
	lists   []importedList
	names   []importedName
	left    []leftOut
	unbound *unboundConf // of rpz; nil: there were only zone files
}

// importedList is a list by URL or a file.
type importedList struct {
	allow  bool
	source string
	at     leftOut // where it is from
}

// importedName is a line of block.txt or allow.txt.
type importedName struct {
	allow bool
	line  string
	firm  bool // only an exception that is firm, too, takes it back
	at    leftOut
}

// leftOut is what does not come along, or not as it was.
type leftOut struct {
	File string `json:"file"`
	Line int    `json:"line"` // 0: not known
	What string `json:"what"` // a kind, such as "regular expression"
	Text text   `json:"text"`
	Why  string `json:"why"` // "": the kind says it
}

// String returns the line for a terminal.
func (l leftOut) String() string {
	at := l.File
	if l.Line > 0 {
		at = fmt.Sprintf("%s:%d", at, l.Line)
	}
	line := at + ": " + l.What
	if l.Text != "" {
		line += ": " + string(l.Text)
	}
	if l.Why != "" {
		line += " (" + l.Why + ")"
	}
	return line
}

// maxLeftText is the most bytes of a line that is left out.
const maxLeftText = 200

// leave notes what does not come along.
func (m *imported) leave(line int, what, it, why string) {
	if strings.Contains(it, "://") && !strings.ContainsAny(it, " \n") {
		if u, err := ownlist.ParseURL(it); err == nil && (u.User != nil || u.RawQuery != "") { // they may be secret
			it = ownlist.URLConfig{URL: it}.Name()
		}
	}
	it = strings.TrimSpace(it)
	m.left = append(m.left, leftOut{File: m.file, Line: line, What: what, Text: text(it[:min(len(it), maxLeftText)]), Why: why})
}

// list adds a list by URL, or a file that is here. dir is where relative paths begin.
func (m *imported) list(line int, allow bool, source, dir string) {
	at := leftOut{File: m.file, Line: line}
	source = strings.TrimPrefix(source, "file://")
	if strings.ContainsAny(source, "\"{}\\`\r\n\t\x00") {
		m.leave(line, "list", source, "the Corefile cannot have these letters")
		return
	}
	if !strings.Contains(source, "://") {
		if !filepath.IsAbs(source) {
			source = filepath.Join(dir, source)
		}
		path, err := filepath.Abs(source)
		if info, missing := os.Stat(path); err != nil || missing != nil || !info.Mode().IsRegular() {
			m.leave(line, "list", source, "there is no such file here")
			return
		}
		source = path
	}
	for _, l := range m.lists {
		if l.source != source {
			continue
		}
		if l.allow != allow {
			m.leave(line, "list", source, "it is a list to block and a list to allow: the first one counts")
		}
		return
	}
	m.lists = append(m.lists, importedList{allow, source, at})
}

// name adds a line for block.txt or allow.txt.
func (m *imported) name(line int, allow, firm bool, entry string) {
	m.names = append(m.names, importedName{allow, entry, firm, leftOut{File: m.file, Line: line}})
}

// host adds one host, or a domain with all names below it. wild is text that others call a name.
func (m *imported) host(line int, allow, tree bool, wild string) {
	host := strings.TrimSuffix(strings.ToLower(strings.TrimSpace(wild)), ".")
	switch {
	case host == "", strings.ContainsAny(host, "|^/*$@#=;!:\"\\ \t[]"), strings.HasPrefix(host, "."):
		m.leave(line, "not a name", wild, "")
	case tree:
		m.name(line, allow, false, "||"+host+"^")
	case allow: // in a file of allow a bare name has the names below it
		m.name(line, allow, false, "|"+host+"^")
	default:
		m.name(line, allow, false, host)
	}
}

// bounded refuses more than a person has written.
func (m *imported) bounded() error {
	if len(m.names) > maxNames || len(m.lists) > maxURLs {
		return fmt.Errorf("there are %d own names and %d lists, and import takes up to %d and %d: keep names in a file of block", len(m.names), len(m.lists), maxNames, maxURLs)
	}
	return nil
}

// count counts the lists, and the lines of names.
func (m *imported) count(allow bool) (lists, names int) {
	for _, l := range m.lists {
		if l.allow == allow {
			lists++
		}
	}
	for _, n := range m.names {
		if n.allow == allow {
			names++
		}
	}
	return lists, names
}

// files returns the files to write. A Corefile that names them is accepted.
func (m *imported) files(folder string) ([]importFile, error) {
	if strings.ContainsAny(folder, "\"{}\\`\r\n\t") {
		return nil, fmt.Errorf("a Corefile cannot name the folder %q: choose another with -out", folder)
	}
	m.overruled()
	m.judged()
	m.upstreams()
	trial, err := os.MkdirTemp("", "import")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(trial)
	if m.try(trial, m.lists) != nil { // find the lists that are refused
		m.lists = slices.DeleteFunc(m.lists, func(l importedList) bool {
			err := m.try(trial, []importedList{l})
			if err != nil {
				m.file = l.at.File
				m.leave(l.at.Line, "list", l.source, reasonOf(err))
			}
			return err != nil
		})
		if err := m.try(trial, m.lists); err != nil {
			return nil, fmt.Errorf("the Corefile that was made is not accepted: %w", err)
		}
	}
	slices.SortStableFunc(m.left, func(a, b leftOut) int { return cmp.Or(cmp.Compare(a.File, b.File), a.Line-b.Line) })
	m.left = slices.Compact(m.left) // an alias of YAML would have it twice
	return m.render(folder, m.lists), nil
}

// reasonOf cuts off where an error of the trial is.
func reasonOf(err error) string {
	parts := strings.Split(err.Error(), "Error during parsing: ")
	return parts[len(parts)-1]
}

// try reads a Corefile with these lists as CoreDNS would.
func (m *imported) try(folder string, lists []importedList) error {
	for _, f := range m.render(folder, lists) {
		if err := os.WriteFile(f.Path, []byte(f.Text), 0o600); err != nil {
			return err
		}
	}
	_, err := parseCorefile(filepath.Join(folder, "Corefile"))
	return err
}

// domain returns the name of a line, "*." before it for those below it.
func (n importedName) domain() string {
	name := strings.ToLower(strings.Trim(n.line, "|^"))
	return name[strings.LastIndexByte(name, ' ')+1:] // after the address in a line of a hosts file
}

// overruled removes names that an exception of the operator's own takes back: among own entries the
// more specific one wins here, and an exception elsewhere.
func (m *imported) overruled() {
	allowed := make(map[string]bool) // whether the exception is firm, by its domain
	for _, n := range m.names {
		if n.allow && strings.HasPrefix(n.line, "||") {
			allowed[n.domain()] = allowed[n.domain()] || n.firm
		}
	}
	if len(allowed) == 0 {
		return
	}
	m.names = slices.DeleteFunc(m.names, func(n importedName) bool {
		if n.allow {
			return false
		}
		name := strings.TrimPrefix(n.domain(), "*.")
		for by := []string{name}; name != ""; by = []string{name, "*." + name} {
			for _, domain := range by {
				if firm, ok := allowed[domain]; ok && (firm || !n.firm) {
					m.file = n.at.File
					m.leave(n.at.Line, "exception", n.line, "an exception for "+domain+" takes it back")
					return true
				}
			}
			_, name, _ = strings.Cut(name, ".")
		}
		return false
	})
}

// judged keeps the lines that an own list would read, each once.
func (m *imported) judged() {
	var kept []importedName
	for _, allow := range []bool{false, true} {
		var all []importedName
		seen := make(map[string]bool)
		for _, n := range m.names {
			if n.allow == allow && !seen[n.line] {
				seen[n.line] = true
				all = append(all, n)
			}
		}
		kept = append(kept, m.judge(all, allow)...)
	}
	m.names = kept
}

// judge halves lines until those that an own list would not read are alone, and returns the others.
func (m *imported) judge(all []importedName, allow bool) []importedName {
	var lines strings.Builder
	for _, n := range all {
		lines.WriteString(n.line + "\n")
	}
	sum, _, err := ownlist.Survey(strings.NewReader(lines.String()), ownlist.Config{Allow: allow})
	bad := sum.Bad.Count + sum.NotSupported() + sum.Elsewhere.Count
	switch {
	case len(all) == 0, err == nil && sum.Seems == "" && bad == 0 && sum.Entries >= len(all):
		return all
	case len(all) == 1:
		n := all[0]
		m.file = n.at.File
		m.leave(n.at.Line, kindOf(n.line, sum.Elsewhere.Count > 0), n.line, "")
		return nil
	}
	return append(m.judge(all[:len(all)/2], allow), m.judge(all[len(all)/2:], allow)...)
}

// kindOf says why a rule is not one of an own list.
func kindOf(line string, elsewhere bool) string {
	switch {
	case elsewhere:
		return "rewrite"
	case strings.HasPrefix(line, "/"):
		return "regular expression"
	case strings.Contains(line, "$"):
		return "modifier"
	case strings.ContainsAny(line, "*^|/"):
		return "pattern"
	}
	return "not a name"
}

// upstreams completes forward.
func (m *imported) upstreams() {
	own := func(upstream string) bool { // a query would come back
		at, err := netip.ParseAddrPort(withPort(upstream))
		return err == nil && int(at.Port()) == cmp.Or(m.port, 53) && (at.Addr().IsLoopback() || slices.Contains(m.bind, at.Addr().String()))
	}
	m.file = cmp.Or(m.asks, m.file)
	m.forward = slices.DeleteFunc(m.forward, func(upstream string) bool {
		if own(upstream) {
			m.leave(0, "upstream", upstream, "the server would ask itself")
		}
		return own(upstream)
	})
	if len(m.forward) > maxForward {
		m.leave(0, "upstream", strings.Join(m.forward[maxForward:], " "), "forward takes up to 15")
		m.forward = m.forward[:maxForward]
	}
	if len(m.forward) == 0 {
		m.forward = []string{"9.9.9.9", "149.112.112.112"}
		m.leave(0, "upstream", "", "none came along: it forwards to 9.9.9.9 and 149.112.112.112 of Quad9; -upstream names others")
	}
}

// maxForward is the most upstreams of the plugin forward.
const maxForward = 15

// homeNetworks are who may ask.
const homeNetworks = "127.0.0.0/8 ::1/128 10.0.0.0/8 172.16.0.0/12 192.168.0.0/16 169.254.0.0/16 fc00::/7 fe80::/10"

// render returns the three files.
func (m *imported) render(folder string, lists []importedList) []importFile {
	c := homeCorefile{
		comments: []string{`By "safebrowsing import" from ` + m.from + "."},
		port:     cmp.Or(m.port, 53), networks: append([]string{homeNetworks}, m.serve...), forward: m.forward,
	}
	if !m.all {
		c.bind = m.bind
	}
	c.says("# api_key_file /etc/coredns/safebrowsing.key # for Google's lists, too")
	c.says("block", inCorefile(filepath.Join(folder, "block.txt")))
	c.says("allow", inCorefile(filepath.Join(folder, "allow.txt")))
	for _, l := range lists {
		c.says(ownWord(l.allow), inCorefile(l.source))
	}
	c.says("keep_clients")
	c.says("resolver", plain(m.forward[:min(len(m.forward), 3)])...) // DNS of this machine may wait for this server
	return []importFile{
		{filepath.Join(folder, "Corefile"), text(c.String())},
		{filepath.Join(folder, "block.txt"), m.listFile(false)},
		{filepath.Join(folder, "allow.txt"), m.listFile(true)},
	}
}

// inCorefile is a word of a Corefile.
func inCorefile(word string) string {
	if strings.Contains(word, "#") || strings.ContainsFunc(word, unicode.IsSpace) {
		return `"` + word + `"`
	}
	return word
}

// listFile returns block.txt or allow.txt.
func (m *imported) listFile(allow bool) text {
	var b strings.Builder
	b.WriteString("# By \"safebrowsing import\" from " + m.from + ".\n")
	if _, names := m.count(allow); names == 0 {
		b.WriteString("# empty on purpose\n")
	}
	for _, n := range m.names {
		if n.allow == allow {
			b.WriteString(n.line + "\n")
		}
	}
	return text(b.String())
}
