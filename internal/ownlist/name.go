package ownlist

import (
	"bytes"
	"strings"

	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

// maxName and maxLabel are the most bytes of a DNS name and of a label (RFC 1035 section
// 2.3.4). maxNameText is the most bytes of a name as a person writes it: a rune has up to
// four bytes, and becomes at least one byte of the name.
const (
	maxName     = 253
	maxLabel    = 63
	maxNameText = 4 * maxName
)

// letter maps each byte of a listed name to lower case, and every other byte to 0. It
// allows fewer bytes than lookup.ParseHost: prose and markup must be bad lines, not
// hosts.
var letter = func() (t [256]byte) {
	for _, c := range []byte("abcdefghijklmnopqrstuvwxyz0123456789-_.") {
		t[c] = c
	}
	for c := byte('A'); c <= 'Z'; c++ {
		t[c] = c | 0x20
	}
	return t
}()

// name returns the canonical form of a name or an IP address that a person wrote, as
// lookup.ParseHost does. The result is valid until the next call.
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
	// A name with surplus dots, or one that may be an IPv4 address, needs ParseHost.
	last := p.buf[bytes.LastIndexByte(p.buf, '.')+1:]
	if len(last) == 0 || isDigit(last[0]) || p.buf[0] == '.' || bytes.Contains(p.buf, []byte("..")) {
		return p.nameSlowly(text)
	}
	return p.buf, fits(p.buf)
}

// nameSlowly is name for IP addresses and for names that are not canonical.
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

// address returns the canonical form of an IPv6 address. The text may have brackets.
func address(text []byte) (string, bool) {
	if bytes.IndexByte(text, ':') < 0 {
		return "", false
	}
	bare := strings.TrimSuffix(strings.TrimPrefix(string(text), "["), "]")
	h, ok := lookup.ParseHost("[" + bare + "]")
	return h.String(), ok
}

// fits reports whether a name is short enough for the DNS.
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

// isIP reports whether a canonical host is an IP literal, which has no parents.
func isIP(name string) bool {
	if name[0] == '[' {
		return true
	}
	dots := 0
	for i := len(name) - 1; i >= 0; i-- { // from the end: most names have a letter there
		switch c := name[i]; {
		case c == '.':
			dots++
		case !isDigit(c):
			return false
		}
	}
	return dots == 3
}

// isWhole reports whether h is the complete name of the query. FromQname drops labels that
// no URL can hold, and the name of the query is then below h. lookup does not export this
// fact, but FromQname of a complete name returns an equal Host.
func isWhole(h lookup.Host) bool {
	name := h.String()
	return name[0] == '[' || lookup.FromQname(name) == h
}
