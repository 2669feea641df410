package ownlist

import (
	"bytes"
	"net/netip"
)

// plain is the scope of a host that stands alone or in a hosts file. What an
// operator allows by name is meant with all that it needs.
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
		return skipped
	case bytes.IndexByte(text, '/') >= 0:
		return p.url(text)
	case bytes.HasPrefix(text, []byte("*.")):
		return p.add(text[2:], below, false)
	case text[0] == '.':
		return p.add(text[1:], tree, false)
	}
	return p.add(text, p.plain(), false)
}

// url parses http://host/ and host/. What names a path, a query or a port of
// its own is less than the host: DNS cannot see it.
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
		return skipped
	}
	if scheme == nil {
		return p.add(host, p.plain(), false)
	}
	return p.add(host, exact, false)
}

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

// isAddress reports whether the first word of a line is the address of a hosts
// file. Which address it is does not matter.
func isAddress(word []byte) bool {
	if !isDigit(word[0]) && bytes.IndexByte(word, ':') < 0 {
		return false // without the cost of an error
	}
	switch string(word) {
	case "0.0.0.0", "127.0.0.1":
		return true
	}
	_, err := netip.ParseAddr(string(word))
	return err == nil
}

// usual are names that hosts files begin with. They say how the machine calls
// itself.
var usual = map[string]bool{
	"localhost": true, "localhost.localdomain": true, "local": true, "broadcasthost": true,
	"localhost4": true, "localhost4.localdomain4": true, "localhost6": true, "localhost6.localdomain6": true,
	"ip6-localhost": true, "ip6-loopback": true, "ip6-localnet": true, "ip6-mcastprefix": true,
	"ip6-allnodes": true, "ip6-allrouters": true, "ip6-allhosts": true, "0.0.0.0": true,
}

// hosts takes the names of a line of a hosts file.
func (p *parser) hosts(names [][]byte) outcome {
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
		p.emit(entry{name: name, scope: p.plain(), allow: p.allow, until: p.until})
		result = max(result, taken)
	}
	return result
}

// adblock parses ||domain^, with @@ before it for an exception.
func (p *parser) adblock(text []byte) outcome {
	text, exception := bytes.CutPrefix(text, []byte("@@"))
	text, ok := bytes.CutPrefix(text, []byte("||"))
	if !ok {
		return skipped
	}
	text, options, ok := bytes.Cut(text, []byte("$"))
	if ok && !isWholeDomain(options) {
		return skipped
	}
	text = bytes.TrimSuffix(text, []byte("|"))
	domain, separated := bytes.CutSuffix(text, []byte("^"))
	domain, wild := bytes.CutPrefix(domain, []byte("*."))
	switch {
	case bytes.ContainsAny(domain, "/*^|?=:"), // part of a host, or more than one
		!separated && bytes.HasSuffix(domain, []byte(".")): // example.anything
		return skipped
	case wild:
		return p.add(domain, below, exception)
	}
	return p.add(domain, tree, exception)
}

// isWholeDomain reports whether a rule with these options still is about all
// of the domain, and not about some requests, clients or pages only.
func isWholeDomain(options []byte) bool {
	for option := range bytes.SplitSeq(options, []byte(",")) {
		switch string(bytes.TrimSpace(option)) {
		case "important", "all", "document", "doc", "popup":
		default:
			return false
		}
	}
	return true
}
