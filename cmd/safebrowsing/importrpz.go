package main

import (
	"cmp"
	"net/netip"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/coredns-safebrowsing/safebrowsing/internal/ownlist"
)

// rpz reads unbound.conf, of Unbound 1.14 and later, or a zone file with policies.
func (m *imported) rpz(raw []byte) error {
	if !unboundClause.Match(raw) {
		return m.zoneFile(raw)
	}
	if m.unbound == nil {
		m.unbound = &unboundConf{imported: m, closed: make(map[string]bool)}
	}
	u := m.unbound
	for number, line := range strings.Split(string(raw), "\n") {
		words := unboundWords(line)
		for i := 0; i < len(words); {
			end := i + 1
			for end < len(words) && !unboundKey.MatchString(words[end]) {
				end++
			}
			u.set(number+1, strings.TrimSuffix(words[i], ":"), words[i+1:end])
			i = end
		}
	}
	u.end()
	return nil
}

var (
	unboundClause = regexp.MustCompile(`(?m)^\s*(server|rpz|forward-zone|stub-zone|auth-zone|remote-control|include|include-toplevel):`)
	unboundHead   = regexp.MustCompile(`^\s*[a-z][a-z0-9-]*:`)
	unboundKey    = regexp.MustCompile(`^[a-z][a-z0-9-]*:$`)
	unboundWord   = regexp.MustCompile(`"[^"]*"|'[^']*'|[^\s"'#:]+:(?:\s|$)|[^\s"']+`)
)

// unboundWords returns the words of a line without quotes and comments.
func unboundWords(line string) (all []string) {
	line = unboundHead.ReplaceAllString(line, "$0 ") // no space is needed after the key
	for _, word := range unboundWord.FindAllString(line, -1) {
		word = strings.TrimSpace(word)
		if strings.HasPrefix(word, "#") {
			break
		}
		all = append(all, strings.Trim(word, `"'`))
	}
	return all
}

// unboundConf is what the files of Unbound say: it reads them as one.
type unboundConf struct {
	*imported
	clause string
	dir    string // where relative paths begin; "": where the file is
	tls    bool   // of all upstreams
	zone   unboundZone
	ask    []unboundLine   // upstreams
	at     []unboundLine   // addresses to listen on
	port   unboundLine     // of those without one
	closed map[string]bool // zones that block
	open   []unboundLine   // zones that are resolved, also below one that blocks
}

// whole takes what is known only after the last file.
func (u *unboundConf) whole() {
	for _, f := range u.ask {
		u.file = f.file
		u.imported.upstream(f.line, ofUnbound(f.text, u.tls || f.tls))
	}
	u.listen()
	u.exceptions()
}

// unboundZone is a clause rpz or forward-zone.
type unboundZone struct {
	line          int
	name          string
	url, file     string
	action        string
	tags, primary string
	tls           bool
	forward       []unboundLine
}

// unboundLine is an upstream, a zone, an address or a port.
type unboundLine struct {
	file string
	line int
	text string
	tls  bool // of an upstream
}

// listen takes the port that addresses without one have, if there is such an address.
func (u *unboundConf) listen() {
	common := u.port.text
	if common == "" && slices.ContainsFunc(u.at, func(at unboundLine) bool { return strings.Contains(at.text, "@") }) {
		common = "53"
	}
	for _, wanted := range []bool{true, false} {
		for _, at := range u.at {
			address, port, _ := strings.Cut(at.text, "@")
			if port = cmp.Or(port, common); (port == common) == wanted {
				u.file = at.file
				u.listens(at.line, address, port)
			}
		}
	}
	u.file = cmp.Or(u.port.file, u.file)
	u.listens(u.port.line, "", u.port.text)
}

// set reads one attribute.
func (u *unboundConf) set(line int, key string, values []string) {
	value := strings.Join(values, " ")
	if len(values) == 0 {
		u.end()
		u.clause, u.zone = key, unboundZone{line: line}
		return
	}
	z, said := &u.zone, unboundLine{file: u.file, line: line, text: value}
	switch u.clause + " " + key {
	case "server directory":
		u.dir = value
	case "server interface", "server ip-address":
		if _, port, _ := strings.Cut(value, "@"); port == "853" || port == "443" { // tls-port and https-port
			u.leave(line, "encrypted DNS", value, "see tls of CoreDNS")
			return
		}
		u.at = append(u.at, said)
	case "server port":
		u.port = said
	case "server tls-upstream", "server ssl-upstream":
		u.tls = value == "yes"
	case "server local-zone":
		switch {
		case len(values) != 2 || values[1] == "nodefault":
		case slices.Contains([]string{"transparent", "typetransparent", "always_transparent", "inform", "ipset"}, values[1]):
			said.text = zoneName(values[0])
			u.open = append(u.open, said)
		default:
			u.closed[zoneName(values[0])] = true
			u.name(line, false, true, "local-zone: \""+values[0]+"\" "+values[1])
		}
	case "server access-control":
		u.clients(line, values)
	case "server local-data", "server local-data-ptr":
		u.leave(line, "rewrite", value, "")
	case "auth-zone name":
		u.leave(line, "zone", value, "")
	case "server private-address":
		u.leave(line, "rebinding protection", value, "")
	case "server access-control-tag", "server access-control-view", "server access-control-tag-action":
		u.leave(line, "client", key+" "+value, "")
	case "rpz name", "forward-zone name", "stub-zone name":
		z.name = value
	case "rpz url":
		z.url = value
	case "rpz zonefile":
		z.file = value
	case "rpz rpz-action-override":
		z.action = value
	case "rpz tags":
		z.tags = value
	case "rpz primary", "rpz master":
		z.primary = value
	case "forward-zone forward-tls-upstream", "forward-zone forward-ssl-upstream":
		z.tls = value == "yes"
	case "forward-zone forward-addr", "forward-zone forward-host", "stub-zone stub-addr", "stub-zone stub-host":
		z.forward = append(z.forward, said)
	default:
		if strings.HasPrefix(key, "include") {
			u.leave(line, "included file", value, "import it, too")
		}
	}
}

