package ownlist

import (
	"bytes"
	"slices"
)

// zone is the state that the lines of an RPZ zone file pass to later lines
// (draft-vixie-dnsop-dns-rpz). Names are in lower case, without the final dot.
type zone struct {
	origin, apex       []byte
	hasOrigin, hasApex bool   // needed because the name of the root is empty
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
		z.apex, z.hasApex = z.origin, true
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
