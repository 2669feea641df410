package ownlist

import (
	"bytes"
	"strings"

	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

// maxName and maxLabel are the longest name and label of the DNS, in bytes
// (RFC 1035 section 2.3.4). maxNameText bounds what a person may write for a
// name: a rune of four bytes becomes at least one byte of the name.
const (
	maxName     = 253
	maxLabel    = 63
	maxNameText = 4 * maxName
)

// letter maps the bytes of a listed name to lower case, and all others to 0.
// It is stricter than lookup.ParseHost, so that prose and markup are bad lines
// and not hosts.
var letter = func() (t [256]byte) {
	for _, c := range []byte("abcdefghijklmnopqrstuvwxyz0123456789-_.") {
		t[c] = c
	}
	for c := byte('A'); c <= 'Z'; c++ {
		t[c] = c | 0x20
	}
	return t
}()

// name returns the canonical form of a name or an IP address that a person
// wrote, as lookup.ParseHost does. It is valid until the next call.
func (p *parser) name(text []byte) ([]byte, bool) {
	if len(text) > maxNameText {
		return nil, false
	}
	p.buf = p.buf[:0]
	for _, c := range text {
		if letter[c] == 0 {
			return p.nameSlowly(text)
		}
		p.buf = append(p.buf, letter[c])
	}
	// ParseHost has to see what has a dot too many or may be an IPv4 address.
	last := p.buf[bytes.LastIndexByte(p.buf, '.')+1:]
	if len(last) == 0 || isDigit(last[0]) || p.buf[0] == '.' || bytes.Contains(p.buf, []byte("..")) {
		return p.nameSlowly(text)
	}
	return p.buf, fits(p.buf)
}

func (p *parser) nameSlowly(text []byte) ([]byte, bool) {
	if h, ok := address(text); ok {
		return append(p.buf[:0], h...), true
	}
	h, ok := lookup.ParseHost(string(text))
	if !ok {
		return nil, false
	}
	p.buf = append(p.buf[:0], h.String()...)
	for _, c := range p.buf {
		if letter[c] == 0 {
			return nil, false
		}
	}
	return p.buf, fits(p.buf)
}

// address returns the canonical form of an IPv6 address, with or without
// brackets.
func address(text []byte) (string, bool) {
	if bytes.IndexByte(text, ':') < 0 {
		return "", false
	}
	bare := strings.TrimSuffix(strings.TrimPrefix(string(text), "["), "]")
	h, ok := lookup.ParseHost("[" + bare + "]")
	return h.String(), ok
}

// fits reports whether a name can be one of the DNS.
func fits(name []byte) bool {
	label := 0
	for _, c := range name {
		if label++; c == '.' {
			label = 0
		}
		if label > maxLabel {
			return false
		}
	}
	return len(name) > 0 && len(name) <= maxName
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

// isIP reports whether a canonical host is an IP literal: it has no parents.
func isIP(name string) bool {
	if name[0] == '[' {
		return true
	}
	dots := 0
	for i := len(name) - 1; i >= 0; i-- { // from the end: most names are done at once
		switch c := name[i]; {
		case c == '.':
			dots++
		case !isDigit(c):
			return false
		}
	}
	return dots == 3
}

// isWhole reports whether the name of h is all of what was asked, and not what
// remains of a name whose labels to the left no URL can hold: that one is below
// its name. Only lookup knows, but what FromQname makes of a name is whole.
func isWhole(h lookup.Host) bool {
	name := h.String()
	return name[0] == '[' || lookup.FromQname(name) == h
}
