package ownlist

import (
	"bytes"
	"net/netip"
	"slices"

	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

// plain returns the scope of a bare host or of one in a hosts file. An allowed host needs
// the names below it to work; a blocked one is blocked alone.
func (p *parser) plain() scope {
	if p.allow {
		return tree
	}
	return exact
}

// single parses a line of one word: a domain, a wildcard or a URL.
func (p *parser) single(text []byte) outcome {
	switch {
	case bytes.ContainsAny(text, "^|"): // an adblock pattern, matched anywhere in a URL
		return p.unsupported(kindPattern)
	case bytes.IndexByte(text, '$') > 0: // a pattern with options: *$denyallow=com
		return p.unsupported(optionKind(text[bytes.IndexByte(text, '$')+1:]))
	case bytes.IndexByte(text, '/') >= 0:
		return p.url(text)
	case bytes.HasPrefix(text, []byte("*.")):
		return p.add(text[2:], below, false)
	case text[0] == '.':
		return p.add(text[1:], tree, false)
	}
	return p.add(text, p.plain(), false)
}

// url parses http://host/ and host/. A URL with a path, a query or an unusual port is
// unsupported: a DNS query has only the host.
func (p *parser) url(text []byte) outcome {
	scheme, rest, ok := bytes.Cut(text, []byte("://"))
	if !ok {
		scheme, rest = nil, text
	}
	end := bytes.IndexAny(rest, "/?#")
	if end < 0 {
		end = len(rest)
	}
	host, path := rest[:end], rest[end:]
	host = host[bytes.LastIndexByte(host, '@')+1:]
	port := []byte(nil)
	if colon := bytes.LastIndexByte(host, ':'); colon > bytes.LastIndexByte(host, ']') {
		host, port = host[:colon], host[colon+1:]
	}
	if _, ok := p.name(host); !ok {
		return bad
	}
	if len(path) > 1 || len(path) == 1 && path[0] != '/' || !isUsualPort(scheme, port) {
		return p.unsupported(kindURL)
	}
	if scheme == nil {
		return p.add(host, p.plain(), false)
	}
	return p.add(host, exact, false)
}

// isUsualPort reports whether a port is absent or the default of its scheme.
func isUsualPort(scheme, port []byte) bool {
	switch string(port) {
	case "":
		return true
	case "80":
		return bytes.EqualFold(scheme, []byte("http"))
	case "443":
		return bytes.EqualFold(scheme, []byte("https"))
	}
	return false
}

// address reports whether a word is an IP address, as at the start of a line of a hosts
// file, and whether that address blocks the names: the unspecified address, a loopback
// address or the sinkhole.
func (p *parser) address(word []byte) (isAddress, blocks bool) {
	if len(word) == 0 || !isDigit(word[0]) && bytes.IndexByte(word, ':') < 0 {
		return false, false // most words: ParseAddr would allocate an error
	}
	switch string(word) {
	case "0.0.0.0", "127.0.0.1":
		return true, true
	}
	addr, err := netip.ParseAddr(string(word))
	if err != nil {
		return false, false
	}
	addr = addr.Unmap()
	return true, addr.IsUnspecified() || addr.IsLoopback() || slices.Contains(p.sinkholes[:], addr)
}

// usual holds the names of the machine itself, which most hosts files begin with.
var usual = map[string]bool{
	"localhost": true, "localhost.localdomain": true, "local": true, "broadcasthost": true,
	"localhost4": true, "localhost4.localdomain4": true, "localhost6": true, "localhost6.localdomain6": true,
	"ip6-localhost": true, "ip6-loopback": true, "ip6-localnet": true, "ip6-mcastprefix": true,
	"ip6-allnodes": true, "ip6-allrouters": true, "ip6-allhosts": true, "0.0.0.0": true,
}

// hosts emits the names of a line of a hosts file. An address that does not block is the
// real address of a machine: 192.168.1.10 nas.
func (p *parser) hosts(names [][]byte, blocks bool) outcome {
	result := nothing
	for _, text := range names {
		name, ok := p.name(text)
		if !ok {
			result = bad
			continue
		}
		if usual[string(name)] {
			continue
		}
		if !blocks {
			result = max(result, elsewhere)
			continue
		}
		p.say(name, p.plain(), false)
		result = max(result, listed)
	}
	return result
}

// adblock parses ||domain^, AdGuard's |host^ for DNS, and both after @@, which makes an
// exception.
func (p *parser) adblock(text []byte) outcome {
	text, exception := bytes.CutPrefix(text, []byte("@@"))
	if len(text) > 0 && text[0] == '/' {
		return p.unsupported(slashKind(text))
	}
	text, isDomain := bytes.CutPrefix(text, []byte("||"))
	isHost := false
	if !isDomain {
		text, isHost = bytes.CutPrefix(text, []byte("|"))
	}
	text, options, ok := bytes.Cut(text, []byte("$"))
	if option, found := partial(options); ok && found {
		return p.unsupported(optionKind(option))
	}
	text, ended := bytes.CutSuffix(text, []byte("|"))
	domain, separated := bytes.CutSuffix(text, []byte("^"))
	domain, wild := bytes.CutPrefix(domain, []byte("*."))
	switch {
	case bytes.IndexByte(domain, '/') >= 0:
		return p.unsupported(kindURL)
	case !isDomain && !isHost,
		bytes.ContainsAny(domain, "*^|?=:"),                // matches many names
		!separated && bytes.HasSuffix(domain, []byte(".")), // matches example.anything
		isHost && (wild || !separated && !ended):           // matches every name that begins so
		return p.unsupported(kindPattern)
	case isHost:
		return p.add(domain, exact, exception)
	case wild:
		return p.add(domain, below, exception)
	}
	return p.add(domain, tree, exception)
}

// partial returns the first option that limits a rule to some requests, clients or pages
// of the domain.
func partial(options []byte) (option []byte, found bool) {
	for option := range bytes.SplitSeq(options, []byte(",")) {
		switch string(bytes.TrimSpace(option)) {
		case "important", "all", "document", "doc", "popup":
		default:
			return option, true
		}
	}
	return nil, false
}

// dnsmasq parses address=/a.example/b.example/0.0.0.0 and local=/a.example/, which block
// the domains and all names below them. ok is false if the line is not dnsmasq's.
//
// dnsmasq answers NXDOMAIN for "address" without an address, and for "server" or "local"
// without a server. Its address # means 0.0.0.0 and :: (manual of dnsmasq).
func (p *parser) dnsmasq(text []byte) (result outcome, ok bool) {
	word, rest, ok := bytes.Cut(text, []byte("=/"))
	if !ok {
		return nothing, false
	}
	isAddress := string(word) == "address"
	if !isAddress && string(word) != "server" && string(word) != "local" {
		return nothing, false
	}
	rest, comment := rest, []byte(nil)
	if space := bytes.IndexAny(rest, " \t"); space >= 0 {
		rest, comment = rest[:space], bytes.TrimSpace(rest[space:])
	}
	last := bytes.LastIndexByte(rest, '/')
	if last < 0 || len(comment) > 0 && comment[0] != '#' {
		return bad, true
	}
	if p.until, ok = p.expiry(bytes.TrimPrefix(comment, []byte("#"))); !ok {
		return bad, true
	}
	target := rest[last+1:]
	isIP, blocks := p.address(target)
	switch {
	case len(target) == 0, isAddress && (string(target) == "#" || blocks || isIP && p.allow):
		return p.domains(rest[:last]), true
	case isAddress && isIP:
		return elsewhere, true
	}
	return p.unsupported(kindDnsmasq), true // forwards the domain, or exempts it
}

// domains emits the domains of a/b/c, each with all names below it.
func (p *parser) domains(text []byte) outcome {
	result := listed
	for domain := range bytes.SplitSeq(text, []byte("/")) {
		if len(domain) == 0 || bytes.ContainsAny(domain, "#*") { // names without a dot, all names, parts of names
			result = max(result, p.unsupported(kindDnsmasq))
			continue
		}
		result = max(result, p.add(domain, tree, false))
	}
	return result
}

// zoneTypes holds the types of local-zone that block all names of a zone (manual of
// unbound.conf). With static and redirect a local-data line can make exceptions; these
// are not supported.
var zoneTypes = map[string]lookup.Response{
	"always_nxdomain": lookup.NXDOMAIN, "always_null": lookup.NXDOMAIN, "static": lookup.NXDOMAIN, "redirect": lookup.NXDOMAIN,
	"always_nodata": lookup.NODATA,
	"refuse":        lookup.Refused, "always_refuse": lookup.Refused,
	"deny": lookup.NoAnswer, "always_deny": lookup.NoAnswer, "inform_deny": lookup.NoAnswer,
}

// unbound parses local-zone: "a.example." always_nxdomain, which blocks the domain and all
// names below it. ok is false if the line is not unbound's.
func (p *parser) unbound(fields [][]byte) (result outcome, ok bool) {
	switch string(fields[0]) {
	case "local-data:", "local-data-ptr:", "local-zone-override:", "local-zone-tag:":
		return p.unsupported(kindUnbound), true
	case "local-zone:":
	default:
		return nothing, false
	}
	if len(fields) != 3 {
		return bad, true
	}
	response, blocks := zoneTypes[string(bytes.Trim(fields[2], `"`))]
	if !blocks {
		return p.unsupported(kindUnbound), true
	}
	p.response = response
	return p.add(bytes.Trim(fields[1], `"`), tree, false), true
}
