package ownlist

import (
	"bytes"
	"net/netip"
	"slices"
	"strings"

	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

// record parses a record of an RPZ zone: [owner] [ttl] [class] type rdata. An indented
// line without an owner has the owner of the record before it (RFC 1035 section 5.1).
func (p *parser) record(fields [][]byte, indented bool) outcome {
	owner, rest := fields[0], fields[1:]
	if indented && len(p.zone.owner) > 0 && (isTTL(owner) || isClass(owner) || recordTypes[string(bytes.ToUpper(owner))] != 0) {
		owner, rest = p.zone.owner, fields
	}
	for len(rest) > 0 && (isTTL(rest[0]) || isClass(rest[0])) {
		if isClass(rest[0]) && !bytes.EqualFold(rest[0], []byte("IN")) {
			return p.unsupported(kindClass)
		}
		rest = rest[1:]
	}
	if len(rest) < 2 {
		return bad
	}
	use := recordTypes[string(bytes.ToUpper(rest[0]))]
	if use == 0 {
		return bad
	}
	p.zone.owner = append(p.zone.owner[:0], owner...) // safe if owner is p.zone.owner
	owner = p.zone.owner
	switch use {
	case start:
		p.zone.begin(owner, rest[1:])
		return nothing
	case ignored:
		return nothing
	case other:
		return p.unsupported(records(string(bytes.ToUpper(rest[0]))))
	case local:
		if _, err := netip.ParseAddr(string(rest[1])); err != nil {
			return bad // prose, not a record
		}
	}
	if len(rest) > 2 {
		return bad
	}
	return p.policy(owner, rest[1], use == alias)
}

// use says what a record type means in a policy zone.
type use uint8

const (
	start   use = iota + 1 // begins the zone
	ignored                // belongs to the zone itself
	alias                  // its target is the action
	local                  // an address to send in the answer
	other                  // data that no browser asks for, and signatures
)

var recordTypes = map[string]use{
	"SOA": start, "NS": ignored, "CNAME": alias, "A": local, "AAAA": local,
	"CAA": other, "DNAME": other, "DNSKEY": other, "DS": other, "HTTPS": other, "MX": other, "NAPTR": other,
	"NSEC": other, "NSEC3": other, "NSEC3PARAM": other, "PTR": other, "RRSIG": other, "SRV": other,
	"SVCB": other, "TLSA": other, "TXT": other,
}

// policy emits the entry of a record that says what to do with its owner. Local data and
// an alias to another name replace the true answer: their names are blocked.
func (p *parser) policy(owner, target []byte, isAlias bool) outcome {
	name, ok := p.zone.trigger(owner)
	if !ok {
		return bad
	}
	if len(name) == 0 { // a record of the apex
		return nothing
	}
	if trigger := triggerOf(name); trigger != "" {
		return p.unsupported(with(trigger))
	}
	result, allow := localData, false
	if isAlias {
		if result, allow = p.action(name, target); result == unsupported {
			return result
		}
	}
	if string(name) == "*" {
		if p.zone.guessed { // perhaps all names below one of the zone
			return bad
		}
		p.say(nil, below, allow)
		return result
	}
	if wild, ok := bytes.CutPrefix(name, []byte("*.")); ok {
		return max(result, p.add(wild, below, allow))
	}
	return max(result, p.add(name, exact, allow))
}

// action reads the target of an alias, which says what to do with a name
// (draft-vixie-dnsop-dns-rpz section 3).
func (p *parser) action(name, target []byte) (result outcome, allow bool) {
	switch action := string(bytes.ToLower(bytes.TrimSuffix(target, []byte(".")))); {
	case action == "": // NXDOMAIN
	case action == "*":
		p.response = lookup.NODATA
	case action == "rpz-passthru":
		return listed, true
	case action == "rpz-drop":
		p.response = lookup.NoAnswer
	case action == "rpz-tcp-only":
		return p.unsupported(with(action)), false
	case strings.HasPrefix(action, "rpz-"): // reserved for actions
		return p.unsupported(kindRPZAction), false
	case bytes.HasSuffix(target, []byte(".")) && bytes.EqualFold(target[:len(target)-1], name):
		return listed, true // in the first edition of RPZ an alias to the name itself allows it
	default:
		return localData, false
	}
	return listed, false
}

// triggerOf returns the last label of an owner if that is a trigger other than the qname,
// and "" otherwise (draft-vixie-dnsop-dns-rpz section 4).
func triggerOf(name []byte) string {
	switch label := string(bytes.ToLower(name[bytes.LastIndexByte(name, '.')+1:])); label {
	case "rpz-ip", "rpz-client-ip", "rpz-nsip", "rpz-nsdname":
		return label
	}
	return ""
}

// isTTL reports whether a word is a TTL: seconds, or the units of zone files (1h30m).
func isTTL(word []byte) bool {
	if !isDigit(word[0]) {
		return false
	}
	for _, c := range word {
		if !isDigit(c) && bytes.IndexByte([]byte("smhdwSMHDW"), c) < 0 {
			return false
		}
	}
	return true
}

// isClass reports whether a word is a class of DNS records.
func isClass(word []byte) bool {
	switch string(bytes.ToUpper(word)) {
	case "IN", "CH", "HS", "ANY":
		return true
	}
	return false
}

// zone is the state that the lines of an RPZ zone file pass to later lines
// (draft-vixie-dnsop-dns-rpz). Names are in lower case, without the final dot.
type zone struct {
	origin, apex       []byte
	hasOrigin, hasApex bool   // needed because the name of the root is empty
	guessed            bool   // the apex may be below the zone's own: only an $ORIGIN after the first records has it
	owner              []byte // of the last record, as written
	open               bool   // an SOA record has an open parenthesis
}

// continues reports whether a line continues an SOA record, and notes the end of the
// record. A line with anything but numbers and full names ends it too: a parenthesis that
// is never closed must not hide the rest of the file.
func (z *zone) continues(text []byte) bool {
	if !z.open {
		return false
	}
	text, _, _ = bytes.Cut(text, []byte(";"))
	for word := range bytes.FieldsSeq(text) {
		word = bytes.TrimRight(word, ")")
		if len(word) > 0 && !isTTL(word) && word[len(word)-1] != '.' {
			z.open = false
			return false
		}
	}
	z.open = bytes.IndexByte(text, ')') < 0
	return true
}

// directive applies $ORIGIN. $TTL has no effect on names. $INCLUDE and $GENERATE are not
// supported.
func (p *parser) directive(text []byte) outcome {
	p.split(text)
	if len(p.fields) < 2 {
		return bad
	}
	switch string(bytes.ToUpper(p.fields[0])) {
	case "$TTL":
		return nothing
	case "$INCLUDE", "$GENERATE":
		return p.unsupported(with(string(bytes.ToUpper(p.fields[0]))))
	case "$ORIGIN":
	default:
		return bad
	}
	z := &p.zone
	origin := z.absolute(p.fields[1])
	if len(origin) > maxNameText { // a relative origin would grow with every line
		return bad
	}
	z.origin, z.hasOrigin = origin, true
	if !z.hasApex {
		z.apex, z.hasApex, z.guessed = z.origin, true, len(z.owner) > 0
	}
	return nothing
}

// absolute returns the full name of an owner, in a new slice.
func (z *zone) absolute(owner []byte) []byte {
	owner = bytes.ToLower(owner) // a copy
	switch {
	case string(owner) == "@":
		return slices.Clone(z.origin)
	case bytes.HasSuffix(owner, []byte(".")):
		return owner[:len(owner)-1]
	case len(z.origin) == 0:
		return owner
	}
	return append(append(owner, '.'), z.origin...)
}

// begin sets apex and origin from the SOA record, with which a zone begins.
func (z *zone) begin(owner []byte, rest [][]byte) {
	if string(owner) != "@" || z.hasOrigin {
		z.apex, z.hasApex = z.absolute(owner), true
	}
	if !z.hasOrigin && z.hasApex {
		z.origin, z.hasOrigin = z.apex, true
	}
	line := bytes.Join(rest, nil)
	z.open = bytes.IndexByte(line, '(') >= 0 && bytes.IndexByte(line, ')') < 0
}

// trigger returns the name that the record of an owner applies to, or "" for the apex. ok
// is false if the owner is outside the zone.
func (z *zone) trigger(owner []byte) (name []byte, ok bool) {
	relative := !bytes.HasSuffix(owner, []byte("."))
	switch {
	case string(owner) == "@" && !z.hasApex:
		return nil, true
	case string(owner) != "@" && relative && (!z.hasApex || bytes.Equal(z.origin, z.apex)):
		return owner, true // the usual case
	case !z.hasApex: // the file names no zone
		return owner[:len(owner)-1], true
	}
	name = z.absolute(owner)
	if len(z.apex) == 0 || bytes.Equal(name, z.apex) {
		return name[:len(name)-len(z.apex)], true
	}
	name, ok = bytes.CutSuffix(name, z.apex)
	if !ok {
		return nil, false
	}
	return bytes.CutSuffix(name, []byte("."))
}