// clients takes a network that may ask.
func (u *unboundConf) clients(line int, values []string) {
	network, err := netip.ParsePrefix(values[0])
	switch {
	case len(values) != 2 || err != nil, !strings.HasPrefix(values[1], "allow"):
		u.leave(line, "client", "access-control "+strings.Join(values, " "), "see acl of CoreDNS")
	case network.Bits() == 0:
		u.leave(line, "client", "access-control "+strings.Join(values, " "), "an open resolver is used in attacks")
	case !strings.Contains(" "+homeNetworks+" ", " "+network.Masked().String()+" ") && !slices.Contains(u.serve, network.Masked().String()):
		u.serve = append(u.serve, network.Masked().String())
	}
}

// end takes the clause that ends.
func (u *unboundConf) end() {
	z := u.zone
	switch u.clause {
	case "rpz":
		u.policies(z)
	case "forward-zone", "stub-zone":
		for _, f := range z.forward {
			if z.name != "." || u.clause == "stub-zone" {
				u.leave(f.line, "upstream", f.text, "for "+z.name+" only: see forward of CoreDNS")
			} else {
				f.tls = z.tls
				u.ask = append(u.ask, f)
			}
		}
	}
	u.clause = ""
}

// exceptions allows the zones that are resolved below one that blocks.
func (u *unboundConf) exceptions() {
	for _, zone := range u.open {
		for _, above, found := strings.Cut(zone.text, "."); found; _, above, found = strings.Cut(above, ".") {
			if u.closed[above] {
				u.file = zone.file
				u.name(zone.line, true, false, "||"+zone.text+"^")
				u.leave(zone.line, "exception", zone.text, "no other list blocks it here, too")
				break
			}
		}
	}
}

func zoneName(written string) string { return strings.ToLower(strings.TrimSuffix(written, ".")) }

// ofUnbound returns an upstream, ADDRESS@PORT#NAME, as others write it.
func ofUnbound(text string, tls bool) string {
	address, name, _ := strings.Cut(text, "#")
	address, port, _ := strings.Cut(address, "@")
	if strings.Contains(address, ":") {
		address = "[" + address + "]"
	}
	if port != "" {
		address += ":" + port
	}
	if !tls {
		return address
	}
	if name != "" {
		name = "#" + name
	}
	return "tls://" + address + name
}

// policies takes a clause rpz: the list by URL, or its file.
func (u *unboundConf) policies(z unboundZone) {
	switch {
	case z.action == "disabled":
		u.leave(z.line, "switched off", z.name, "")
		return
	case z.tags != "":
		u.leave(z.line, "client", z.name+" tags "+z.tags, "here it holds for all")
	case z.action != "" && z.action != "passthru" && z.action != "nxdomain":
		u.leave(z.line, "answer", z.name+" rpz-action-override "+z.action, "see respond")
	}
	dir := cmp.Or(u.dir, filepath.Dir(u.file))
	switch source := z.url; {
	case source != "":
		u.list(z.line, z.action == "passthru", source, dir)
	case z.file != "":
		u.list(z.line, z.action == "passthru", z.file, dir)
	case z.primary != "":
		u.leave(z.line, "zone transfer", z.name+" from "+z.primary, "a list is a file or a URL")
	}
}

// zoneFile takes a zone file as it is, and says which lines an own list does not read.
func (m *imported) zoneFile(raw []byte) error {
	sum, _, err := ownlist.Survey(strings.NewReader(string(raw)), ownlist.Config{})
	if err != nil {
		return err
	}
	for _, l := range sum.Unsupported {
		m.leave(l.First.Number, "trigger or action", l.First.Text, ofKind(l.Count))
	}
	if sum.LocalData.Count > 0 {
		m.leave(sum.LocalData.First.Number, "answer", sum.LocalData.First.Text, ofKind(sum.LocalData.Count))
	}
	if sum.Bad.Count > 0 {
		m.leave(sum.Bad.First.Number, "not a record", sum.Bad.First.Text, ofKind(sum.Bad.Count))
	}
	m.list(0, false, m.file, ".")
	return nil
}

// ofKind says how many lines are like the first one.
func ofKind(count int) string {
	if count == 1 {
		return ""
	}
	return "the first of " + strconv.Itoa(count)
}
