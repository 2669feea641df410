package ownlist

import (
	"bytes"

	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

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
